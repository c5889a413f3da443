"""The stream API: how a user says a query in Python. Every call returns something new and runs nothing.

Receives logs, decoders, expressions (Polars' own) and sinks; hands an `App`, the logical plan of all outputs.

    clicks = stream("clicks", files("logs/*.log"), combined_log(), time="time")
    top = clicks.key_by("path").window("30s").count().top(10)
    app = App("pages", output("top", top, jsonl("out/top")))
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from penstock.decode.contract import Decoder
from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.logs.contract import Log
from penstock.operators.group_top import GroupTop, columns_of
from penstock.operators.rebalance import Rebalance
from penstock.operators.routing import Partitioner
from penstock.operators.running import RunningAggregation
from penstock.operators.top_k import TopK
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.demux import Demux
from penstock.query.distincts import Distincts
from penstock.query.keyed import Keyed
from penstock.query.products import Products
from penstock.query.purity import check_repeatable
from penstock.query.ranked import aggregate_under
from penstock.query.rows import Order, stateful, stream_given
from penstock.query.windowed import Windowed


def stream(
    name: str,
    log: Log,
    decoder: Decoder,
    *,
    time: str | None = None,
    lateness: Duration = 0,
    idle_after: Duration | None = "5s",
    ahead: Duration | None = "1d",
) -> Stream:
    """A named stream of events.

    `time` is the event-time column; without one the stream can be mapped and filtered, but nothing that goes over
    several events knows their order. An event may be up to `lateness` older than the newest before it in
    its partition; what is older goes to the late output. A partition silent for `idle_after` no longer
    holds the others back (None: it always does). An event dated more than `ahead` after the wall clock is
    not believed and goes to the late output too (None: every date is).
    """
    origin = here()
    _given(name, log, decoder, origin)
    schema = dict(decoder.schema())
    check.names_free([*schema], origin)
    check.columns_exist([time] if time is not None else [], schema, origin, "the event time")
    if time is not None and not isinstance(schema[time], pl.Datetime):
        raise UserError(
            "TYPE_MISMATCH",
            f"the event time {time!r} must be a Datetime, but it is {schema[time]}",
            where=str(origin),
            hint="Give the decoder the time's format, so that it reads the column as a Datetime.",
        )
    idle = None if idle_after is None else microseconds(idle_after)
    future = None if ahead is None else microseconds(ahead)
    definition = logical.StreamDefinition(name, log, decoder, time, microseconds(lateness), idle, future)
    return Stream(logical.Source(origin, schema, definition))


@dataclass(frozen=True, eq=False)
class Stream(Demux, Distincts, Products):
    """A stream of events, or the rows another step puts out."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.node.schema)

    def map(self, **columns: pl.Expr) -> Stream:
        """Add columns, or replace those of the same name."""
        return self._mapped(columns, only=False)

    def select(self, *names: str | pl.Expr | Sequence[str | pl.Expr], **columns: pl.Expr) -> Stream:
        """Keep these columns only, and add computed ones; an expression has the name that Polars gives it."""
        return self._mapped(check.selected(names, here()) | columns, only=True)

    def filter(self, *predicates: pl.Expr) -> Stream:
        """Keep the events for which a condition, or all of several, holds."""
        origin = here()
        for predicate in predicates:
            check.filtered(self.node.schema, predicate, origin)
        if not predicates:
            raise UserError(
                "BAD_FILTER",
                "filter needs a condition",
                where=str(origin),
                hint='As in .filter(col("status") == 200).',
            )
        both = reduce(operator.and_, predicates)
        return Stream(logical.Filter(origin, self.node.schema, self.node, both))

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
        *,
        deterministic: bool = False,
    ) -> Stream:
        """Run your own function on whole batches (Polars frames).

        It gets all columns and must return the same rows or some of them, in order, each with the columns
        of `schema` (as before when not given). It must be pure: the same batch, the same answer, wherever
        batches are cut. A function that seems to ask the clock or chance is refused, unless you vouch for it
        with `deterministic=True`.
        """
        origin = here()
        if not deterministic:
            check_repeatable(function, origin, vouched_by="deterministic=True")
        declared = self.node.schema if schema is None else pl.Schema(schema)
        check.names_free(declared, origin)
        return Stream(logical.MapBatches(origin, dict(declared), self.node, function))

    def flat_map(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        schema: Mapping[str, pl.DataType | type[pl.DataType]],
        *,
        deterministic: bool = False,
    ) -> Stream:
        """Run your own function on whole batches; it may make any number of rows of an event.

        Each row it returns must keep the columns whose names begin with an underscore as they were in the event it
        comes from. Rows of one event follow one another in the order returned, wherever order matters. It
        must be pure, and make of an event the same rows whatever else is in the batch (see `map_batches`).
        """
        origin = here()
        if not deterministic:
            check_repeatable(function, origin, vouched_by="deterministic=True")
        declared = dict(pl.Schema(schema))
        check.names_free(declared, origin)
        return Stream(logical.FlatMap(origin, declared, self.node, function))

    def explode(self, *columns: str | Sequence[str]) -> Stream:
        """One row for every value of a list column (of several: side by side, equally long), in their order.

        The other columns are repeated. An event with an empty list, or with none, gives no row.
        """
        origin = here()
        named = check.names(columns, origin, '.explode("words")')
        schema = check.exploded(self.node.schema, named, origin)
        return Stream(logical.Explode(origin, schema, self.node, tuple(dict.fromkeys(named))))

    def union(self, *others: Stream) -> Stream:
        """Put streams with the same columns together."""
        origin = here()
        parts = (self.node, *(stream_given(other, origin, "a union").node for other in others))
        return Stream(logical.Union(origin, check.united([part.schema for part in parts], origin), parts))

    def late(self) -> Stream:
        """The events of this stream that came too late, as a stream of their own. Only of a stream itself.

        A late event happens, for whatever reads it, when it is noticed; its own columns stay as they are.
        """
        origin = here()
        if not isinstance(self.node, logical.Source):
            raise UserError(
                "LATE_OF_NO_STREAM",
                "only a stream itself has late events, not what was made of it",
                where=str(origin),
                hint="Call late() on what ps.stream(...) returned.",
            )
        return Stream(logical.Late(origin, self.node.schema, self.node))

    def rebalance(self) -> Stream:
        """Deal the rows out evenly: what follows, up to the next key, runs on all slices alike.

        For costly steps after an operator whose rows lie on few slices, or a log of few partitions.
        """
        return stateful(here(), self.node.schema, Rebalance(tuple(self.node.schema)), self.node)

    def key_by(
        self,
        *columns: str | Sequence[str],
        order: Order | None = None,
        partition: Partitioner | None = None,
    ) -> Keyed:
        """What follows happens per value of these columns.

        `order` overrides the order in which custom operators and aggregates get their events: "strict" (by event
        time, partition and offset; events wait for the watermark), "epoch" (windows in order, inside an epoch any) or
        "none" (as they come, even for a custom operator that is not commutative: what it tells may then depend
        on how they came). The other operators always take the order they need.

        `partition` says which keys lie together, where hashing them is not good enough:
        `ps.by_range("user", ["f", "m"])` or `ps.by_function(function, parts)`. Answers are the same.
        """
        origin = here()
        keys = check.names(columns, origin, '.key_by("user", "page")')
        check.keys_fit(keys, self.node.schema, origin)
        if order not in (None, "strict", "epoch", "none"):
            raise UserError(
                "BAD_ORDER",
                f"there is no order {order!r}",
                where=str(origin),
                hint='Choose "strict", "epoch" or "none".',
            )
        node = _one_zero(self.node, keys, origin)
        if partition is not None:
            check.partition_fits(partition, keys, origin)
            node = logical.Partitioned(origin, node.schema, node, partition)
        return Keyed(node, tuple(dict.fromkeys(keys)), order=order)

    def window(self, size: Duration, every: Duration | None = None, offset: Duration = 0) -> Windowed:
        """Over all events, in windows of time; see `Keyed.window`."""
        return Keyed(self.node, ()).window(size, every, offset)

    def running(self, every: Duration = "1s") -> Windowed:
        """Over all events since the beginning, told at the end of every `every` of event time."""
        return Keyed(self.node, ()).running(every)

    def top(
        self,
        k: int,
        by: str | None = None,
        *,
        per: str | Sequence[str] = (),
        least: bool = False,
        changes_only: bool | None = None,
    ) -> Stream:
        """The k best rows of a window's, or of running, aggregates; `by` is the last column if not given.

        With `per`, the k best of every value of these columns; of running totals, these must be keys.
        Ties go to the smaller key. With `changes_only` an answer is told only when it differs from the one before, of
        its group where there are groups; unless it is said otherwise, that is so of running aggregates, while
        every window is told.
        """
        origin = here()
        aggregated = aggregate_under(self.node, origin)
        if k < 1:
            raise UserError("BAD_TOP", f"top {k} has no rows", where=str(origin), hint="Ask for at least 1.")
        by = by or list(self.node.schema)[-1]
        groups = (per,) if isinstance(per, str) else tuple(dict.fromkeys(per))
        schema = self.node.schema
        check.columns_exist([by, *aggregated.keys, *groups], schema, origin, "top")
        check.keys_fit(groups, schema, origin)
        check.names_differ(["rank", *schema], origin)
        running = isinstance(aggregated, RunningAggregation)
        if running and not set(groups) <= set(aggregated.keys):
            raise UserError(
                "BAD_TOP",
                "a running total that moved to another group could not be taken back from the one it was in",
                where=str(origin),
                hint=f"Let per be some of the keys: {', '.join(aggregated.keys) or 'there are none'}.",
            )
        changes = running if changes_only is None else changes_only
        made = TopK(k, by, aggregated.keys, running, not least, changes)
        if groups:
            ranking = GroupTop(groups, made, columns_of(schema))
            return stateful(origin, ranking.schema(), ranking, self.node)
        return Stream(logical.Top(origin, made.schema(schema), self.node, made))

    def _mapped(self, columns: Mapping[str, pl.Expr], *, only: bool) -> Stream:
        origin = here()
        schema = check.mapped(self.node.schema, columns, only, origin)
        return Stream(logical.Map(origin, schema, self.node, tuple(columns.items()), only))


def _given(name: object, log: object, decoder: object, origin: Origin) -> None:
    """Raise unless a stream has a name, a log and a decoder."""
    wrong = None
    if not isinstance(name, str):
        wrong = "BAD_NAME", f"{name!r} cannot name a stream", 'As in ps.stream("clicks", ...).'
    elif not isinstance(log, Log):
        hint = f"Say that these are files: ps.files({log!r})." if isinstance(log, str) else None
        wrong = "NOT_A_LOG", f"{log!r} is no log", hint or "Use ps.files(...) or ps.generated(...)."
    elif not isinstance(decoder, Decoder):
        called = f"Call it: {decoder.__name__}(...)." if isinstance(decoder, type) else None
        wrong = (
            "NOT_A_DECODER",
            f"{decoder!r} cannot say what the bytes of {name!r} mean",
            called or "Use ps.json_lines({...}), ps.Delimited({...}), ps.Pattern(...) or ps.combined_log().",
        )
    if wrong:
        raise UserError(wrong[0], wrong[1], where=str(origin), hint=wrong[2])


def _one_zero(node: logical.Node, keys: Sequence[str], origin: Origin) -> logical.Node:
    """The rows with one spelling of zero in keys that are floats: 0.0 and -0.0 are one key."""
    floats = tuple(
        (key, pl.when(pl.col(key) == 0).then(0.0).otherwise(pl.col(key)).cast(node.schema[key]))
        for key in dict.fromkeys(keys)
        if node.schema[key].is_float()
    )
    return logical.Map(origin, node.schema, node, floats, False) if floats else node

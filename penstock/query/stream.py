"""The stream API: how a user writes a query in Python. Every call returns a new object and runs nothing.

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
from penstock.operators.distinct import Distinct
from penstock.operators.rebalance import Rebalance
from penstock.operators.routes import Partitioner
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.keyed import Keyed
from penstock.query.products import Products
from penstock.query.purity import check_repeatable
from penstock.query.rows import Order, require_stream, stateful
from penstock.query.top import TopRows
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

    `time` is the event-time column. A stream without one can be mapped and filtered, but has no operators over several
    events. `lateness` is the allowed lateness: an event may be that much older than the newest before it in its
    partition; older ones are late events. A partition silent for `idle_after` is idle and no longer holds back the
    watermark (None: it always does). An event dated more than `ahead` after the wall clock is a future event, which
    `late()` returns beside the late ones (None: every date is believed).
    """
    origin = here()
    _check_arguments(name, log, decoder, origin)
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
class Stream(Products, TopRows):
    """A stream of events, or the rows that another step emits."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.node.schema)

    def map(self, **columns: pl.Expr) -> Stream:
        """Add columns, or replace those of the same name."""
        return self._map(columns, only=False)

    def select(self, *names: str | pl.Expr | Sequence[str | pl.Expr], **columns: pl.Expr) -> Stream:
        """Keep these columns only, and add computed ones. An expression gets its name from Polars."""
        return self._map(check.named_expressions(names, here()) | columns, only=True)

    def filter(self, *predicates: pl.Expr) -> Stream:
        """Keep the events for which a condition, or all of several, holds."""
        origin = here()
        for predicate in predicates:
            check.condition(self.node.schema, predicate, origin, "the filter")
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
        """Call your own function on whole batches (Polars frames).

        It gets all columns and must return the same rows or some of them, in order, each with the columns of `schema`
        (the same as before, if not given). It must be pure: equal rows give equal results, wherever batches are cut. A
        function that seems to read the clock or random numbers is refused, unless you vouch for it with
        `deterministic=True`.
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
        """Call your own function on whole batches; it may make any number of rows of an event.

        Each row it returns must keep the columns whose names start with an underscore as they were in the event it
        comes from. Where order matters, rows of one event follow one another in the order returned. The function must
        be pure, and make the same rows of an event whatever else is in the batch (see `map_batches`).
        """
        origin = here()
        if not deterministic:
            check_repeatable(function, origin, vouched_by="deterministic=True")
        declared = dict(pl.Schema(schema))
        check.names_free(declared, origin)
        return Stream(logical.FlatMap(origin, declared, self.node, function))

    def explode(self, *columns: str | Sequence[str]) -> Stream:
        """Make a row for every value of a list column (of several: side by side, equally long), in their order.

        The other columns are repeated. An event with an empty list, or with none, gives no row.
        """
        origin = here()
        named = check.names(columns, origin, '.explode("words")')
        schema = check.exploded_schema(self.node.schema, named, origin)
        return Stream(logical.Explode(origin, schema, self.node, tuple(dict.fromkeys(named))))

    def distinct(
        self, *columns: str | Sequence[str], within: Duration | None = None, forever: bool = False
    ) -> Stream:
        """Drop events that are equal, in these columns (all, if none is named), to an earlier one.

        The first event of its kind passes. A later one is dropped while less than `within` of event time has passed
        since the last one that *passed*; dropped events do not extend this. Events are processed in strict order. With
        `forever`, one event of a kind ever passes, and state is never removed.
        """
        origin = here()
        schema = self.node.schema
        named = check.names(columns, origin, '.distinct("user", within="1h")')
        keys = tuple(dict.fromkeys(named or schema))
        check.keys_fit(keys, schema, origin)
        if forever == (within is not None):
            raise UserError(
                "WINDOW_UNBOUNDED" if not forever else "BAD_DISTINCT",
                "distinct needs to know how long an event is remembered"
                if not forever
                else "distinct within some time is not forever",
                where=str(origin),
                hint='Declare within="1h"; or forever=True, if the number of different events is bounded.',
            )
        span = None if within is None else microseconds(within)
        if span is not None and span < 1:
            raise UserError("BAD_WINDOW", "distinct needs a time", where=str(origin), hint='As in "1h".')
        return stateful(origin, schema, Distinct(keys, span, tuple(schema)), self.node)

    def demux(
        self, *, otherwise: str | None = "rest", every_match: bool = False, **predicates: pl.Expr
    ) -> dict[str, Stream]:
        """Split the stream by conditions into streams by name.

            parts = clicks.demux(bad=col("status") >= 500, slow=col("seconds") > 2)
            parts["bad"], parts["slow"], parts["rest"]

        An event goes to the first stream whose condition holds (with `every_match`, to every such one), and to the one
        named `otherwise` if none does (None: such events are dropped). A condition that is null does not hold.
        """
        origin = here()
        if not predicates:
            raise UserError(
                "BAD_DEMUX",
                "demux needs a condition",
                where=str(origin),
                hint='As in .demux(bad=col("status") >= 500).',
            )
        if otherwise in predicates:
            raise UserError(
                "NAME_TAKEN",
                f"two streams would be called {otherwise!r}",
                where=str(origin),
                hint='Give the stream of the rest another name, as in demux(..., otherwise="others").',
            )
        for name, predicate in predicates.items():
            check.condition(self.node.schema, predicate, origin, f"the part {name!r}")
        conditions: dict[str, pl.Expr] = {}
        no_match: pl.Expr | None = None
        for name, predicate in predicates.items():
            conditions[name] = predicate if every_match or no_match is None else predicate & no_match
            fails = ~predicate.fill_null(False)
            no_match = fails if no_match is None else no_match & fails
        if otherwise is not None and no_match is not None:
            conditions[otherwise] = no_match
        return {
            name: Stream(logical.Part(origin, self.node.schema, self.node, condition, name))
            for name, condition in conditions.items()
        }

    def union(self, *others: Stream) -> Stream:
        """Unite streams with the same columns."""
        origin = here()
        parts = (self.node, *(require_stream(other, origin, "a union").node for other in others))
        return Stream(
            logical.Union(origin, check.union_schema([part.schema for part in parts], origin), parts)
        )

    def late(self) -> Stream:
        """The late and future events of this stream, as a stream of their own. Only of a stream itself.

        For operators, a late event happens when it is noticed; its own columns stay as they are.
        """
        origin = here()
        if not isinstance(self.node, logical.Source):
            raise UserError(
                "LATE_OF_NO_STREAM",
                "only a stream itself has late events, not the rows computed from it",
                where=str(origin),
                hint="Call late() on what ps.stream(...) returned.",
            )
        return Stream(logical.Late(origin, self.node.schema, self.node))

    def rebalance(self) -> Stream:
        """Distribute the rows evenly: what follows, up to the next key, runs on all slices.

        For expensive steps after an operator whose rows are in few slices, or a log of few partitions.
        """
        return stateful(here(), self.node.schema, Rebalance(tuple(self.node.schema)), self.node)

    def key_by(
        self,
        *columns: str | Sequence[str],
        order: Order | None = None,
        partition: Partitioner | None = None,
    ) -> Keyed:
        """Partition the stream by these columns: what follows happens per value.

        `order` overrides the order in which custom operators and aggregates get their events: "strict" (by event
        time, partition and offset; events wait for the watermark), "epoch" (windows in order, inside an epoch any) or
        "none" (as they come, even for a custom operator that is not commutative, whose results may then depend on how
        they came). The other operators always use the order they need.

        `partition` assigns keys to slices, where hashing them is not good enough: `ps.by_range("user", ["f", "m"])` or
        `ps.by_function(function, parts)`. Results are the same.
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
        node = _normalize_zeros(self.node, keys, origin)
        if partition is not None:
            check.partition_fits(partition, keys, origin)
            node = logical.PartitionBy(origin, node.schema, node, partition)
        return Keyed(node, tuple(dict.fromkeys(keys)), order=order)

    def window(self, size: Duration, every: Duration | None = None, offset: Duration = 0) -> Windowed:
        """Windows of time over all events; see `Keyed.window`."""
        return Keyed(self.node, ()).window(size, every, offset)

    def running(self, every: Duration = "1s") -> Windowed:
        """Totals over all events so far, emitted at the end of every `every` of event time."""
        return Keyed(self.node, ()).running(every)

    def _map(self, columns: Mapping[str, pl.Expr], *, only: bool) -> Stream:
        origin = here()
        schema = check.mapped_schema(self.node.schema, columns, only, origin)
        return Stream(logical.Map(origin, schema, self.node, tuple(columns.items()), only))


@dataclass(frozen=True, eq=False)
class WithOutputs(Stream):
    """The main output of an operator; further outputs are its items, by name."""

    schemas: Mapping[str, logical.Schema]

    def __getitem__(self, name: str) -> Stream:
        origin = here()
        if name not in self.schemas or not name:
            others = ", ".join(repr(one) for one in self.schemas if one) or "none"
            raise UserError(
                "UNKNOWN_OUTPUT",
                f"there is no output {name!r}",
                where=str(origin),
                detail=f"the further outputs are {others}",
                hint="Declare it: .apply(operator, schema, outputs={'name': {...}}).",
            )
        return Stream(logical.Branch(origin, self.schemas[name], self.node, name))


def _check_arguments(name: object, log: object, decoder: object, origin: Origin) -> None:
    wrong: tuple[str, str, str] | None = None
    if not isinstance(name, str):
        wrong = "BAD_NAME", f"{name!r} cannot name a stream", 'As in ps.stream("clicks", ...).'
    elif not isinstance(log, Log):
        hint = f"Declare that these are files: ps.files({log!r})." if isinstance(log, str) else None
        wrong = "NOT_A_LOG", f"{log!r} is no log", hint or "Use ps.files(...) or ps.generated(...)."
    elif not isinstance(decoder, Decoder):
        hint = f"Call it: {decoder.__name__}(...)." if isinstance(decoder, type) else None
        wrong = (
            "NOT_A_DECODER",
            f"{decoder!r} cannot decode the bytes of {name!r}",
            hint or "Use ps.json_lines({...}), ps.Delimited({...}), ps.Pattern(...) or ps.combined_log().",
        )
    if wrong:
        raise UserError(wrong[0], wrong[1], where=str(origin), hint=wrong[2])


def _normalize_zeros(node: logical.Node, keys: Sequence[str], origin: Origin) -> logical.Node:
    """The rows with -0.0 replaced by 0.0 in keys that are floats, so that they are one key."""
    floats = tuple(
        (key, pl.when(pl.col(key) == 0).then(0.0).otherwise(pl.col(key)).cast(node.schema[key]))
        for key in dict.fromkeys(keys)
        if node.schema[key].is_float()
    )
    return logical.Map(origin, node.schema, node, floats, False) if floats else node

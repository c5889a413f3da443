"""The stream API: how a user says a query in Python. Every call returns something new and runs nothing.

Receives logs, decoders, expressions (Polars' own) and sinks; hands an `App`, the logical plan of all outputs.

    clicks = stream("clicks", files("logs/*.log"), combined_log(), time="time")
    top = clicks.key_by("path").window("30s").count().top(10)
    app = App("pages", output("top", top, jsonl("out/top")))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.decode.contract import Decoder
from penstock.logs.contract import Log
from penstock.operators import functions
from penstock.operators.aggregate import Aggregation
from penstock.operators.functions import AggregateFunction
from penstock.operators.last_n import LastN
from penstock.operators.top_k import TopK
from penstock.query import check, logical
from penstock.query.origin import here
from penstock.sinks.contract import Sink
from penstock.words.duration import Duration, microseconds
from penstock.words.errors import UserError


def stream(
    name: str,
    log: Log,
    decoder: Decoder,
    *,
    time: str,
    lateness: Duration = 0,
    idle_after: Duration | None = "5s",
) -> Stream:
    """A named stream of events.

    `time` is the event-time column. An event may be up to `lateness` older than the newest before it in
    its partition; what is older goes to the late output. A partition silent for `idle_after` no longer
    holds the others back (None: it always does).
    """
    origin = here()
    schema = dict(decoder.schema())
    check.names_free([*schema], origin)
    check.columns_exist([time], schema, origin, "the event time")
    if not isinstance(schema[time], pl.Datetime):
        raise UserError(
            "TYPE_MISMATCH",
            f"the event time {time!r} must be a Datetime, but it is {schema[time]}",
            where=str(origin),
            hint="Give the decoder the time's format, so that it reads the column as a Datetime.",
        )
    idle = None if idle_after is None else microseconds(idle_after)
    definition = logical.StreamDefinition(name, log, decoder, time, microseconds(lateness), idle)
    return Stream(logical.Source(origin, schema, definition))


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of events, or the rows another step puts out."""

    node: logical.Node

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.node.schema)

    def map(self, **columns: pl.Expr) -> Stream:
        """Add columns, or replace those of the same name."""
        return self._mapped(columns, only=False)

    def select(self, *names: str, **columns: pl.Expr) -> Stream:
        """Keep these columns only, and add computed ones."""
        return self._mapped({name: pl.col(name) for name in names} | columns, only=True)

    def filter(self, predicate: pl.Expr) -> Stream:
        """Keep the events for which a condition holds."""
        origin = here()
        check.filtered(self.node.schema, predicate, origin)
        return Stream(logical.Filter(origin, self.node.schema, self.node, predicate))

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
    ) -> Stream:
        """Run your own function on whole batches (Polars frames).

        It gets all columns and must return the same rows or some of them, in order, each with the columns
        of `schema` (as before when not given). It must be pure: the same batch, the same answer, wherever
        batches are cut.
        """
        origin = here()
        declared = self.node.schema if schema is None else pl.Schema(schema)
        check.names_free(declared, origin)
        return Stream(logical.MapBatches(origin, dict(declared), self.node, function))

    def union(self, *others: Stream) -> Stream:
        """Put streams with the same columns together."""
        origin = here()
        parts = (self.node, *(other.node for other in others))
        return Stream(logical.Union(origin, check.united([part.schema for part in parts], origin), parts))

    def key_by(self, *keys: str) -> Keyed:
        """What follows happens per value of these columns."""
        check.keys_fit(keys, self.node.schema, here())
        return Keyed(self.node, tuple(dict.fromkeys(keys)))

    def window(self, size: Duration) -> Windowed:
        """Over all events, in windows of time."""
        return Keyed(self.node, ()).window(size)

    def running(self, every: Duration = "1s") -> Windowed:
        """Over all events since the beginning, told at the end of every `every` of event time."""
        return Keyed(self.node, ()).running(every)

    def top(self, k: int, by: str | None = None, *, least: bool = False, changes_only: bool = True) -> Stream:
        """The k best rows of a window's, or of running, aggregates; `by` is the last column if not given.

        Ties go to the smaller key. With `changes_only` an answer is told only when it differs from the one before.
        """
        origin = here()
        aggregated = _aggregate_under(self.node)
        if aggregated is None:
            raise UserError(
                "TOP_WITHOUT_AGGREGATE",
                "top needs the rows of an aggregate",
                where=str(origin),
                hint='Aggregate first, as in .key_by("page").window("30s").count().top(10).',
            )
        if k < 1:
            raise UserError("BAD_TOP", f"top {k} has no rows", where=str(origin), hint="Ask for at least 1.")
        by = by or list(self.node.schema)[-1]
        check.columns_exist([by, *aggregated.keys], self.node.schema, origin, "top")
        check.names_differ(["rank", *self.node.schema], origin)
        made = TopK(k, by, aggregated.keys, aggregated.running, not least, changes_only)
        schema = made.schema(self.node.schema)
        return Stream(logical.Top(origin, schema, self.node, k, by, not least, changes_only))

    def _mapped(self, columns: Mapping[str, pl.Expr], *, only: bool) -> Stream:
        origin = here()
        schema = check.mapped(self.node.schema, columns, only, origin)
        return Stream(logical.Map(origin, schema, self.node, tuple(columns.items()), only))


@dataclass(frozen=True, eq=False)
class Keyed:
    """A stream taken per key."""

    node: logical.Node
    keys: tuple[str, ...]

    def last(self, n: int, *values: str, partial: bool = False) -> Stream:
        """For each event the last `n` values of these columns of its key, oldest first, as lists.

        A key's first n-1 events give no row, unless `partial`. Events are taken in strict order.
        """
        origin = here()
        check.columns_exist(values, self.node.schema, origin, "last")
        if n < 1 or not values:
            raise UserError(
                "BAD_LAST",
                "last needs a number of at least 1 and a column",
                where=str(origin),
                hint='As in .key_by("user").last(3, "page").',
            )
        values = tuple(dict.fromkeys(values))
        schema = LastN(self.keys, n, values, partial).schema(self.node.schema)
        return Stream(logical.Last(origin, schema, self.node, self.keys, n, values, partial))

    def window(self, size: Duration) -> Windowed:
        """In windows of event time, one after the other, aligned to the clock."""
        return self._windowed(size, running=False)

    def running(self, every: Duration = "1s") -> Windowed:
        """Since the beginning, told at the end of every `every` of event time in which the key had events."""
        return self._windowed(every, running=True)

    def _windowed(self, size: Duration, *, running: bool) -> Windowed:
        micros = microseconds(size)
        if micros < 1:
            raise UserError("BAD_WINDOW", "a window needs a length", where=str(here()), hint='As in "30s".')
        return Windowed(self.node, self.keys, micros, running)


@dataclass(frozen=True, eq=False)
class Windowed:
    """A keyed stream cut into windows; says what to compute in each."""

    node: logical.Node
    keys: tuple[str, ...]
    size: int
    running: bool

    def count(self, alias: str = "count") -> Stream:
        """How many events."""
        return self.aggregate(functions.count(alias))

    def sum(self, column: str, alias: str | None = None) -> Stream:
        """The sum of a column."""
        return self.aggregate(functions.sum_(column, alias))

    def aggregate(self, *aggregates: AggregateFunction) -> Stream:
        """Several aggregates at once, as in `.aggregate(count(), sum_("bytes"), median("bytes"))`."""
        origin = here()
        schema = self.node.schema
        check.columns_exist([a.column for a in aggregates if a.column], schema, origin, "the aggregate")
        check.names_free([a.alias for a in aggregates], origin)
        try:
            resolved = tuple(aggregate.resolved(schema) for aggregate in aggregates)
        except UserError as error:
            raise UserError(
                error.condition, error.primary, detail=error.detail, hint=error.hint, where=str(origin)
            ) from None
        when = ["as_of"] if self.running else ["window_start", "window_end"]
        check.names_differ([*when, *self.keys, *(a.alias for a in aggregates)], origin)
        columns = Aggregation(self.keys, self.size, resolved, self.running).schema(schema)
        return Stream(
            logical.Aggregated(origin, columns, self.node, self.keys, resolved, self.size, self.running)
        )


def output(name: str, rows: Stream, *sinks: Sink) -> logical.Output:
    """A named result and where it goes."""
    if not name.replace("_", "").replace("-", "").isalnum():
        raise UserError(
            "BAD_NAME",
            f"{name!r} cannot name an output",
            where=str(here()),
            hint="Use letters, digits, - and _.",
        )
    return logical.Output(name, rows.node, sinks, here())


def app(name: str, *outputs: logical.Output) -> logical.App:
    """Everything one engine runs."""
    names: Sequence[str] = [out.name for out in outputs]
    if not outputs or len(set(names)) < len(names):
        raise UserError(
            "BAD_APP",
            "an app needs at least one output, each with its own name",
            where=str(here()),
        )
    return logical.App(name, outputs)


def _aggregate_under(node: logical.Node) -> logical.Aggregated | None:
    while isinstance(node, logical.Map) or (isinstance(node, logical.Filter) and not _runs(node)):
        node = node.input
    return node if isinstance(node, logical.Aggregated) else None


def _runs(node: logical.Node) -> bool:
    """Whether rows here are running totals: a filter could not take back a row that top has seen."""
    while isinstance(node, logical.Step) and not isinstance(node, logical.Aggregated):
        node = node.input
    return isinstance(node, logical.Aggregated) and node.running

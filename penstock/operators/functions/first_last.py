"""Return the first, the last, or all values in the order of events: by event time, partition and offset.

Nulls and NaN count as values. A partial aggregate includes the position of its events, so the order in which partial
aggregates are merged does not matter. Events of one position (a stream united with itself) are ordered by their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import DERIVED, PARTITION, SEQUENCE, TIME
from penstock.operators.functions.columns import ColumnPiece, Numbers, build_lists, flatten_lists
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.ranges import reduce_ranges
from penstock.operators.strict import add_position


def add_sequence(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with `_partition` and `_sequence`. An operator's results have none; they come after a log's events."""
    if SEQUENCE in frame.columns:
        return frame
    if any(dtype.is_nested() for dtype in frame.dtypes):
        return add_position(frame)  # lists cannot be ordered by their values
    return frame.with_columns(
        pl.lit(DERIVED, pl.UInt32).alias(PARTITION), pl.lit(0, pl.Int64).alias(SEQUENCE)
    )


def _event(value: pl.Expr) -> pl.Expr:
    """A value with its event's position in the order."""
    return pl.struct(
        pl.col(TIME).cast(pl.Int64).alias("t"),
        pl.col(PARTITION).cast(pl.UInt32).alias("p"),
        pl.col(SEQUENCE).cast(pl.Int64).alias("s"),
        value.alias("v"),
    )


def _order_fields(given: pl.DataType) -> tuple[str, ...]:
    """The fields that order events."""
    comparable = not (given.is_nested() or isinstance(given, pl.Categorical | pl.Object))
    return ("t", "p", "s", "v") if comparable else ("t", "p", "s")


@dataclass(frozen=True)
class FirstOrLast(Piece):
    """One column with the first event, or with `last` the last: its value and position."""

    column: str
    value: pl.Expr
    order: tuple[str, ...]
    last: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    def from_event(self) -> list[pl.Expr]:
        return [_event(self.value).alias(self.column)]

    def from_events(self) -> list[pl.Expr]:
        return [
            self._pick(_event(self.value), [_event(self.value).struct.field(name) for name in self.order])
        ]

    def merge(self) -> list[pl.Expr]:
        event = pl.col(self.column)
        return [self._pick(event, [event.struct.field(name) for name in self.order])]

    def merge_columns(self, suffix: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(self.column).alias("a"), pl.col(self.column + suffix).alias("b"))

        def each(pairs: pl.Series) -> pl.Series:
            one, other = pairs.struct.field("a"), pairs.struct.field("b")
            events = pl.concat([one, other.alias(one.name)])
            ranks, rows = self._rank(events)
            mine, others = np.split(ranks, 2)
            others = np.where(other.is_null().to_numpy(), mine, others)
            return events.gather(rows[(np.maximum if self.last else np.minimum)(mine, others)])

        return [both.map_batches(each, is_elementwise=True).alias(self.column)]

    def merge_running(self, group: str) -> list[pl.Expr]:
        both = pl.struct(pl.col(group).alias("g"), pl.col(self.column).alias("e"))

        def whole(pairs: pl.Series) -> pl.Series:
            events = pairs.struct.field("e")
            ranks, rows = self._rank(events)
            rank = pl.col("r").cum_max() if self.last else pl.col("r").cum_min()
            best = pl.DataFrame({"g": pairs.struct.field("g"), "r": ranks}).select(rank.over("g"))
            return events.gather(rows[best.to_series().to_numpy()])

        return [both.map_batches(whole).alias(self.column)]

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> list[pl.Series]:
        ranks, at = self._rank(rows[self.column])
        chosen = reduce_ranges(np.maximum if self.last else np.minimum, ranks, low, high)
        return [rows[self.column].gather(at[chosen])]

    def _pick(self, event: pl.Expr, order: list[pl.Expr]) -> pl.Expr:
        ordered = event.sort_by(order)
        return (ordered.last() if self.last else ordered.first()).alias(self.column)

    def _rank(self, events: pl.Series) -> tuple[Numbers, Numbers]:
        """For each event its rank in the order, and for each rank the row of its event."""
        rows = events.struct.unnest().select(pl.arg_sort_by(self.order)).to_series().to_numpy()
        ranks = np.empty(len(rows), dtype=np.int64)
        ranks[rows] = np.arange(len(rows))
        return ranks, rows.astype(np.int64)


@dataclass(frozen=True)
class OrderedValues(ColumnPiece):
    """One column with all events in order: their values and positions."""

    value: pl.Expr
    of: pl.DataType

    @property
    def dtype(self) -> pl.DataType:
        return pl.List(pl.Struct({"t": pl.Int64, "p": pl.UInt32, "s": pl.Int64, "v": self.of}))

    def values(self) -> pl.Expr:
        return _event(self.value)

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        rows = values.struct.unnest()
        if not _is_ordered(number, rows):
            order = rows.with_columns(pl.Series("number", number)).select(
                pl.arg_sort_by("number", *_order_fields(self.of))
            )
            values, number = values.gather(order.to_series()), number[order.to_series().to_numpy()]
        return build_lists(values, number, count)

    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        values, row = flatten_lists(parts)
        return self.from_values(values, number[row], count)


def _is_ordered(number: Numbers, rows: pl.DataFrame) -> bool:
    """Whether events are in order and no two of them share a position."""
    after = np.zeros(max(len(number) - 1, 0), dtype=bool)
    equal = ~after
    for column in (number, *(rows[name].to_numpy() for name in ("t", "p", "s"))):
        after |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool(after.all())


@dataclass(frozen=True)
class _Sequential(AggregateFunction):
    """Shared by functions of the order of events."""

    @property
    def sequential(self) -> bool:
        return True

    def _value(self) -> pl.Expr:
        assert self.column is not None
        return pl.col(self.column)


@dataclass(frozen=True)
class First(_Sequential):
    """The value of the first event, null if that is null."""

    kind: ClassVar[str] = "first"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return given

    def pieces(self) -> tuple[Piece, ...]:
        return (FirstOrLast(self.part("e"), self._value(), _order_fields(self.column_type), last=False),)

    def result(self) -> pl.Expr:
        return pl.col(self.part("e")).struct.field("v").alias(self.alias)


@dataclass(frozen=True)
class Last(First):
    """The value of the last event, null if that is null."""

    kind: ClassVar[str] = "last"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (FirstOrLast(self.part("e"), self._value(), _order_fields(self.column_type), last=True),)


@dataclass(frozen=True)
class Collect(_Sequential):
    """A list of the values of all events, nulls too, in the order of events."""

    kind: ClassVar[str] = "collect"
    state_version: ClassVar[int] = 1

    @property
    def grows(self) -> bool:
        return True

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if given in (pl.Int128, pl.UInt128, pl.Object, pl.Null):
            raise self.type_error("values that state can store", given, "pl.String")
        return pl.List(given)

    def pieces(self) -> tuple[Piece, ...]:
        if isinstance(self.column_type, pl.Categorical | pl.Enum):
            return (OrderedValues(self.part("e"), self._value().cast(pl.String), pl.String()),)
        return (OrderedValues(self.part("e"), self._value(), self.column_type),)

    def result(self) -> pl.Expr:
        values = pl.col(self.part("e")).list.eval(pl.element().struct.field("v"))
        return values.cast(pl.List(self.column_type)).alias(self.alias)


def first(column: str, alias: str | None = None) -> AggregateFunction:
    """The value of the first event."""
    return First(alias or f"first_{column}", column)


def last(column: str, alias: str | None = None) -> AggregateFunction:
    """The value of the last event."""
    return Last(alias or f"last_{column}", column)


def collect(column: str, alias: str | None = None) -> AggregateFunction:
    """All values, in the order of events."""
    return Collect(alias or f"collect_{column}", column)

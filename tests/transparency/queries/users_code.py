"""The user code of these queries: functions and custom operators that the descriptions name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

import penstock as ps
from tests.transparency.queries.columns import SECOND


def make_copies(column: str, number: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def copy_rows(frame: pl.DataFrame) -> pl.DataFrame:
        times = frame[column].fill_null(0) % 3
        return pl.concat([frame.filter(times >= n).with_columns(pl.lit(n).alias(number)) for n in (1, 2)])

    return copy_rows


#: a custom aggregate; modulo a number, so that it cannot overflow
SQUARES = ps.aggregate_function(
    "squares",
    add=lambda values: sum(value * value for value in values.to_list()) % 1_000_003,
    merge=lambda one, other: (one + other) % 1_000_003,
    result=lambda state: state,
    dtype=pl.Int64,
)


def make_fold(key: str, value: str) -> Callable[..., Any]:
    def fold_row(before: Any, row: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> Any:
        emit({"key": row[key], "value": row[value], "before": before})
        if row[value] is not None and row[value] > 2:
            emit({"key": row[key], "value": row[value], "before": None})
        return row[value]

    return fold_row


class Previous(ps.CustomOperator):
    """Each value with the key's previous one."""

    def __init__(self, key: str, value: str) -> None:
        self.key, self.value = key, value

    def init_state(self) -> dict[Any, Any]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        before = []
        for key, value in zip(batch[self.key], batch[self.value], strict=True):
            before.append(state.get(key))
            state[key] = value
        made = batch.select("_time", key=self.key, value=self.value)
        out.emit(made.with_columns(pl.Series("before", before, dtype=batch.schema[self.value])))


class TickCounter(ps.CustomOperator):
    """The number of rows of each key since the last tick."""

    commutative = True

    def __init__(self, key: str, every: int) -> None:
        self.key, self.every = key, every / SECOND

    def init_state(self) -> dict[Any, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for key in batch[self.key]:
            state[key] = state.get(key, 0) + 1

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> Any:
        out.emit([{"key": key, "count": count} for key, count in state.items()])
        return {}


class MergingTickCounter(TickCounter):
    """The same, with states that can be merged."""

    def merge(self, one: Any, other: Any) -> Any:
        return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}

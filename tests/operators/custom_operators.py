"""Operators and row functions as a user would write them, and a history to try them on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

import penstock as ps
from penstock import col
from tests.operators.harness import SECOND, Cutting, Event, History, Row

HISTORY = History(
    (tuple(Event(0, i, (1_000 + i // 3) * SECOND, f"u{i % 3}", "/", i, 0.5) for i in range(12)),)
)
PIECES = Cutting((frozenset(range(12)),), (1, 2, 3))


class Previous(ps.CustomOperator):
    """For every event the user's value before it."""

    def init_state(self) -> dict[Any, Any]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        before = []
        for user, n in batch.select("user", "n").iter_rows():
            before.append(state.get(user))
            state[user] = n
        assert context.keys == ("user",)
        assert context.watermark is None
        out.emit(batch.select("_time", "user", "n", pl.Series("before", before, dtype=pl.Int64)))
        out.emit(batch.filter(col("n") > 3), to="great")


WITH_BEFORE = {"user": pl.String, "n": pl.Int64, "before": pl.Int64}


# -- with ticks ----------------------------------------------------------------------------------


class Silent(ps.CustomOperator):
    """Emits users without events for a while, at the next tick."""

    every = "2s"

    def __init__(self, patience: int, asks: str) -> None:
        self.patience = patience
        self.asks = asks

    def init_state(self) -> dict[Any, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for user, time in batch.select("user", "_time").iter_rows():
            assert context.watermark is not None
            assert context.watermark <= time < context.watermark + 2 * SECOND
            state[user] = time

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> None:
        assert context.watermark is not None
        gone = [user for user, time in state.items() if context.watermark - time >= self.patience]
        out.emit([{"user": user, "noticed": context.time} for user in gone])
        for user in gone:
            del state[user]

    def wants_ticks(self, state: Any) -> Any:
        if not state or self.asks == "whether":
            return bool(state)
        instant = min(state.values()) + self.patience
        return instant if self.asks == "when" else datetime.fromtimestamp(instant / SECOND, UTC)


class Totals(ps.CustomOperator):
    """Counts and sums per user, emitted at every tick after which the user had events; never forgotten."""

    commutative = True
    every = "2s"

    def init_state(self) -> dict[Any, list[int]]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for user, n in batch.select("user", "n").iter_rows():
            total = state.setdefault(user, [0, 0, True])
            total[0], total[1], total[2] = total[0] + 1, total[1] + (n or 0), True

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> None:
        changed = {user: total for user, total in state.items() if total[2]}
        out.emit(
            [{"at": context.watermark, "user": u, "count": c, "sum": s} for u, (c, s, _) in changed.items()]
        )
        for total in changed.values():
            total[2] = False


class MergedTotals(Totals):
    def merge(self, one: Any, other: Any) -> Any:
        for user, (count, sum_, _) in other.items():
            total = one.setdefault(user, [0, 0, True])
            total[0], total[1], total[2] = total[0] + count, total[1] + sum_, True
        return one


TOTALS = {"at": pl.Int64, "user": pl.String, "count": pl.Int64, "sum": pl.Int64}


# -- with states of all kinds --------------------------------------------------------------------


class SumState(ps.CustomOperator):
    """The sum so far, in a state of some kind."""

    def init_state(self) -> Any:
        return 0

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        sums = self.number(state) + batch["n"].cum_sum()
        out.emit(batch.select("_time", sums.alias("sum")))
        return self.of(int(sums[-1]))

    def number(self, state: Any) -> int:
        return int(state)

    def of(self, number: int) -> Any:
        return number


class SumInFrame(SumState):
    def init_state(self) -> Any:
        return self.of(0)

    def number(self, state: Any) -> int:
        return int(state["sum"].item())

    def of(self, number: int) -> Any:
        return pl.DataFrame({"sum": [number]})


class SumInArray(SumInFrame):
    def number(self, state: Any) -> int:
        return int(state[1])

    def of(self, number: int) -> Any:
        return np.array([0, number])


class Own:
    def __init__(self, number: int) -> None:
        self.sum = number


class SumInObject(SumInFrame):
    def number(self, state: Any) -> int:
        return int(state.sum)

    def of(self, number: int) -> Any:
        return Own(number)


class SumInObjectAsBytes(SumInObject):
    def serialize(self, state: Any) -> bytes:
        return str(state.sum).encode()

    def deserialize(self, data: bytes) -> Any:
        return Own(int(data))


# -- row by row ----------------------------------------------------------------------------------


def rises(state: Any, row: dict[str, Any], emit: Callable[[Row], None]) -> Any:
    """Emits every rise twice; the state is a pair, to see that it stays one."""
    last, count = state
    assert isinstance(state, tuple)
    if row["n"] is None:
        return state
    if last is not None and row["n"] > last:
        out = {"user": row["user"], "n": row["n"], "turn": 1, "count": count}
        emit(out)
        out["turn"] = 2
        emit(out)
    return row["n"], count + 1


RISES = {"user": pl.String, "n": pl.Int64, "turn": pl.Int64, "count": pl.Int64}

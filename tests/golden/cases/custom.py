"""Operators and aggregate functions of the user's own."""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

import penstock as ps
from penstock import col
from tests.golden.given import Given

SECOND = 1_000_000


class Previous(ps.CustomOperator):
    """For every event the user's value before it; great ones by another output. No clock."""

    def init_state(self) -> dict[Any, Any]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        before = []
        for user, n in batch.select("user", "n").iter_rows():
            before.append(state.get(user))
            state[user] = n
        out.emit(batch.select("_time", "user", "n", pl.Series("before", before, dtype=pl.Int64)))
        out.emit(batch.filter(col("n") > 3), to="great")


class Silent(ps.CustomOperator):
    """Reports users of whom nothing has been heard for a while, at the next tick."""

    every = "2s"

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def init_state(self) -> dict[Any, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for user, time in batch.select("user", "_time").iter_rows():
            state[user] = time

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> None:
        assert context.watermark is not None
        gone = [user for user, time in state.items() if context.watermark - time >= self.patience]
        out.emit([{"user": user, "noticed": context.time} for user in gone])
        for user in gone:
            del state[user]

    def wants_ticks(self, state: Any) -> Any:
        return min(state.values()) + self.patience if state else False


class Totals(ps.CustomOperator):
    """Counts and sums per user, at every tick after which the user had events; never forgotten."""

    commutative = True
    every = "4s"

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
    """The same, whose states of an epoch are added up."""

    def merge(self, one: Any, other: Any) -> Any:
        for user, (count, sum_, _) in other.items():
            total = one.setdefault(user, [0, 0, True])
            total[0], total[1], total[2] = total[0] + count, total[1] + sum_, True
        return one


class Everything(ps.CustomOperator):
    """A state of every kind that needs no format of the user's own."""

    def __init__(self, most: int) -> None:
        self.most = most

    def init_state(self) -> dict[str, Any]:
        return {
            "none": None,
            "pages": set(),
            "last": deque(maxlen=self.most),
            "pair": (True, b"bytes"),
            "latest": datetime(2026, 1, 1, tzinfo=UTC),
            "gone_by": timedelta(0),
            "sum": Decimal("0.00"),
            "by_user": {},
            "counts": np.zeros(4, np.int64),
            "frame": pl.DataFrame(schema={"user": pl.String, "n": pl.Int64}),
        }

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        told = []
        for time, user, page, n in batch.select("_time", "user", "page", "n").iter_rows():
            at = datetime.fromtimestamp(time / SECOND, UTC)
            state["pages"].add(page)
            state["last"].append(n)
            state["gone_by"] += max(at - state["latest"], timedelta(0))
            state["latest"] = max(state["latest"], at)
            state["sum"] += Decimal(n or 0) / 100
            state["by_user"][user] = state["by_user"].get(user, 0) + 1
            state["counts"][(n or 0) % 4] += 1
            told.append(
                {
                    "_time": time,
                    "user": user,
                    "seen": state["by_user"][user],
                    "told": state["frame"].filter(pl.col("user").eq_missing(user)).height,
                    "pair": state["pair"] == (True, b"bytes") and state["none"] is None,
                }
            )
            state["frame"] = state["frame"].vstack(
                pl.DataFrame({"user": [user], "n": [n]}, schema={"user": pl.String, "n": pl.Int64})
            )
        out.emit(told)
        return state


class OwnFormat(ps.CustomOperator):
    """A sum per user in bytes of the user's own."""

    def init_state(self) -> dict[str, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        told = []
        for time, user, n in batch.select("_time", "user", "n").iter_rows():
            state[user or ""] = state.get(user or "", 0) + (n or 0)
            told.append({"_time": time, "user": user, "sum": state[user or ""]})
        out.emit(told)

    def serialize(self, state: Any) -> bytes:
        return b"mine:" + json.dumps(state, sort_keys=True).encode()

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data.removeprefix(b"mine:"))


TOTALS = {"at": ps.Int64(), "user": ps.String(), "count": ps.Int64(), "sum": ps.Int64()}


def custom_operators(given: Given) -> ps.App:
    """Classes of the user's own: with a clock and without, in any order, with merged states."""
    events = given.stream("events")
    users = events.key_by("user")
    with_before = {"user": ps.String(), "n": ps.Int64(), "before": ps.Int64()}
    previous = users.apply(Previous(), with_before, outputs={"great": {"user": ps.String(), "n": ps.Int64()}})
    every_kind = {"user": ps.String(), "seen": ps.Int64(), "told": ps.Int64(), "pair": ps.Boolean()}
    silent = {"user": ps.String(), "noticed": ps.Datetime("us", "UTC")}
    rows = {
        "previous": previous,
        "great": previous["great"],
        "silent": users.apply(Silent(5 * SECOND), silent, columns=["n"]),
        "totals": users.apply(Totals(), TOTALS),
        "merged_totals": users.apply(MergedTotals(), TOTALS),
        "strict_totals": events.key_by("user", order="strict").apply(MergedTotals(), TOTALS),
        "every_kind": users.apply(Everything(3), every_kind),
        "own_format": users.apply(OwnFormat(), {"user": ps.String(), "sum": ps.Int64()}),
    }
    return ps.app("custom-operators", *(given.output(name, one) for name, one in rows.items()))


# -- aggregate functions -------------------------------------------------------------------------


def _extent(values: pl.Series) -> list[int]:
    return [int(values.min()), int(values.max())]  # type: ignore[arg-type]


def _wider(one: Any, other: Any) -> list[int]:
    return [min(one[0], other[0]), max(one[1], other[1])]


def _length(state: Any) -> int:
    return int(state[1] - state[0])


def _squares(values: pl.Series) -> int:
    return int((values * values).sum())


def _plus(one: Any, other: Any) -> int:
    return int(one) + int(other)


def _minus(whole: Any, part: Any) -> int:
    return int(whole) - int(part)


def _number(state: Any) -> int:
    return int(state)


def _letters(values: pl.Series) -> str:
    return "".join(sorted(set("".join(values.to_list()))))


def _all_letters(one: Any, other: Any) -> str:
    return "".join(sorted({*one, *other}))


def _written(state: Any) -> bytes:
    return bytes(state, "utf-8")


def _read(data: bytes) -> str:
    return data.decode()


extent = ps.aggregate_function("extent", add=_extent, merge=_wider, result=_length, dtype=ps.Int64())
squares = ps.aggregate_function(
    "squares", add=_squares, merge=_plus, result=_number, subtract=_minus, dtype=ps.Int64()
)
letters = ps.aggregate_function(
    "letters",
    add=_letters,
    merge=_all_letters,
    result=str,
    dtype=ps.String(),
    serialize=_written,
    deserialize=_read,
)


def user_aggregates(given: Given) -> ps.App:
    """Aggregate functions of the user's own, in every kind of window."""
    users = given.stream("events").key_by("user")
    mine = extent("n", "extent"), squares("n", "squares"), letters("page", "letters")
    rows = {
        "tumbling": users.window("20s").aggregate(*mine),
        "sliding": users.window("60s", every="4s").aggregate(*mine),
        "running": users.running("9s").aggregate(*mine),
        "session": users.session("3s").aggregate(*mine),
        "periodic": users.window("30s").emit(every="10s").aggregate(*mine),
        "on_change": users.window("20s").emit("change").aggregate(*mine),
        "counted": users.count_window(6, 3).aggregate(*mine),
    }
    return ps.app("user-aggregates", *(given.output(name, one) for name, one in rows.items()))

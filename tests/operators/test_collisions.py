"""Keys that share a 64-bit hash: operators driven slice by slice with hashes made equal by hand."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import (
    FOREVER,
    NEVER,
    PARTITION,
    SEQUENCE,
    TIME,
    Operator,
    Progress,
    SliceState,
)
from penstock.operators.count_windows import CountWindows
from penstock.operators.landmark_windows import CLOSES, OPENS, LandmarkWindows
from penstock.operators.last_n import LastN
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import TimeWindow
from penstock.state.buckets import HASH
from penstock.state.collection import Scope
from penstock.state.manifest import Manifest
from penstock.state.run_store import RunStore

#: (time, user, n): users take turns, so that rows of equal hash are mixed
EVENTS = [(at, ("ada", "bob", None)[at * at % 3], at) for at in range(40)]


def driven(operator: Operator, folder: Path, cut: int, *columns: pl.Expr) -> list[dict[str, object]]:
    """The operator's rows when every `cut` events are an epoch and every key has the same hash."""
    manifest, rows, before = Manifest(), [], NEVER
    starts = list(range(0, len(EVENTS), cut))
    for epoch, start in enumerate(starts):
        frame = pl.DataFrame(EVENTS[start : start + cut], schema=[TIME, "user", "n"], orient="row")
        order = [pl.lit(0, pl.UInt32).alias(PARTITION), pl.col(TIME).alias(SEQUENCE)]
        sent = operator.prepare(frame.with_columns(*order, *columns)).with_columns(
            pl.lit(7, pl.UInt64).alias(HASH)
        )
        state = SliceState(
            "op", manifest.collections.get("op", {}), Scope(RunStore(folder, None), epoch, frozenset({0}), 1)
        )
        after = FOREVER if start == starts[-1] else start + cut - 3
        made = operator.process(sent, state, Progress(before, after))
        rows += [] if made is None else made.sort(TIME).to_dicts()
        manifest = manifest.advance(epoch, [("op", name, c) for name, c in state.changes().items()])
        before = after
    if isinstance(operator, Aggregation | SlidingAggregation | PeriodicAggregation | OnChangeAggregation):
        held = manifest.collections.get("op", {})
        assert not any(held.values()), "once every window has closed nothing is left"
    return rows


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_last_n_keeps_keys_of_one_hash_apart(cut: int, tmp_path: Path) -> None:
    seen: dict[str | None, list[int]] = defaultdict(list)
    expected = []
    for _, user, n in EVENTS:
        seen[user].append(n)
        if len(seen[user]) > 2:
            expected.append((user, seen[user][-3:]))
    rows = driven(LastN(("user",), 3, ("n",)), tmp_path, cut)
    assert sorted([(row["user"], row["n"]) for row in rows], key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("running", [False, True])
def test_aggregates_keep_keys_of_one_hash_apart(cut: int, running: bool, tmp_path: Path) -> None:
    expected = []
    for pane in range(8):
        for user in ("ada", "bob", None):
            now = [n for at, who, n in EVENTS if who == user and at // 5 == pane]
            ever = [n for at, who, n in EVENTS if who == user and at // 5 <= pane]
            if now:
                expected.append(((pane + 1) * 5 - 1, user, sum(ever if running else now)))
    made = RunningAggregation if running else Aggregation
    rows = driven(made(("user",), TimeWindow(5, 5), (ps.sum_("n", "sum"),)), tmp_path, cut)
    assert sorted([(row[TIME], row["user"], row["sum"]) for row in rows], key=str) == sorted(
        expected, key=str
    )


def per_user() -> dict[str | None, list[int]]:
    """The times of every user's events, which are their values too."""
    return {user: [n for _, who, n in EVENTS if who == user] for user in ("ada", "bob", None)}


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_count_windows_keep_keys_of_one_hash_apart(cut: int, tmp_path: Path) -> None:
    operator = CountWindows(("user",), (ps.sum_("n", "sum"),), 4, 3, partial=True)
    expected = [
        (user, sum(events[at : at + 4]))
        for user, events in per_user().items()
        for at in range(0, len(events), 3)
    ]
    rows = driven(operator, tmp_path, cut)
    assert sorted([(row["user"], row["sum"]) for row in rows], key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_sessions_keep_keys_of_one_hash_apart(cut: int, tmp_path: Path) -> None:
    expected = []
    for user, events in per_user().items():
        start = 0
        for at in range(len(events)):
            if at + 1 == len(events) or events[at + 1] - events[at] >= 3:
                expected.append((events[at] + 2, user, sum(events[start : at + 1])))
                start = at + 1
    rows = driven(SessionWindows(("user",), (ps.sum_("n", "sum"),), 3), tmp_path, cut)
    assert sorted([(row[TIME], row["user"], row["sum"]) for row in rows], key=str) == sorted(
        expected, key=str
    )


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_landmark_windows_keep_keys_of_one_hash_apart(cut: int, tmp_path: Path) -> None:
    expected = []
    for user, events in per_user().items():
        held: list[int] = []
        for n in events:
            if held or n % 2 == 0:
                held.append(n)
            if held and n % 5 == 0:
                expected.append((n, user, sum(held)))
                held = []
    marks = ((pl.col("n") % 2 == 0).alias(OPENS), (pl.col("n") % 5 == 0).alias(CLOSES))
    rows = driven(LandmarkWindows(("user",), (ps.sum_("n", "sum"),)), tmp_path, cut, *marks)
    assert sorted([(row[TIME], row["user"], row["sum"]) for row in rows], key=str) == sorted(
        expected, key=str
    )


def sums(of: dict[tuple[str | None, int], list[int]], size: int) -> list[tuple[object, ...]]:
    return [(start + size - 1, user, sum(values)) for (user, start), values in of.items()]


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("size", [4, 8])
def test_overlapping_windows_keep_keys_of_one_hash_apart(cut: int, size: int, tmp_path: Path) -> None:
    windows: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for at, user, n in EVENTS:
        for start in range(at - size + 1, at + 1):
            windows[user, start].append(n)
    rows = driven(SlidingAggregation(("user",), TimeWindow(size, 1), (ps.sum_("n", "sum"),)), tmp_path, cut)
    assert sorted([(row[TIME], row["user"], row["sum"]) for row in rows], key=str) == sorted(
        sums(windows, size), key=str
    )


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("every", [1, None])
def test_answers_before_the_end_keep_keys_of_one_hash_apart(
    cut: int, every: int | None, tmp_path: Path
) -> None:
    so_far: dict[tuple[str | None, int], int] = defaultdict(int)
    expected = []
    for at, user, n in EVENTS:
        for start in ((at // 4) * 4, (at // 4) * 4 - 4):
            so_far[user, start] += n
            expected.append((at, user, so_far[user, start]))
    window, functions = TimeWindow(8, 4), (ps.sum_("n", "sum"), ps.count())
    operator = (
        OnChangeAggregation(("user",), window, functions)
        if every is None
        else PeriodicAggregation(("user",), window, functions, every)
    )
    rows = driven(operator, tmp_path, cut)
    assert sorted([(row[TIME], row["user"], row["sum"]) for row in rows], key=str) == sorted(
        expected, key=str
    )

"""Joins driven slice by slice with hashes made equal by hand.

Keys that share a 64-bit hash are distinguished, and every row has a time at which its readers still accept it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from penstock import col
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
from penstock.operators.count_join import CountJoin
from penstock.operators.interval_join import IntervalJoin
from penstock.operators.join_columns import JoinColumns, JoinCondition
from penstock.operators.lookup import Lookup
from penstock.state.buckets import HASH
from penstock.state.collection import Scope
from penstock.state.manifest import Manifest
from penstock.state.run_store import RunStore
from tests.operators.harness import fast_directory

Event = tuple[int, str | None, int]

USERS = ("ada", "bob", None)
#: (time, user, n); users take turns, so that rows of equal hash are mixed
LEFT: list[Event] = [(at, USERS[at * at % 3], at) for at in range(40)]
RIGHT: list[Event] = [(at - at % 4, USERS[at % 3], 100 + at) for at in range(40)]
TYPES = {"user": pl.String(), "n": pl.Int64()}
COLUMNS = JoinColumns.of(TYPES, TYPES, ("user",), ("user",), "_right")


def driven(operator: Operator, cut: int) -> list[tuple[str | None, int | None, int | None]]:
    """The rows when every `cut` events are an epoch and every key has the same hash."""
    with fast_directory() as folder:
        return _driven(operator, Path(folder), cut)


def _driven(operator: Operator, folder: Path, cut: int) -> list[tuple[str | None, int | None, int | None]]:
    manifest, found, before = Manifest(), [], NEVER
    starts = list(range(0, len(LEFT), cut))
    for epoch, start in enumerate(starts):
        inputs = []
        for port, side in enumerate((LEFT, RIGHT)[: operator.ports]):
            frame = pl.DataFrame(side[start : start + cut], schema={TIME: pl.Int64} | TYPES, orient="row")
            place = [pl.lit(port, pl.UInt32).alias(PARTITION), pl.col("n").alias(SEQUENCE)]
            sent = operator.prepare(frame.with_columns(place), port)
            inputs.append(sent.with_columns(pl.lit(7, pl.UInt64).alias(HASH)))
        scope = Scope(RunStore(folder, None), epoch, frozenset({0}), 1)
        state = SliceState("op", manifest.collections.get("op", {}), scope)
        # an event is up to 3 behind the newest
        after = FOREVER if start == starts[-1] else max(before, start + cut - 4)
        made = operator.run(inputs, state, Progress(before, after)).get("")
        if made is not None:
            assert made[TIME].is_between(before, FOREVER, closed="left").all()
            alone = made.filter(pl.col("n_right").is_null() | pl.col("n").is_null())
            assert alone[TIME].is_between(before, after, closed="left").all()
            found += made.select("user", "n", "n_right").rows()
        manifest = manifest.advance(epoch, [("op", name, c) for name, c in state.changes().items()])
        before = after
    assert not [
        name
        for name in manifest.collections.get("op", {})
        if name.startswith("waiting") and manifest.entries("op", name)
    ]
    return sorted(found, key=str)


def time_join(
    before: int, after: int, how: str, where: Callable[[int, int], bool]
) -> list[tuple[str | None, int | None, int | None]]:
    pairs = [
        (user, n, m)
        for t, user, n in LEFT
        for u, other, m in RIGHT
        if user is not None and user == other and -before <= u - t <= after and where(n, m)
    ]
    found: list[tuple[str | None, int | None, int | None]] = [*pairs]
    if how in ("left", "full"):
        found += [(user, n, None) for _, user, n in LEFT if n not in [mine for _, mine, _ in pairs]]
    if how in ("right", "full"):
        found += [(user, None, m) for _, user, m in RIGHT if m not in [theirs for *_, theirs in pairs]]
    return sorted(found, key=str)


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("strict", [False, True])
def test_time_joins_keep_keys_of_one_hash_apart(how: str, cut: int, strict: bool) -> None:
    where = JoinCondition.of((col("n") + col("n_right")) % 3 == 0)
    join = IntervalJoin(("user",), ("user",), COLUMNS, 1, 4, where, how, strict)
    assert driven(join, cut) == time_join(1, 4, how, lambda n, m: (n + m) % 3 == 0)


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_distinct_pairs_keep_keys_of_one_hash_apart(cut: int) -> None:
    join = IntervalJoin(("user",), ("user",), COLUMNS, 0, 9, distinct=True, ports=1)
    expected = [
        (user, n, m)
        for t, user, n in LEFT
        for u, other, m in LEFT
        if user is not None and user == other and n < m and u - t <= 9
    ]
    assert driven(join, cut) == sorted(expected, key=str)


@pytest.mark.parametrize("cut", [1, 4, 40])
def test_count_joins_keep_keys_of_one_hash_apart(cut: int) -> None:
    join = CountJoin(("user",), ("user",), COLUMNS, 2, ports=1, distinct=True)
    expected = []
    for user in ("ada", "bob"):
        mine = [n for _, who, n in LEFT if who == user]
        expected += [(user, n, m) for at, m in enumerate(mine) for n in mine[max(0, at - 2) : at]]
    assert driven(join, cut) == sorted(expected, key=str)


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_lookups_keep_keys_of_one_hash_apart(how: str, cut: int) -> None:
    expected = []
    for t, user, n in LEFT:
        rows = [m for u, other, m in RIGHT if user is not None and other == user and u <= t]
        if rows or how == "left":
            expected.append((user, n, rows[-1] if rows else None))
    found = driven(Lookup(("user",), ("user",), COLUMNS, how), cut)
    assert found == sorted(expected, key=str)

"""Distinct against a dictionary of what was emitted last, for any history, cutting and number of slices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.operators.contract import TIME
from penstock.operators.distinct import Distinct
from penstock.operators.strict import Ordered
from penstock.operators.timeline import Timeline, mark_chain
from penstock.testing.inline import run_inline
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    modestly,
    run_query,
)
from tests.operators.test_collisions import EVENTS, driven


def oracle(history: History, columns: Sequence[str], within: int | None) -> list[Row]:
    emitted: dict[Any, int] = {}
    rows = []
    for event in history.on_time():
        key = tuple(getattr(event, column) for column in columns)
        if key not in emitted or (within is not None and event.time - emitted[key] >= within):
            emitted[key] = event.time
            rows.append({"user": event.user, "page": event.page, "n": event.n, "x": event.x})
    return rows


@pytest.mark.slow
@modestly
@given(
    histories(),
    cuttings(),
    st.sampled_from([("user",), ("page",), ("user", "page"), ("n", "x")]),
    st.sampled_from([1, 250_000, SECOND, 3 * SECOND, 3 * SECOND + 1, 10 * SECOND, None]),
)
def test_an_event_is_emitted_if_none_was_just_before(
    history: History, cutting: Cutting, columns: tuple[str, ...], within: int | None
) -> None:
    bound: dict[str, Any] = {"forever": True} if within is None else {"within": within / SECOND}
    rows = run_query(
        lambda events: events.distinct(*columns, **bound).select("user", "page", "n", "x"), history, cutting
    )
    assert rows == oracle(history, columns, within)


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_answers_can_be_distinct_too(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        counts = events.key_by("user", "page").window("2s").count("n").select("user", "n")
        return counts.distinct(within="5s")

    straight = run_query(query, history)
    assert in_any_order(run_query(query, history, cutting)) == in_any_order(straight)


@pytest.mark.parametrize("cut", [1, 4, 40])
@pytest.mark.parametrize("within", [7, None])
def test_keys_of_one_hash_stay_apart(cut: int, within: int | None, tmp_path: Path) -> None:
    emitted: dict[str | None, int] = {}
    expected = []
    for at, user, n in EVENTS:
        if user not in emitted or (within is not None and at - emitted[user] >= within):
            emitted[user] = at
            expected.append((at, user, n))
    rows = driven(Distinct(("user",), within, ("user", "n")), tmp_path, cut)
    assert [(row[TIME], row["user"], row["n"]) for row in rows] == expected


@pytest.mark.slow
def test_what_holds_nothing_back_any_more_is_forgotten(tmp_path: Path) -> None:
    history = History((tuple(Event(0, i, i * SECOND, f"u{i}", None, i, None) for i in range(200)),))
    cutting = Cutting((frozenset(range(200)),), (1,))
    app = ps.app("d", ps.output("out", events_stream(history, cutting).distinct("user", within="5s")))
    run_inline(app, tmp_path, slices=1, buckets=1, epochs=190)
    from penstock.state.directory import StateDirectory

    runs = StateDirectory(tmp_path).manifests.latest().collections["1-deduplicate"]["kept"]
    assert sum(run.rows for run in runs) < 40


def ordered(keys: list[int]) -> Ordered:
    number = np.array(keys)
    return Ordered(pl.DataFrame({"k": number}), np.append(True, number[1:] != number[:-1]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), min_size=1), st.sampled_from([1, 2**57]))
def test_a_row_is_found_by_key_and_time(pairs: list[tuple[int, int]], scale: int) -> None:
    numbered = {key: at for at, key in enumerate(sorted({key for key, _ in pairs}))}
    rows = sorted((numbered[key], time * scale) for key, time in pairs)
    line = Timeline(ordered([key for key, _ in rows]), np.array([time for _, time in rows]))
    searched = [
        (key, time * scale + more)
        for key in numbered.values()
        for time in (-21, -3, 0, 7, 21)
        for more in (0, 1)
    ]
    found = line.first_from(np.array([key for key, _ in searched]), np.array([time for _, time in searched]))
    for (key, time), row in zip(searched, found.tolist(), strict=True):
        assert row == sum(one < (key, time) for one in rows)


@given(st.lists(st.integers(1, 9), max_size=60), st.lists(st.integers(0, 59), max_size=4))
def test_chains_are_followed_to_their_ends(steps: list[int], starts: list[int]) -> None:
    rows = len(steps)
    following = [min(at + step, rows) for at, step in enumerate(steps)]
    starts = [start for start in starts if start < rows]
    expected = set()
    for start in starts:
        while start < rows:
            expected.add(start)
            start = following[start]
    marked = mark_chain(np.array(starts, dtype=np.int64), np.array(following, dtype=np.int64))
    assert set(np.flatnonzero(marked).tolist()) == expected

"""Which runs are merged: there are few runs, and each row is rewritten only a few times."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.compact import MAX_RUNS, pick_runs


def simulate_merges(inserts: list[int]) -> tuple[int, int]:
    """Insert and merge runs of these sizes; return the largest number of runs, and the rows written in all."""
    sizes: list[int] = []
    most = written = 0
    for size in inserts:
        if (chosen := pick_runs(sizes)) is not None:
            merged = sum(sizes[chosen])
            sizes[chosen] = [merged]
            written += merged
        sizes.append(size)
        written += size
        most = max(most, len(sizes))
    return most, written


@pytest.mark.parametrize("shape", ["equal", "random", "bursts", "falling", "rising"])
def test_runs_stay_few_and_rows_are_rewritten_a_few_times(shape: str) -> None:
    draw = random.Random(5)
    inserts = {
        "equal": [100] * 3000,
        "random": [draw.randint(1, 10_000) for _ in range(3000)],
        "bursts": [100_000 if i % 97 == 0 else 10 for i in range(3000)],
        "falling": [3_000_000 // (i + 1) for i in range(3000)],
        "rising": [i + 1 for i in range(3000)],
    }[shape]
    most, written = simulate_merges(inserts)
    assert most <= MAX_RUNS + 1
    assert written <= 12 * sum(inserts), "a row is written about log2(3000) times at most"


@given(st.lists(st.integers(1, 10**9), max_size=40))
def test_a_merge_takes_the_newest_runs_and_leaves_few(sizes: list[int]) -> None:
    chosen = pick_runs(sizes)
    if chosen is None:
        assert len(sizes) <= MAX_RUNS
    else:
        assert chosen.stop == len(sizes)
        assert len(sizes[chosen]) > 1
        assert len(sizes) - len(sizes[chosen]) + 1 <= MAX_RUNS

"""Merges of large runs, a few buckets an epoch: what is merged when, on sizes alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import compact
from penstock.state.compact import MAX_RUNS, Merge, RunSize, pick_runs, plan_merges

EVEN = dict.fromkeys(range(8), 10)


@pytest.fixture(autouse=True, scope="module")
def _a_hundred_rows_an_epoch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_AN_EPOCH", 100)
        patch.setattr(compact, "ROWS_FOR_ONE", 0)
        yield


def written(*rows: dict[int, int]) -> list[RunSize]:
    """A run an epoch."""
    return [RunSize(epoch, epoch, held) for epoch, held in enumerate(rows)]


class Merging:
    """Runs of which no two rows are of one key, merged as `plan_merges` says."""

    def __init__(self) -> None:
        self.runs: list[RunSize] = []
        self.merged: list[int] = []

    def epoch(self, rows: dict[int, int]) -> None:
        epoch = len(self.merged)
        self.runs.append(RunSize(epoch, epoch, rows))
        merges = plan_merges(self.runs, epoch)
        took = set[tuple[int, int]]()
        cost = 0
        for merge in merges:
            made = dict.fromkeys(merge.buckets, 0)
            for run in [run for run in self.runs if merge.since <= run.through <= merge.through]:
                for bucket in merge.buckets & run.rows.keys():
                    assert (run.through, bucket) not in took, "merged twice in an epoch"
                    took.add((run.through, bucket))
                    made[bucket] += run.rows[bucket]
                left = {b: n for b, n in run.rows.items() if b not in merge.buckets}
                self.runs[self.runs.index(run)] = run._replace(rows=left)
            assert sum(made.values()), "nothing was merged"
            cost += sum(made.values())
            self.runs.append(RunSize(merge.through, epoch, {b: n for b, n in made.items() if n}))
        self.runs = sorted((run for run in self.runs if run.rows), key=lambda run: run.through)
        self.merged.append(cost)

    def deepest(self) -> int:
        """The most runs that one bucket is in."""
        return max(sum(bucket in run.rows for run in self.runs) for bucket in range(8))


def test_small_runs_are_merged_at_once() -> None:
    few = dict.fromkeys(range(8), 3)
    assert plan_merges(written(few, few, few), 2) == []
    assert plan_merges(written(few, few, few, few), 3) == [Merge(0, 3, frozenset(range(8)))]
    assert plan_merges([], 0) == []


def test_of_much_a_few_buckets_are_merged_in_an_epoch_the_first_ones_first_and_nothing_of_the_epoch_itself() -> (
    None
):
    assert plan_merges(written(EVEN, EVEN, EVEN, EVEN), 3) == [Merge(0, 2, frozenset({0, 1, 2}))]
    assert plan_merges(written(*[dict.fromkeys(range(8), 500)] * 4), 3) == [Merge(0, 2, frozenset({0}))], (
        "at least one"
    )


def test_everything_is_merged_at_once_on_request() -> None:
    assert plan_merges(written(EVEN, EVEN, EVEN, EVEN), 3, at_once=True) == [Merge(0, 3, frozenset(range(8)))]


def test_a_merge_goes_on_until_all_buckets_have_had_their_turn_and_new_runs_wait_for_it() -> None:
    merging = Merging()
    for _ in range(4):
        merging.epoch(EVEN)
    assert merging.merged == [0, 0, 0, 90]
    merging.epoch(dict.fromkeys(range(8), 1))
    merging.epoch(dict.fromkeys(range(8), 1))
    assert merging.merged[4:] == [90, 60]
    big = [run for run in merging.runs if run.through == 2]
    assert [sorted(run.rows) for run in big] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert all(set(run.rows.values()) == {30} for run in big)
    merging.epoch(dict.fromkeys(range(8), 1))
    assert merging.merged[-1] == 0, "all have had their turn"


@pytest.mark.parametrize("quiet", [1, 2, 5])
def test_no_more_is_merged_in_an_epoch_when_nothing_comes_any_more(
    quiet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "ROWS_FOR_ONE", 8)
    left = dict.fromkeys(range(1, 8), 1_000)
    # the merge up to epoch 2 was begun in epoch 3 with bucket 0, and a few rows came with that
    begun = [RunSize(epoch, epoch, left) for epoch in range(3)] + [
        RunSize(2, 3, {0: 3_000}),
        RunSize(3, 3, {5: 2}),
    ]
    assert plan_merges(begun[:-1], 3 + quiet) == [Merge(0, 2, frozenset({1}))]
    assert plan_merges(begun, 3 + quiet) == [Merge(0, 2, frozenset({1}))]


def test_runs_that_slices_wrote_side_by_side_count_as_one() -> None:
    sides = [RunSize(epoch, epoch, {bucket: 3}) for epoch in range(4) for bucket in range(8)]
    assert plan_merges(sides[:24], 2) == []
    assert plan_merges(sides, 3) == [Merge(0, 3, frozenset(range(8)))]


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=150), st.sampled_from([0, 6]))
def test_rows_are_merged_seldom_and_no_epoch_merges_much(inserts: list[int], for_one: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_FOR_ONE", for_one)
        merging = Merging()
        for size in inserts:
            merging.epoch(dict.fromkeys(range(8), size))
            whole = sum(sum(run.rows.values()) for run in merging.runs)
            # a turn, which is one bucket at least, and what is merged at once beside it
            assert merging.merged[-1] <= 2 * max(100, for_one * 8 * size) + whole // 8
        assert whole == 8 * sum(inserts)


@pytest.mark.parametrize("shape", ["equal", "random", "bursts"])
def test_a_bucket_is_in_few_runs_and_its_rows_are_rewritten_seldom(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "ROWS_AN_EPOCH", 2_000)
    monkeypatch.setattr(compact, "ROWS_FOR_ONE", 12)
    draw = random.Random(3)
    sizes = {
        "equal": [100] * 600,
        "random": [draw.randint(1, 200) for _ in range(600)],
        "bursts": [5_000 if at % 50 == 0 else 20 for at in range(600)],
    }[shape]
    merging, deepest = Merging(), 0
    for size in sizes:
        merging.epoch(dict.fromkeys(range(8), size))
        deepest = max(deepest, merging.deepest())
    assert deepest <= 2 * MAX_RUNS
    assert sum(merging.merged) <= 12 * 8 * sum(sizes)
    assert max(merging.merged) <= 2 * 12 * 8 * max(sizes) + 8 * sum(sizes) // 4
    assert pick_runs([100, 100, 100]) is None

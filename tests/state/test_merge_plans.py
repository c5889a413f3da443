"""Plans for merging large runs, a few buckets in each epoch."""

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
def _merge_a_hundred_rows_an_epoch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_AN_EPOCH", 100)
        patch.setattr(compact, "ROWS_FOR_ONE", 0)
        yield


def runs_of_epochs(*rows: dict[int, int]) -> list[RunSize]:
    """Return a run for each epoch, with these rows by bucket."""
    return [RunSize(epoch, epoch, rows_by_bucket) for epoch, rows_by_bucket in enumerate(rows)]


class MergeSimulation:
    """Runs whose rows all have different keys, merged as `plan_merges` decides."""

    def __init__(self) -> None:
        self.runs: list[RunSize] = []
        self.merged: list[int] = []

    def run_epoch(self, rows: dict[int, int]) -> None:
        epoch = len(self.merged)
        self.runs.append(RunSize(epoch, epoch, rows))
        merges = plan_merges(self.runs, epoch)
        merged_sections = set[tuple[int, int]]()
        cost = 0
        for merge in merges:
            result = dict.fromkeys(merge.buckets, 0)
            for run in [run for run in self.runs if merge.since <= run.through <= merge.through]:
                for bucket in merge.buckets & run.rows.keys():
                    assert (run.through, bucket) not in merged_sections, "merged twice in an epoch"
                    merged_sections.add((run.through, bucket))
                    result[bucket] += run.rows[bucket]
                rest = {b: n for b, n in run.rows.items() if b not in merge.buckets}
                self.runs[self.runs.index(run)] = run._replace(rows=rest)
            assert sum(result.values()), "nothing was merged"
            cost += sum(result.values())
            self.runs.append(RunSize(merge.through, epoch, {b: n for b, n in result.items() if n}))
        self.runs = sorted((run for run in self.runs if run.rows), key=lambda run: run.through)
        self.merged.append(cost)

    def most_runs_of_a_bucket(self) -> int:
        """Return the largest number of runs that hold rows of one bucket."""
        return max(sum(bucket in run.rows for run in self.runs) for bucket in range(8))


def test_small_runs_are_merged_at_once() -> None:
    few = dict.fromkeys(range(8), 3)
    assert plan_merges(runs_of_epochs(few, few, few), 2) == []
    assert plan_merges(runs_of_epochs(few, few, few, few), 3) == [Merge(0, 3, frozenset(range(8)))]
    assert plan_merges([], 0) == []


def test_large_runs_are_merged_a_few_buckets_an_epoch_without_the_run_of_that_epoch() -> None:
    assert plan_merges(runs_of_epochs(EVEN, EVEN, EVEN, EVEN), 3) == [Merge(0, 2, frozenset({0, 1, 2}))]
    assert plan_merges(runs_of_epochs(*[dict.fromkeys(range(8), 500)] * 4), 3) == [
        Merge(0, 2, frozenset({0}))
    ], "at least one"


def test_everything_is_merged_at_once_on_request() -> None:
    assert plan_merges(runs_of_epochs(EVEN, EVEN, EVEN, EVEN), 3, at_once=True) == [
        Merge(0, 3, frozenset(range(8)))
    ]


def test_a_merge_continues_until_all_buckets_are_merged_and_new_runs_wait_for_it() -> None:
    simulation = MergeSimulation()
    for _ in range(4):
        simulation.run_epoch(EVEN)
    assert simulation.merged == [0, 0, 0, 90]
    simulation.run_epoch(dict.fromkeys(range(8), 1))
    simulation.run_epoch(dict.fromkeys(range(8), 1))
    assert simulation.merged[4:] == [90, 60]
    big = [run for run in simulation.runs if run.through == 2]
    assert [sorted(run.rows) for run in big] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert all(set(run.rows.values()) == {30} for run in big)
    simulation.run_epoch(dict.fromkeys(range(8), 1))
    assert simulation.merged[-1] == 0, "all buckets are merged"


@pytest.mark.parametrize("quiet", [1, 2, 5])
def test_no_more_is_merged_in_an_epoch_when_no_rows_arrive(
    quiet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "ROWS_FOR_ONE", 8)
    left = dict.fromkeys(range(1, 8), 1_000)
    # the merge up to epoch 2 started in epoch 3 with bucket 0; a few rows were inserted in that epoch
    started = [RunSize(epoch, epoch, left) for epoch in range(3)] + [
        RunSize(2, 3, {0: 3_000}),
        RunSize(3, 3, {5: 2}),
    ]
    assert plan_merges(started[:-1], 3 + quiet) == [Merge(0, 2, frozenset({1}))]
    assert plan_merges(started, 3 + quiet) == [Merge(0, 2, frozenset({1}))]


def test_runs_that_slices_wrote_in_one_epoch_count_as_one() -> None:
    parallel = [RunSize(epoch, epoch, {bucket: 3}) for epoch in range(4) for bucket in range(8)]
    assert plan_merges(parallel[:24], 2) == []
    assert plan_merges(parallel, 3) == [Merge(0, 3, frozenset(range(8)))]


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=150), st.sampled_from([0, 6]))
def test_an_epoch_merges_a_bounded_number_of_rows(inserts: list[int], for_one: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_FOR_ONE", for_one)
        simulation = MergeSimulation()
        for size in inserts:
            simulation.run_epoch(dict.fromkeys(range(8), size))
            total = sum(sum(run.rows.values()) for run in simulation.runs)
            # one batch, which is one bucket at least, and the small runs that are merged at once beside it
            assert simulation.merged[-1] <= 2 * max(100, for_one * 8 * size) + total // 8
        assert total == 8 * sum(inserts)


@pytest.mark.parametrize("shape", ["equal", "random", "bursts"])
def test_a_bucket_is_in_few_runs_and_its_rows_are_rewritten_a_few_times(
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
    simulation, most_runs = MergeSimulation(), 0
    for size in sizes:
        simulation.run_epoch(dict.fromkeys(range(8), size))
        most_runs = max(most_runs, simulation.most_runs_of_a_bucket())
    assert most_runs <= 2 * MAX_RUNS
    assert sum(simulation.merged) <= 12 * 8 * sum(sizes)
    assert max(simulation.merged) <= 2 * 12 * 8 * max(sizes) + 8 * sum(sizes) // 4
    assert pick_runs([100, 100, 100]) is None

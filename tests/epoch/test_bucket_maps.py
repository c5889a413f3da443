"""Bucket maps: what they hold, and that they decide only where work is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epoch.migration_cost import plan_migration
from penstock.errors import UserError
from penstock.query.compile import compile_app
from penstock.query.physical import maps_by_stage
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps
from penstock.state.directory import StateDirectory
from penstock.state.rollback import find_problems
from penstock.state.run import Piece, RunEntry
from penstock.testing.list_sink import ListSink
from tests.epoch import map_changes
from tests.epoch.map_changes import LOCATIONS, PlannedChange, build, rows_of, run_engine
from tests.operators.harness import (
    BUCKETS,
    STRAIGHT,
    Cutting,
    History,
    cuttings,
    fast_directory,
    histories,
    modestly,
)

A, B, C = LOCATIONS


def test_maps_are_written_and_read_unchanged() -> None:
    maps = even_maps(8, 3, [A, None, B]).with_owners("sub", {0: 2, 7: 0})
    assert maps.default == (0, 0, 0, 1, 1, 1, 2, 2)
    assert maps.of("sub") == (2, 0, 0, 1, 1, 1, 2, 0)
    assert maps.of("another") == maps.default
    assert maps.slices == 3
    assert [maps.location_of(slice_) for slice_ in range(4)] == [A, None, B, None]
    assert BucketMaps.from_json(json.loads(json.dumps(maps.to_json()))) == maps
    assert even_maps(4, 9).slices == 4, "no more slices than buckets"


def test_invalid_maps_are_refused() -> None:
    for bad in (BucketMaps((0,) * 7), BucketMaps((0,) * 7 + (-1,)), BucketMaps((0,) * 8, {"sub": (0, 1)})):
        with pytest.raises(UserError) as refused:
            bad.check(8)
        assert refused.value.condition == "BAD_BUCKET_MAP"


def test_operators_that_are_chained_in_a_slice_share_a_map() -> None:
    plan = compile_app(build(History(((),)), STRAIGHT, {}))
    together = [family for family in plan.families if len(family) > 1]
    assert together, "a query in which rows stay in their slice"
    first, second = together[0][:2]
    for named in (first, second):
        owners = maps_by_stage(even_maps(8, 2).with_owners(named, {0: 1}), plan)
        assert owners[first] == owners[second] == (1, 0, 0, 0, 1, 1, 1, 1)


def test_a_migration_counts_what_another_executor_has_to_read() -> None:
    plan = compile_app(build(History(((),)), STRAIGHT, {}))
    sub = plan.families[0][0]
    runs = (
        RunEntry("a", 1, 10, 1000, {0: (0, 5), 1: (5, 5)}),
        RunEntry("b", 2, 10, 500, {1: (0, 5), 3: (5, 5)}),
        RunEntry("c", 2, 10, 70, {3: (0, 10)}),
    )
    before = BucketMaps((0, 0, 1, 1), locations=(A, B))
    found = plan_migration(plan, {sub: {"open": runs}}, before, before.with_owners(sub, {1: 1}))
    assert found.buckets == {sub: frozenset({1})}
    some = Piece("a", ((5, 5),))
    assert found.pieces == {B: {some: 500, Piece("b"): 500}}, (
        "the third run was there; half of the first is read"
    )
    elsewhere = plan_migration(plan, {sub: {"open": runs}}, before, before.with_locations([A, C]))
    assert elsewhere.pieces[C] == {Piece("b", ((5, 5),)): 250, Piece("c"): 70}
    assert elsewhere.count == 2 * len(plan.families)
    swapped = BucketMaps((1, 1, 0, 0), locations=(B, A))
    assert plan_migration(plan, {sub: {"open": runs}}, before, swapped).count == 0, (
        "other numbers, the same executors"
    )
    unknown = plan_migration(plan, {sub: {"open": runs}}, BucketMaps((0, 0, 1, 1)), BucketMaps((0, 1, 1, 1)))
    assert unknown.pieces == {None: {some: 500, Piece("b"): 500, Piece("c"): 70}}, (
        "the former locations are unknown"
    )


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), map_changes.planned_changes(), st.booleans())
def test_changes_of_maps_at_any_epochs_do_not_change_the_output(
    history: History, cutting: Cutting, changes: list[PlannedChange], wait_for_warm_up: bool
) -> None:
    undisturbed: dict[str, ListSink] = {}
    moved: dict[str, ListSink] = {}
    with fast_directory() as folder:
        run_engine(build(history, STRAIGHT, undisturbed), Path(folder) / "straight", slices=1)
        reports = run_engine(
            build(history, cutting, moved),
            Path(folder) / "moved",
            changes=changes,
            wait_for_warm_up=wait_for_warm_up,
        )
        assert rows_of(moved) == rows_of(undisturbed)
        assert (
            find_problems(StateDirectory(Path(folder) / "moved" / "state"), reports[-1].epoch) == []
            if reports
            else True
        )


@pytest.mark.slow
def test_an_epoch_record_has_the_maps_and_a_repeated_epoch_may_use_others(state: Path) -> None:
    history = map_changes.new_history(60)
    undisturbed: dict[str, ListSink] = {}
    sinks: dict[str, ListSink] = {}
    run_engine(build(history, STRAIGHT, undisturbed), state / "straight", slices=1)
    cutting = map_changes.epochs_of(10)
    change: PlannedChange = (
        2,
        lambda maps: map_changes.MapChange(
            maps.with_owners(None, {0: 4, 5: 3}).with_locations([A, B, None, C, A])
        ),
    )
    with map_changes.kill_at("gathered", 3) as kills, pytest.raises(map_changes.Killed):
        run_engine(build(history, cutting, sinks), state / "moved", changes=[change])
    assert kills == [("gathered", 3)]
    folder = state / "moved" / "state" / "epochs"
    recorded = [
        BucketMaps.from_json(json.loads(file.read_text())["maps"]) for file in sorted(folder.glob("*.json"))
    ]
    assert [maps.version for maps in recorded] == [0, 0, 1, 1]
    assert recorded[3].default == (4, 0, 0, 0, 1, 3, 1, 1)
    assert recorded[3].location_of(4) == ExecutorLocation("here", "0")
    reports = run_engine(build(history, cutting, sinks), state / "moved", slices=3)
    assert reports[0].epoch == 3
    assert reports[0].maps is not None
    assert reports[0].maps.slices == 3, "a recorded map does not bind"
    assert reports[0].maps.version == 2
    assert rows_of(sinks) == rows_of(undisturbed)


@pytest.mark.slow
def test_slices_without_a_bucket_of_any_operator_have_nothing_to_do(state: Path) -> None:
    undisturbed: dict[str, ListSink] = {}
    sinks: dict[str, ListSink] = {}
    history = map_changes.new_history(40)
    run_engine(build(history, STRAIGHT, undisturbed), state / "straight", slices=1)
    lonely = BucketMaps((9,) * BUCKETS)
    reports = run_engine(
        build(history, map_changes.epochs_of(7), sinks),
        state / "moved",
        changes=[(1, lambda _: map_changes.MapChange(lonely))],
    )
    assert rows_of(sinks) == rows_of(undisturbed)
    busy = {slice_ for work in reports[-1].work.values() for slice_ in work.seconds_by_slice}
    assert busy == {9}

"""Maps follow the live executors: new stages start on all of them, vacant slices are left out, nothing else moves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.map_changes import reassign_orphans, renumber_slices
from penstock.epoch.migration_cost import plan_migration
from penstock.query.physical import maps_by_stage
from penstock.scaling.measurements import VACANT
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps
from tests.engine.playground import BUCKETS, PLAN, STAGE


def locations(placement: list[str]) -> list[ExecutorLocation | None]:
    return [None if name == VACANT else ExecutorLocation("here", name) for name in placement]


def owners(maps: BucketMaps, placement: list[str]) -> list[str]:
    """The executor of each bucket of the one stage there is."""
    return [placement[slice_] for slice_ in maps_by_stage(maps, PLAN)[STAGE]]


placements = st.lists(st.sampled_from(["1", "2", "3", "4", VACANT]), min_size=1, max_size=20).filter(
    lambda found: any(name != VACANT for name in found)
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[BucketMaps, list[str]]:
    placement = draw(placements)
    slices = st.integers(0, len(placement) - 1)
    maps = BucketMaps(tuple(draw(st.lists(slices, min_size=BUCKETS, max_size=BUCKETS))))
    if draw(st.booleans()):
        own = draw(st.lists(slices, min_size=BUCKETS, max_size=BUCKETS))
        maps = replace(maps, operators={STAGE: tuple(own)})
    return maps.with_locations(locations(placement)), placement


@settings(deadline=None)
@given(situations(), st.sets(st.sampled_from("1234")))
def test_only_the_buckets_of_executors_that_are_gone_move(
    situation: tuple[BucketMaps, list[str]], leaving: set[str]
) -> None:
    maps, placement = situation
    after = reassign_orphans(maps, PLAN, placement, leaving)
    for was, now in zip(owners(maps, placement), owners(after, placement), strict=True):
        assert now == was if was != VACANT else now != VACANT


@settings(deadline=None)
@given(situations(), st.sets(st.sampled_from("1234")))
def test_new_stages_are_spread_over_all_that_stay(
    situation: tuple[BucketMaps, list[str]], leaving: set[str]
) -> None:
    maps, placement = situation
    after = reassign_orphans(maps, PLAN, placement, leaving)
    staying = {s for s, name in enumerate(placement) if name != VACANT and name not in leaving}
    expected = staying or {s for s, name in enumerate(placement) if name != VACANT}
    assert set(after.default) <= expected
    assert len(set(after.default)) == min(len(expected), BUCKETS)


@settings(deadline=None)
@given(situations())
def test_vacant_slices_are_left_out_and_no_bucket_moves(
    situation: tuple[BucketMaps, list[str]],
) -> None:
    maps, placement = situation
    maps = reassign_orphans(maps, PLAN, placement)
    found = renumber_slices(maps, placement)
    live = sum(name != VACANT for name in placement)
    assert (found is not None) == (live < len(placement) - live)
    if found is not None:
        left = [placement[slice_] for slice_ in found.former]
        assert VACANT not in left
        assert owners(found.maps, left) == owners(maps, placement)
        assert list(found.maps.locations) == locations(left)
        assert plan_migration(PLAN, {}, maps, found.maps).count == 0


def test_a_bucket_on_a_vacant_slice_keeps_the_numbers() -> None:
    maps = even_maps(BUCKETS, 4)
    assert renumber_slices(maps, ["1", VACANT, VACANT, VACANT]) is None

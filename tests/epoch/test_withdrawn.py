"""A change of maps that is withdrawn before the switch is never made, and the next one takes its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.epoch.migration import MapChange, Migrations
from penstock.epoch.task import CacheFill, StateLocation
from penstock.state.bucket_map import ExecutorLocation, even_maps
from penstock.state.manifest import Manifest
from penstock.state.run import Piece
from tests.engine.playground import BUCKETS, PLAN

EMPTY = Manifest(-1, {}, {}, {})


class Nobody:
    """Has nothing to warm up."""

    def warm(
        self, place: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        return []


class Endless(Migrations):
    """Moves that are never warm enough."""

    ready = False

    def _are_caches_filled(self, *_: object) -> bool:
        return self.ready


@pytest.fixture
def moves() -> Endless:
    return Endless(even_maps(BUCKETS, 1), Nobody(), StateLocation("runs", None, 0))


def change(slices: int) -> MapChange:
    return MapChange(
        even_maps(BUCKETS, slices, [ExecutorLocation("here", str(at)) for at in range(slices)]), "warm"
    )


def test_one_that_waits_and_one_that_is_under_way_can_be_withdrawn(moves: Endless) -> None:
    first, second, third = (moves.request(change(slices)) for slices in (2, 3, 4))
    before = moves.maps
    assert moves.start_epoch(0, PLAN, EMPTY) is before
    assert first.cancel()
    assert second.cancel()
    moves.ready = True
    assert moves.start_epoch(1, PLAN, EMPTY).slices == 4
    moves.finish_epoch(0.1, None)
    assert third.result().done
    assert moves.maps.version == before.version + 1


def test_it_is_too_late_once_the_switch_is_made(moves: Endless) -> None:
    moves.ready = True
    ticket = moves.request(change(2))
    assert moves.start_epoch(0, PLAN, EMPTY).slices == 2
    assert not ticket.cancel()
    moves.finish_epoch(0.1, None)
    assert ticket.result().done


def test_one_withdrawn_in_the_very_moment_of_the_switch_is_not_made(moves: Endless) -> None:
    ticket = moves.request(change(2))

    def withdrawn(*_: object) -> bool:
        return ticket.cancel()  # ready, and withdrawn before the engine could switch

    moves._are_caches_filled = withdrawn  # type: ignore[method-assign]
    assert moves.start_epoch(0, PLAN, EMPTY).slices == 1
    moves.finish_epoch(0.1, None)


def test_an_engine_that_ends_says_so_to_those_who_still_want_to_know(moves: Endless) -> None:
    first, second = moves.request(change(2)), moves.request(change(3))
    moves.start_epoch(0, PLAN, EMPTY)
    assert first.cancel()
    moves.close()
    assert not second.result(0).done

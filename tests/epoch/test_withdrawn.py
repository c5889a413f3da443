"""A change of maps that is cancelled before the switch is never made, and the next one follows."""

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


class NoExecutors:
    """Has no executors to warm up."""

    def warm(
        self, place: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        return []


class EndlessMigrations(Migrations):
    """Migrations whose caches are never filled enough."""

    ready = False

    def _are_caches_filled(self, *_: object) -> bool:
        return self.ready


@pytest.fixture
def moves() -> EndlessMigrations:
    return EndlessMigrations(even_maps(BUCKETS, 1), NoExecutors(), StateLocation("runs", None, 0))


def change(slices: int) -> MapChange:
    return MapChange(
        even_maps(BUCKETS, slices, [ExecutorLocation("here", str(at)) for at in range(slices)]), "warm"
    )


def test_a_waiting_and_a_started_migration_can_be_cancelled(moves: EndlessMigrations) -> None:
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


def test_a_migration_cannot_be_cancelled_once_the_switch_is_made(moves: EndlessMigrations) -> None:
    moves.ready = True
    ticket = moves.request(change(2))
    assert moves.start_epoch(0, PLAN, EMPTY).slices == 2
    assert not ticket.cancel()
    moves.finish_epoch(0.1, None)
    assert ticket.result().done


def test_a_migration_cancelled_at_the_moment_of_the_switch_is_not_made(moves: EndlessMigrations) -> None:
    ticket = moves.request(change(2))

    def cancel(*_: object) -> bool:
        return ticket.cancel()  # ready, and withdrawn before the engine could switch

    moves._are_caches_filled = cancel  # type: ignore[method-assign]
    assert moves.start_epoch(0, PLAN, EMPTY).slices == 1
    moves.finish_epoch(0.1, None)


def test_pending_migrations_fail_when_the_engine_ends(moves: EndlessMigrations) -> None:
    first, second = moves.request(change(2)), moves.request(change(3))
    moves.start_epoch(0, PLAN, EMPTY)
    assert first.cancel()
    moves.close()
    assert not second.result(0).done

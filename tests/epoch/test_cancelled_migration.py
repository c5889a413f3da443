"""A migration that is cancelled before the switch never happens, and the next one follows."""

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
        self, place: StateLocation, missing: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        return []


class EndlessMigrations(Migrations):
    """Migrations whose caches are filled only once `ready` is set."""

    ready = False

    def _are_caches_filled(self, *_: object) -> bool:
        return self.ready


@pytest.fixture
def migrations() -> EndlessMigrations:
    return EndlessMigrations(even_maps(BUCKETS, 1), NoExecutors(), StateLocation("runs", None, 0))


def change(slices: int) -> MapChange:
    return MapChange(
        even_maps(BUCKETS, slices, [ExecutorLocation("here", str(at)) for at in range(slices)]), "warm"
    )


def test_a_waiting_and_a_started_migration_can_be_cancelled(migrations: EndlessMigrations) -> None:
    first, second, third = (migrations.request(change(slices)) for slices in (2, 3, 4))
    before = migrations.maps
    assert migrations.start_epoch(0, PLAN, EMPTY) is before
    assert first.cancel()
    assert second.cancel()
    migrations.ready = True
    assert migrations.start_epoch(1, PLAN, EMPTY).slices == 4
    migrations.finish_epoch(0.1, None)
    assert third.result().done
    assert migrations.maps.version == before.version + 1


def test_a_migration_cannot_be_cancelled_once_the_switch_is_made(migrations: EndlessMigrations) -> None:
    migrations.ready = True
    ticket = migrations.request(change(2))
    assert migrations.start_epoch(0, PLAN, EMPTY).slices == 2
    assert not ticket.cancel()
    migrations.finish_epoch(0.1, None)
    assert ticket.result().done


def test_a_migration_cancelled_at_the_moment_of_the_switch_is_not_made(migrations: EndlessMigrations) -> None:
    ticket = migrations.request(change(2))

    def cancel(*_: object) -> bool:
        return ticket.cancel()  # the caches are filled, but it is cancelled before the switch

    migrations._are_caches_filled = cancel  # type: ignore[method-assign]
    assert migrations.start_epoch(0, PLAN, EMPTY).slices == 1
    migrations.finish_epoch(0.1, None)


def test_pending_migrations_fail_when_the_engine_ends(migrations: EndlessMigrations) -> None:
    first, second = migrations.request(change(2)), migrations.request(change(3))
    migrations.start_epoch(0, PLAN, EMPTY)
    assert first.cancel()
    migrations.close()
    assert not second.result(0).done

"""The tests of leases that every coordination store must pass; part of `CoordinationContract`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.coordination.contract import Store
from penstock.coordination.lease import acquire, read_lease
from penstock.errors import ExternalError
from penstock.testing.coordination_kit import (
    DEADLINE_SECONDS,
    LONG_SECONDS,
    SESSION_SECONDS,
    Child,
    StoreFixtures,
    hold_lease,
)


class LeaseContract(StoreFixtures):
    """A lease has one holder at a time, even if processes are killed or paused, or their clocks are wrong."""

    def test_generations_rise_from_holder_to_holder(self, store: Store, other: Store, path: str) -> None:
        generations = []
        for turn in range(5):
            session = (store, other)[turn % 2].start_session(LONG_SECONDS)
            lease = acquire((store, other)[turn % 2], path, session, seconds=DEADLINE_SECONDS)
            assert lease is not None
            lease.check()
            generations.append(lease.generation)
            if turn % 2:
                lease.resign()
                assert not lease.is_held()
            session.close()
        assert generations == [1, 2, 3, 4, 5]

    def test_a_generation_is_above_what_the_place_has_seen(self, store: Store, path: str) -> None:
        session = store.start_session(LONG_SECONDS)
        lease = acquire(store, path, session, above=lambda: 41)
        assert lease is not None
        assert lease.generation == 42
        session.close()

    def test_one_holds_an_office_and_another_waits(self, store: Store, other: Store, path: str) -> None:
        first, second = store.start_session(LONG_SECONDS), other.start_session(LONG_SECONDS)
        held = acquire(store, path, first)
        assert held is not None
        assert acquire(other, path, second, seconds=0.2) is None
        assert read_lease(other, path).session == first.id
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, other, path, second, seconds=DEADLINE_SECONDS)
            held.resign()
            got = waiting.result()
        assert got is not None
        assert got.generation == 2
        with pytest.raises(ExternalError) as lost:
            held.check()
        assert lost.value.condition == "FENCED"
        first.close()
        second.close()

    def test_of_many_candidates_each_generation_has_one_holder(self, address: str, path: str) -> None:
        held: list[int] = []
        inside, most = threading.Semaphore(1), 12

        def reign(_: int) -> None:
            store = self.open_store(address)
            session = store.start_session(LONG_SECONDS)
            while len(held) < most:
                lease = acquire(store, path, session, seconds=DEADLINE_SECONDS)
                assert lease is not None
                assert inside.acquire(blocking=False), "two hold the office at once"
                held.append(lease.generation)
                inside.release()
                lease.resign()
            session.close()
            store.close()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(reign, range(3)))
        assert held == sorted(set(held))

    def test_a_holder_that_is_killed_is_followed(
        self, store: Store, path: str, child: Callable[..., Child]
    ) -> None:
        holder = child(hold_lease, path)
        assert holder.receive() == 1
        session = store.start_session(LONG_SECONDS)
        assert acquire(store, path, session) is None
        holder.kill()
        lease = acquire(store, path, session, seconds=DEADLINE_SECONDS)
        assert lease is not None
        assert lease.generation == 2
        session.close()

    def test_a_paused_holder_finds_on_waking_that_it_was_followed(
        self, store: Store, path: str, child: Callable[..., Child]
    ) -> None:
        holder = child(hold_lease, path)
        assert holder.receive() == 1
        holder.signal(signal.SIGSTOP)
        session = store.start_session(LONG_SECONDS)
        lease = acquire(store, path, session, seconds=DEADLINE_SECONDS)
        assert lease is not None
        assert lease.generation == 2
        holder.signal(signal.SIGCONT)
        holder.send("check")
        assert holder.receive() == "FENCED"
        assert lease.is_held()
        session.close()

    def test_a_clock_an_hour_off_is_harmless(
        self, store: Store, path: str, child: Callable[..., Child]
    ) -> None:
        """Wall clocks are not looked at: a holder in another hour keeps its office, and an observer lets it."""
        holders = {
            f"{path}/{hours}": child(hold_lease, f"{path}/{hours}", hours * 3600.0) for hours in (-1, 1)
        }
        assert [holder.receive() for holder in holders.values()] == [1, 1]
        session = store.start_session(LONG_SECONDS)
        with ThreadPoolExecutor(2) as pool:
            watched = [
                pool.submit(acquire, store, one, session, seconds=2 * SESSION_SECONDS) for one in holders
            ]
            assert [one.result() for one in watched] == [None, None]
        for holder in holders.values():
            holder.send("check")
            assert holder.receive() == "held"
        for holder in holders.values():
            holder.kill()
        for leader_lease_path in holders:
            assert acquire(store, leader_lease_path, session, seconds=DEADLINE_SECONDS) is not None
        session.close()

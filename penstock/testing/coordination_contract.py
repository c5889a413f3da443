"""The tests that every coordination store must pass. A store's test class inherits them and adds a fixture `address`.

    class TestMyStore(CoordinationContract):
        @pytest.fixture
        def address(self, tmp_path): ...

        @staticmethod
        def open_store(address): ...

Each test works below a path of its own, so all of them can share a store. `open_store` turns the address into a store,
also in child processes. Times are generous: they are when a test gives up, not how fast a store is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.coordination.contract import Store
from penstock.errors import UserError
from penstock.testing.coordination_kit import (
    DEADLINE_SECONDS,
    LONG_SECONDS,
    SESSION_SECONDS,
    Child,
    count_forever,
    join_as_member,
    observe,
    read_count,
    wait_until,
)
from penstock.testing.lease_contract import LeaseContract


class CoordinationContract(LeaseContract):
    """Inherit, define `open_store` and the fixture `address`, and pytest does the rest."""

    # -- records ---------------------------------------------------------------------------------

    def test_a_record_is_made_once(self, store: Store, other: Store, path: str) -> None:
        assert store.get(path) is None
        version = store.create(path, b"first")
        assert version is not None
        assert other.create(path, b"second") is None
        found = other.get(path)
        assert found is not None
        assert (found.value, found.version) == (b"first", version)

    def test_only_the_version_that_is_there_is_replaced(self, store: Store, other: Store, path: str) -> None:
        first = store.create(path, b"1")
        assert first is not None
        second = store.replace(path, b"2", first)
        assert second is not None
        assert second != first
        assert other.replace(path, b"3", first) is None
        found = other.get(path)
        assert found is not None
        assert (found.value, found.version) == (b"2", second)
        assert store.replace(f"{path}/missing", b"", second) is None

    def test_a_deleted_record_is_gone_and_can_be_made_again(self, store: Store, path: str) -> None:
        first = store.create(path, b"1")
        assert first is not None
        second = store.replace(path, b"2", first)
        assert second is not None
        assert not store.delete(path, first)
        assert store.delete(path, second)
        assert not store.delete(path, second)
        assert store.get(path) is None
        assert store.replace(path, b"3", second) is None
        assert store.create(path, b"4") is not None

    def test_any_bytes_come_back(self, store: Store, path: str) -> None:
        for number, value in enumerate([b"", b"+", b"-", b"\n\0\xff", os.urandom(100_000)]):
            assert store.create(f"{path}/{number}", value) is not None
            found = store.get(f"{path}/{number}")
            assert found is not None
            assert found.value == value

    def test_children_are_what_has_a_record_or_one_below_it(self, store: Store, path: str) -> None:
        assert store.children(path) == []
        versions = {name: store.create(f"{path}/{name}", b"") for name in ("b", "a", "c/d/e", "c/d/f")}
        assert store.children(path) == ["a", "b", "c"]
        assert store.children(f"{path}/c/d") == ["e", "f"]
        assert store.get(f"{path}/c") is None
        assert store.create(f"{path}/c", b"now") is not None  # what only had others below it
        for name in ("b", "c/d/e", "c/d/f"):
            version = versions[name]
            assert version is not None
            assert store.delete(f"{path}/{name}", version)
        assert store.children(path) == ["a", "c"]
        found = store.get(f"{path}/c")
        assert found is not None
        assert store.delete(f"{path}/c", found.version)
        assert store.children(path) == ["a"]

    @pytest.mark.parametrize("bad", ["", "/a", "a//b", "a/", "..", "a/../b", "a b", "a\0", "ü"])
    def test_what_is_no_path_is_refused(self, store: Store, bad: str) -> None:
        with pytest.raises(UserError) as refused:
            store.get(bad)
        assert refused.value.condition == "BAD_PATH"

    def test_of_many_that_count_up_at_once_none_is_lost(self, address: str, path: str) -> None:
        each, workers = 40, 4

        def count(_: int) -> int:
            store = self.open_store(address)
            lost = done = 0
            while done < each:
                found = store.get(path)
                if found is None:
                    done += store.create(path, b"1") is not None
                    continue
                number = b"%d" % (int(found.value) + 1)
                won = store.replace(path, number, found.version) is not None
                done, lost = done + won, lost + (not won)
            store.close()
            return lost

        with ThreadPoolExecutor(workers) as pool:
            lost = sum(pool.map(count, range(workers)))
        store = self.open_store(address)
        found = store.get(path)
        store.close()
        assert found is not None
        assert int(found.value) == each * workers
        assert lost >= 0

    def test_a_writer_killed_at_any_moment_leaves_a_store_that_works(
        self, store: Store, path: str, child: Callable[..., Child]
    ) -> None:
        highest = 0
        for _ in range(4):
            writer = child(count_forever, path)
            before = highest
            wait_until(lambda: read_count(store, path) >= before + 25)  # noqa: B023
            writer.kill()
            highest = read_count(store, path)
            assert highest == read_count(store, path)
        found = store.get(path)
        assert found is not None
        assert store.replace(path, b"end", found.version) is not None

    # -- waiting ---------------------------------------------------------------------------------

    def test_a_waiter_sees_a_new_a_changed_and_a_deleted_record(
        self, store: Store, other: Store, path: str
    ) -> None:
        def wait_for(seen: int | None, change: Callable[[], Any]) -> bytes | None:
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(store.wait, path, seen, DEADLINE_SECONDS)
                changed = change()
                assert changed is not None
                started = time.monotonic()
                found = waiting.result()
                assert time.monotonic() - started < DEADLINE_SECONDS / 2
                return None if found is None else found.value

        assert wait_for(None, lambda: other.create(path, b"1")) == b"1"
        first = store.get(path)
        assert first is not None
        assert wait_for(first.version, lambda: other.replace(path, b"2", first.version)) == b"2"
        second = store.get(path)
        assert second is not None
        assert wait_for(second.version, lambda: other.delete(path, second.version)) is None

    def test_a_waiter_without_news_comes_back_in_time(self, store: Store, path: str) -> None:
        started = time.monotonic()
        assert store.wait(path, None, 0.2) is None
        assert 0.19 <= time.monotonic() - started < DEADLINE_SECONDS / 2

    def test_a_waiter_who_is_behind_does_not_wait(self, store: Store, path: str) -> None:
        version = store.create(path, b"1")
        found = store.wait(path, None, LONG_SECONDS)
        assert found is not None
        assert found.version == version

    # -- sessions and members --------------------------------------------------------------------

    def test_a_session_lives_until_it_is_closed(self, store: Store, other: Store) -> None:
        session = store.start_session(SESSION_SECONDS)
        deadline = time.monotonic() + 2 * SESSION_SECONDS
        while time.monotonic() < deadline:
            assert session.is_held()
            assert other.is_alive(session.id)
            time.sleep(0.05)
        session.close()
        assert not session.is_held()
        wait_until(lambda: not other.is_alive(session.id))
        session.close()

    def test_a_session_whose_process_is_known_to_be_gone_ends_at_once(
        self, store: Store, other: Store
    ) -> None:
        session = store.start_session(5 * SESSION_SECONDS)
        assert other.is_alive(session.id)
        other.end_session(session.id)
        assert not other.is_alive(session.id)
        assert not store.is_alive(session.id)
        wait_until(lambda: not session.is_held())  # had it been wrong, its process would find out
        other.end_session(session.id)
        session.close()

    def test_members_come_and_go_with_their_sessions(self, store: Store, other: Store, path: str) -> None:
        one, two = store.start_session(LONG_SECONDS), other.start_session(LONG_SECONDS)
        assert other.members(path) == {}
        assert one.join(path, "a", b"first")
        assert two.join(path, "b", b"second")
        assert not two.join(path, "a", b"mine")
        assert store.members(path) == other.members(path) == {"a": b"first", "b": b"second"}
        assert one.join(path, "a", b"changed")
        assert other.members(path)["a"] == b"changed"
        two.leave(path, "b")
        two.leave(path, "a")  # another's
        assert other.members(path) == {"a": b"changed"}
        one.close()
        wait_until(lambda: other.members(path) == {})
        assert two.join(path, "a", b"now mine")
        two.close()

    def test_a_killed_process_is_no_member_any_more(
        self, store: Store, path: str, child: Callable[..., Child]
    ) -> None:
        member = child(join_as_member, path)
        session = member.receive()
        assert store.members(path) == {"child": b"here"}
        assert store.is_alive(session)
        member.kill()
        wait_until(lambda: store.members(path) == {})
        assert not store.is_alive(session)
        ours = store.start_session(LONG_SECONDS)
        assert ours.join(path, "child", b"again")
        ours.close()

    def test_an_observer_that_was_paused_itself_does_not_end_a_living_session(
        self, store: Store, child: Callable[..., Child]
    ) -> None:
        session = store.start_session(SESSION_SECONDS)
        observer = child(observe, session.id)
        assert observer.receive() is True
        observer.signal(signal.SIGSTOP)
        time.sleep(2 * SESSION_SECONDS)  # what the observer misses
        observer.signal(signal.SIGCONT)
        observer.send("look")
        assert observer.receive() is True
        assert session.is_held()
        session.close()

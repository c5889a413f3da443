"""The store on files under what the contract does not cover: writers paused at any step, and failures of its disk."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.coordination import contract, files
from penstock.coordination.address import open_store
from penstock.coordination.contract import HOLDER_SHARE
from penstock.coordination.files import FileStore
from penstock.coordination.lease import acquire
from penstock.errors import ExternalError, UserError
from penstock.testing.manual_clock import ManualClock


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store", durable=False)


@pytest.mark.parametrize("changes", [1, 3, 40])
def test_a_writer_paused_before_its_change_does_not_restore_an_old_version(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """Not even if the file name of its version was used and removed in the meantime."""
    first = store.create("a", b"0")
    assert first is not None
    link = os.link

    def pause(*arguments: Any) -> None:
        monkeypatch.undo()
        version = first
        for number in range(changes):
            version = store.replace("a", b"%d" % (number + 1), version) or 0
            assert version
        link(*arguments)

    monkeypatch.setattr(os, "link", pause)
    assert store.replace("a", b"late", first) is None
    found = store.get("a")
    assert found is not None
    assert found.value == b"%d" % changes


def test_old_versions_and_temporary_files_of_killed_writers_are_removed(store: FileStore) -> None:
    version = store.create("a", b"")
    folder = store.directory / "records" / "a"
    (folder / ".draft-of-one-who-was-killed").write_bytes(b"half")
    for _ in range(100):
        assert version is not None
        version = store.replace("a", b"", version)
    assert len(os.listdir(folder)) < 20


def test_a_session_ends_for_its_holder_before_it_ends_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    for module in (contract, files):
        monkeypatch.setattr(module, "clock", clock)
    store = FileStore(tmp_path)
    session = files.FileSession(store, 1000.0)  # its own heartbeats come too late for this test
    assert store.is_alive(session.id)
    clock.turn(1000.0 * HOLDER_SHARE - 1)
    assert session.is_held()
    clock.turn(2)
    assert not session.is_held()
    assert store.is_alive(session.id)
    clock.turn(1000.0)
    assert not store.is_alive(session.id)
    clock.turn(-3000.0)
    assert not session.is_held()  # a session that has ended stays ended
    assert not session._send_heartbeat()
    session.close()


def test_a_heartbeat_after_the_end_revives_no_session(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    session = store.start_session(0.3)
    os.unlink(tmp_path / "sessions" / session.id)  # as an observer does that saw no heartbeat
    assert session.ended.wait(60)
    assert not session.is_held()
    assert not store.is_alive(session.id)
    session.close()


@pytest.mark.slow
def test_a_holder_continues_without_the_store_until_its_lease_ends(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    session = store.start_session(5.0)
    lease = acquire(store, "office", session)
    assert lease is not None
    shutil.move(tmp_path / "store", tmp_path / "moved")
    (tmp_path / "store").write_text("not a directory")
    lease.check()
    assert session.ended.wait(60)
    with pytest.raises(ExternalError) as lost:
        lease.check()
    assert lost.value.condition == "LEASE_LOST"
    with pytest.raises(ExternalError) as unavailable:
        store.get("office")
    assert unavailable.value.condition == "STORE_UNAVAILABLE"
    session.close()


def test_an_unavailable_store_is_not_an_empty_one(tmp_path: Path) -> None:
    """While a file system is unmounted no session ends, and no second store is created at its path."""
    store = FileStore(tmp_path / "store")
    session = store.start_session(30.0)
    lease = acquire(store, "office", session)
    assert lease is not None
    os.rename(tmp_path / "store", tmp_path / "moved")
    for attempt in (
        lambda: store.get("office"),
        lambda: store.create("office", b""),
        lambda: store.is_alive(session.id),
        lambda: session._send_heartbeat(),
        lambda: store.start_session(30.0),
        lambda: session.join("group", "name", b""),
    ):
        with pytest.raises(ExternalError) as unavailable:
            attempt()
        assert unavailable.value.condition == "STORE_UNAVAILABLE"
    assert not (tmp_path / "store").exists()
    os.rename(tmp_path / "moved", tmp_path / "store")
    assert session._send_heartbeat()
    lease.check()
    session.close()


def test_a_lease_record_that_another_replaced_is_detected(store: FileStore) -> None:
    session, other = store.start_session(5.0), store.start_session(30.0)
    lease = acquire(store, "office", session)
    assert lease is not None
    record = store.get("office")
    assert record is not None
    assert store.replace("office", b'{"generation": 9, "session": null}', record.version)
    deadline = contract.clock() + 60
    while lease.is_held() and contract.clock() < deadline:
        session.ended.wait(0.02)
    with pytest.raises(ExternalError) as lost:
        lease.check()
    assert lost.value.condition == "FENCED"
    session.close()
    next_lease = acquire(store, "office", other)
    assert next_lease is not None
    assert next_lease.generation == 10
    other.close()


def test_an_address_names_a_store(tmp_path: Path) -> None:
    assert open_store(str(tmp_path / "a")).describe() == str(tmp_path / "a")
    assert open_store(f"file://{tmp_path}/b").describe() == f"{tmp_path}/b"
    with pytest.raises(UserError) as refused:
        open_store("redis://here")
    assert refused.value.condition == "BAD_ADDRESS"


def test_sessions_of_processes_killed_long_ago_are_removed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    folder = tmp_path / "sessions"
    living = store.start_session(2.0)
    for name, timeout, age in (("old", 2.0, 200_000), ("slow", 100_000.0, 200_000), ("young", 2.0, 3_600)):
        (folder / name).write_text(f"{0:020d} {timeout}\n")
        at = time.time() - age
        os.utime(folder / name, (at, at))
    another = store.start_session(2.0)
    assert {path.name for path in folder.iterdir()} == {living.id, another.id, "slow", "young"}
    assert living.is_held()
    assert store.is_alive(living.id)
    living.close()
    assert not store.is_alive(living.id)
    assert living.id not in store._pulses, "nothing is remembered of a session that has ended"
    another.close()

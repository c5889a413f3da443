"""The key of a state directory: one for all its coordinators, and readable by their user alone."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from penstock.coordination.shared_key import KEY_FILE, SharedKey, shared_key
from penstock.errors import UserError


def test_all_processes_of_a_state_directory_have_one_key(tmp_path: Path) -> None:
    signatures: set[str] = set()
    start = threading.Barrier(8)

    def sign() -> None:
        start.wait()
        signatures.add(shared_key(tmp_path).sign("test", "a"))

    threads = [threading.Thread(target=sign) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(signatures) == 1
    assert shared_key(tmp_path).verifies(signatures.pop(), "test", "a")
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    (tmp_path / "other").mkdir()
    assert not shared_key(tmp_path / "other").verifies(shared_key(tmp_path).sign("test", "a"), "test", "a")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    shared_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(UserError) as refused:
        shared_key(tmp_path)
    assert refused.value.condition == "TOKEN_FILE_OPEN"


def test_parts_cannot_be_shifted_into_each_other() -> None:
    key = SharedKey(b"secret")
    signatures = {
        key.sign("a", "b", "c"),
        key.sign("a", "bc"),
        key.sign("ab", "c"),
        key.sign("a", "b", "c", ""),
    }
    assert len(signatures) == 4
    assert key.sign("a", "ä") == key.sign("a", "ä".encode())

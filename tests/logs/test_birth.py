"""The time of a file's creation distinguishes a new file from one that was renamed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.logs.birth import birth_of, may_be_same


def birth_at(path: Path) -> int:
    with open(path, "rb") as file:
        return birth_of(file.fileno())


@pytest.mark.may_skip("a file system that stores when files were created")
def test_a_file_keeps_its_birth_whatever_happens_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x\n")
    born = birth_at(path)
    if not born:
        pytest.skip("nobody knows here when files were created")
    os.utime(path, (0, 0))
    path.rename(tmp_path / "b")
    os.truncate(tmp_path / "b", 0)
    assert birth_at(tmp_path / "b") == born


def test_an_unknown_birth_may_be_any() -> None:
    assert may_be_same(0, 5)
    assert may_be_same(5, 5)
    assert not may_be_same(4, 5)
    assert birth_of(-1) == 0

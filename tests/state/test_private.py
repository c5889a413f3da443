"""Directories that another user could have prepared, or can change, are not used; what is created is private."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from penstock.coordination.files import FileStore
from penstock.engine.job_server import socket_of
from penstock.errors import InternalError, UserError
from penstock.state import cache as cache_module
from penstock.state.cache import HostCache, default_cache_root
from penstock.state.directory import StateDirectory
from penstock.state.durable import make_private, write_once, write_whole
from penstock.state.private import check_private, check_writers, find_others

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
root_alone = pytest.mark.may_skip("root, who alone can give a directory to another user")
FRAME = pl.DataFrame({"x": [1, 2]})


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_created_is_private_at_any_umask(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    write_whole(tmp_path / "c" / "file", b"rows")
    write_once(tmp_path / "c" / "once", b"rows")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "c")] == [0o700] * 3
    assert [mode(tmp_path / "c" / name) for name in ("file", "once")] == [0o600] * 2


def test_a_cache_is_private_at_any_umask(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "root" / "one", 1 << 20)
    cache.claim()
    cache.put("a/1.run", FRAME)
    cache.put("a/1.run@0", FRAME)
    for path in (tmp_path / "root").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert cache.has("a/1.run")


@pytest.mark.parametrize("writable", ["directory", "root"])
def test_a_cache_that_others_can_change_is_not_used(tmp_path: Path, writable: str) -> None:
    there = HostCache(tmp_path / "root" / "one", 1 << 20)
    there.put("a/1.run", FRAME)
    (tmp_path / "root" / ("one" if writable == "directory" else "")).chmod(0o777)
    cache = HostCache(tmp_path / "root" / "one", 1 << 20)
    cache.claim()
    cache.put("a/2.run", FRAME)
    assert not cache.has("a/1.run")
    assert cache.get("a/1.run") is None
    assert cache.get("a/2.run") is None
    assert {path.name for path in cache.directory.iterdir()} == {"a_1.run.arrow"}


def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    make_private(tmp_path / "elsewhere")
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    assert find_others(tmp_path / "linked") is not None
    assert find_others(tmp_path / "linked" / "below") is None, (
        "a link of our own above it is as good as its target"
    )
    with pytest.raises(UserError, match="NOT_PRIVATE"):
        check_private(tmp_path / "linked")


@root_alone
@as_root
def test_a_directory_that_another_user_has_created_first_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shared.chmod(0o1777)
        taken = shared / f"penstock-{os.getuid()}"
        taken.mkdir(mode=0o777)
        os.chown(taken, OTHER, OTHER)
        cache = HostCache(taken / "one", 1 << 20)
        cache.put("a/1.run", FRAME)
        assert not cache.has("a/1.run")
        with pytest.raises(UserError, match="belongs to user 65534"):
            check_private(taken / "one")
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        with pytest.raises(InternalError, match="SOCKET_FOLDER_TAKEN"):
            socket_of(tmp_path)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(cache_module, "SHARED_MEMORY", shared)
        assert default_cache_root() == tmp_path / taken.name, "another place is used instead"
        shutil.rmtree(taken)
        assert default_cache_root() == taken
    finally:
        shutil.rmtree(shared)


def test_state_and_stores_that_others_can_write_are_refused(tmp_path: Path) -> None:
    for name in ("state", "store"):
        (tmp_path / name).mkdir(mode=0o777)
    with pytest.raises(UserError) as refused:
        StateDirectory(tmp_path / "state").claim("query", "{}")
    assert refused.value.condition == "NOT_PRIVATE"
    assert "chmod -R go-w" in refused.value.text()
    assert list((tmp_path / "state").iterdir()) == []
    with pytest.raises(UserError, match="NOT_PRIVATE"):
        FileStore(tmp_path / "store")
    (tmp_path / "state").chmod(0o755)
    check_writers(tmp_path / "state")
    StateDirectory(tmp_path / "state").claim("query", "{}")


@root_alone
@as_root
def test_state_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    os.chown(tmp_path / "state", OTHER, OTHER)
    with pytest.raises(UserError, match="belongs to user 65534"):
        StateDirectory(tmp_path / "state").claim("query", "{}")

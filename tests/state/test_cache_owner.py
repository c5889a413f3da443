"""Directories in a host's cache are removed when the process that owns them has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from penstock.state.cache import HostCache
from tests.ha.waiting import wait_until

pytestmark = pytest.mark.process


def test_directories_of_ended_processes_are_removed_and_others_are_kept(tmp_path: Path) -> None:
    ended, running = tmp_path / "ended", tmp_path / "running"
    program = "import sys; from pathlib import Path; from penstock.state.cache import HostCache; " + (
        "HostCache(Path(sys.argv[1]), 0).claim()"
    )
    subprocess.run([sys.executable, "-c", program, str(ended)], check=True)
    assert ended.is_dir()
    cache = HostCache(running, 1 << 20)
    cache.claim()
    assert not ended.exists()
    cache.put("a/1.run", pl.DataFrame({"x": [1, 2]}))
    HostCache(tmp_path / "another", 0).claim()
    cached = cache.get("a/1.run")
    assert cached is not None
    assert cached["x"].to_list() == [1, 2]


def test_a_new_executor_keeps_the_frames_in_the_spill_directory(tmp_path: Path) -> None:
    engine = HostCache(tmp_path / "engine", 1 << 20)
    engine.claim()
    spill = tmp_path / "engine" / "spill"
    spill.mkdir()
    (spill / "frame.arrow").write_bytes(b"a frame")
    stale = tmp_path / "engine" / "executor-7"
    stale.mkdir()
    (stale / "owner").write_text("99999999")
    engine.for_executor("8").claim()
    assert (spill / "frame.arrow").exists()
    assert not stale.exists()


def test_the_cache_of_an_executor_is_removed_when_its_process_ends(tmp_path: Path) -> None:
    host = HostCache(tmp_path / "host", 1 << 20)
    with subprocess.Popen(["sleep", "90"]) as owner, subprocess.Popen(["sleep", "90"]) as other:
        for name, process in (("1", owner), ("2", other)):
            cache = host.for_executor(name)
            cache.claim(process.pid)
            cache.put("a/run", pl.DataFrame({"x": [1]}))
            for _ in range(2):
                cache.remove_after(process.pid)
        host.for_executor("3").claim(owner.pid)
        host.for_executor("3").remove_after(owner.pid)
        host.for_executor("3").claim(os.getpid())  # another process owns it now
        owner.kill()
        owner.wait()
        wait_until("the cache is removed", lambda: not host.for_executor("1").directory.exists())
        assert host.for_executor("2").has("a/run")
        assert host.for_executor("3").directory.exists()
        host.for_executor("3").clear()
        other.kill()
        other.wait()
        wait_until("the host's cache is removed", lambda: not host.directory.exists())

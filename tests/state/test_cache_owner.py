"""A host's cache is cleared of what engines that are gone have left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from penstock.state.cache import HostCache

pytestmark = pytest.mark.process


def test_directories_of_processes_that_are_gone_are_cleared_and_others_are_left(tmp_path: Path) -> None:
    gone, alive = tmp_path / "gone", tmp_path / "alive"
    program = "import sys; from pathlib import Path; from penstock.state.cache import HostCache; " + (
        "HostCache(Path(sys.argv[1]), 0).claim()"
    )
    subprocess.run([sys.executable, "-c", program, str(gone)], check=True)
    assert gone.is_dir()
    mine = HostCache(alive, 1 << 20)
    mine.claim()
    assert not gone.exists()
    mine.put("a/1.run", pl.DataFrame({"x": [1, 2]}))
    HostCache(tmp_path / "another", 0).claim()
    kept = mine.get("a/1.run")
    assert kept is not None
    assert kept["x"].to_list() == [1, 2]


def test_an_executor_that_comes_leaves_frames_on_their_way_alone(tmp_path: Path) -> None:
    engine = HostCache(tmp_path / "engine", 1 << 20)
    engine.claim()
    spill = tmp_path / "engine" / "spill"
    spill.mkdir()
    (spill / "frame.arrow").write_bytes(b"on its way")
    left = tmp_path / "engine" / "executor-7"
    left.mkdir()
    (left / "owner").write_text("99999999")
    engine.for_executor("8").claim()
    assert (spill / "frame.arrow").exists()
    assert not left.exists()


def test_the_cache_of_an_executor_ends_with_its_process(tmp_path: Path) -> None:
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
        host.for_executor("3").claim(os.getpid())  # another has it by now
        owner.kill()
        owner.wait()
        until(lambda: not host.for_executor("1").directory.exists())
        assert host.for_executor("2").has("a/run")
        assert host.for_executor("3").directory.exists()
        host.for_executor("3").clear()
        other.kill()
        other.wait()
        until(lambda: not host.directory.exists())


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""A host's cache is cleared of what engines that are gone have left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl

from penstock.state.cache import HostCache


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
    shelf = tmp_path / "engine" / "shelf"
    shelf.mkdir()
    (shelf / "frame.arrow").write_bytes(b"on its way")
    left = tmp_path / "engine" / "executor-7"
    left.mkdir()
    (left / "owner").write_text("99999999")
    engine.of("8").claim()
    assert (shelf / "frame.arrow").exists()
    assert not left.exists()

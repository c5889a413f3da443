"""Dead letters, late events and skipped spans: in few files, for this user alone, and not for ever."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.delivery.side_output import SideOutput, SideOutputFile, SideOutputLimits, choose_old
from penstock.server.inventory import side_output_rows
from penstock.sinks.files import PrivateJsonLines
from penstock.testing.inline import InlineEngine
from tests.delivery.kit import Numbers, app_of
from tests.delivery.kit import Switched as Away

DAY = 86_400.0


def rows_of(epoch: int, why: str = "dead", size: int = 10) -> pl.DataFrame:
    row = {
        "stream": "events",
        "why": why,
        "partition": "p",
        "offset": epoch,
        "raw": "x" * size,
        "reason": f"r{epoch}",
    }
    return pl.DataFrame([row])


def written(directory: Path, epochs: range, **more: Any) -> SideOutput:
    sink = SideOutput(directory)
    sink.take_over(1)
    for epoch in epochs:
        assert sink.write(epoch, rows_of(epoch, **more))
    return sink


def offsets(directory: Path, why: str = "dead") -> list[int]:
    return [
        json.loads(line)["offset"]
        for path in sorted((directory / why / "events").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_epochs_share_a_file_and_are_there_once(tmp_path: Path) -> None:
    sink = written(tmp_path, range(50))
    assert offsets(tmp_path) == list(range(50))
    assert len(list((tmp_path / "dead" / "events").glob("*.jsonl"))) == 1
    assert not any(sink.write(epoch, rows_of(epoch)) for epoch in range(50))
    again = SideOutput(tmp_path)
    again.take_over(2)
    assert not again.write(49, rows_of(49))
    assert again.write(50, rows_of(50))
    assert offsets(tmp_path) == list(range(51))


def test_only_this_user_can_read_them(tmp_path: Path) -> None:
    former = os.umask(0o022)
    try:
        written(tmp_path, range(3))
    finally:
        os.umask(former)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "dead" / "events").rglob("*")}
    files = {path.name: oct(mode) for path, mode in found.items() if path.suffix in (".jsonl", ".json")}
    assert files
    assert set(files.values()) == {"0o600"}
    assert stat.S_IMODE((tmp_path / "dead" / "events").stat().st_mode) == 0o700


def test_files_of_former_versions_are_read_and_continued(tmp_path: Path) -> None:
    folder = tmp_path / "dead" / "events"
    folder.mkdir(parents=True)
    (folder / ".penstock-job").write_text("dead-events")
    for epoch in range(3):
        (folder / f"epoch-{epoch:012d}.jsonl").write_text(
            json.dumps({"offset": epoch, "reason": "old"}) + "\n"
        )
    sink = written(tmp_path, range(3, 6))
    assert not sink.write(2, rows_of(2))
    assert offsets(tmp_path) == list(range(6))
    latest = side_output_rows(folder, committed=4, limit=4)
    assert [(row["epoch"], row["offset"]) for row in latest] == [(4, 4), (3, 3), (2, 2), (1, 1)]


def test_the_latest_rows_have_their_epochs(tmp_path: Path) -> None:
    written(tmp_path, range(0, 40, 2))
    folder = tmp_path / "dead" / "events"
    assert [row["epoch"] for row in side_output_rows(folder, committed=30, limit=3)] == [30, 28, 26]
    assert [row["offset"] for row in PrivateJsonLines(folder).latest_rows(2)] == [38, 36]


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = written(tmp_path, range(6), size=1_000_000)  # a file each
    written(tmp_path, range(2), why="late", size=10)
    with caplog.at_level(logging.WARNING):
        sink.prune(SideOutputLimits(bytes=3_100_000), at_once=True)
    assert offsets(tmp_path) == [3, 4, 5]
    assert offsets(tmp_path, "late") == [0, 1], "the newest file of each directory stays"
    assert "removed 3 files with 3,000" in caplog.text.replace("3000", "3,000")
    assert len(list((tmp_path / "dead" / "events" / ".epochs").iterdir())) == 3
    assert sink.write(6, rows_of(6))
    assert not sink.write(5, rows_of(5)), "what stays is known"


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    sink = written(tmp_path, range(4), size=1_000_000)
    long_ago = time.time() - 31 * DAY
    for path in sorted((tmp_path / "dead" / "events").glob("*.jsonl"))[:2]:
        os.utime(path, (long_ago, long_ago))
    sink.prune(SideOutputLimits())
    assert offsets(tmp_path) == [2, 3]
    for path in (tmp_path / "dead" / "events").glob("*.jsonl"):
        os.utime(path, (long_ago, long_ago))
    sink.prune(SideOutputLimits())
    assert offsets(tmp_path) == [2, 3], "not again at once"
    sink.prune(SideOutputLimits(), at_once=True)
    assert offsets(tmp_path) == [3], "the newest one stays"


def test_age_counts_before_size() -> None:
    def file(days: float) -> SideOutputFile:
        return SideOutputFile(PrivateJsonLines("x"), Path(str(days)), 100, -days * DAY)

    files = [file(days) for days in (1, 40, 3, 50, 2)]
    chosen = choose_old(files, 500, SideOutputLimits(250, 30.0), 0.0)
    assert [str(one.path) for one in chosen] == ["50", "40", "3"]
    assert choose_old(files[:1], 100, SideOutputLimits(), 0.0) == []


def test_an_engine_removes_them(tmp_path: Path) -> None:
    numbers = Numbers()
    engine = InlineEngine(app_of(numbers, out=Away()), tmp_path / "state")
    try:
        for at in range(3):
            numbers.log.add("p0", f"broken {at} " + "x" * 1_100_000)
            numbers.add(1)
            engine.step()
        folder = tmp_path / "state" / "dead" / "numbers"
        assert len(list(folder.glob("*.jsonl"))) >= 1
        long_ago = time.time() - 31 * DAY
        before = sorted(folder.glob("*.jsonl"))
        for path in before:
            os.utime(path, (long_ago, long_ago))
        engine.remove_old_state(2)
    finally:
        engine.close()
    assert sorted(folder.glob("*.jsonl")) == before[-1:]

"""Manifests and epoch records forget partitions that are gone; results, replays and rollbacks stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.state.directory import StateDirectory
from penstock.state.rollback import roll_back
from penstock.testing.inline import InlineEngine
from penstock.testing.list_sink import ListSink
from penstock.testing.manual_clock import PassingClock

FILES = 20


def write_file(directory: Path, number: int) -> Path:
    """Ten events, ten seconds of event time each."""
    path = directory / f"{number:03d}.log"
    path.write_text(
        "".join(f'{{"time": {(number * 10 + i) * 1_000_000}, "user": "u{i % 3}"}}\n' for i in range(10))
    )
    return path


class RotatingApp:
    """Windows over files that come and go."""

    def __init__(self, directory: Path) -> None:
        self.logs, self.state, self.sink = directory / "logs", directory / "state", ListSink()
        self.logs.mkdir(parents=True)
        self.clock = PassingClock()
        self.start()

    def start(self) -> None:
        decoder = ps.json_lines({"time": pl.Datetime("us"), "user": pl.String}, times={"time": "us"})
        events = ps.stream("events", ps.files(str(self.logs / "*.log")), decoder, time="time", lateness="2s")
        counts = events.key_by("user").window("7s").aggregate(ps.count())
        self.engine = InlineEngine(
            ps.app("rotating", ps.output("counts", counts, self.sink)), self.state, clock=self.clock
        )

    def read(self) -> None:
        """Epochs until all is read, and long enough for a file that is gone to be idle."""
        for _ in range(3):
            list(self.engine.steps())
            self.clock.turn(10)

    def rotate(self, number: int, *, forgets: bool) -> None:
        path = write_file(self.logs, number)
        self.read()
        path.unlink()
        self.read()
        if forgets and number % 5 == 4:
            self.engine.remove_old_state(3)

    @property
    def results(self) -> list[dict[str, Any]]:
        return sorted(self.sink.rows(), key=str)

    @property
    def named(self) -> tuple[int, int]:
        """How many partitions the newest record and the newest manifest name."""
        directory = StateDirectory(self.state)
        record = directory.records.read(directory.records.newest_epoch())
        assert record is not None
        return len(record.end.at["events"]), len(directory.manifests.latest().streams["events"].partitions)


@pytest.mark.slow
def test_partitions_are_forgotten_and_results_do_not_change(tmp_path: Path) -> None:
    forgetful, other = RotatingApp(tmp_path / "forgetful"), RotatingApp(tmp_path / "other")
    for number in range(FILES):
        for app in (forgetful, other):
            app.rotate(number, forgets=app is forgetful)
            if number == FILES // 2:
                app.engine.close()
                app.start()
    assert max(forgetful.named) < 12
    assert min(other.named) == FILES
    assert forgetful.results == other.results
    assert len(forgetful.results) > FILES
    for app in (forgetful, other):
        app.engine.close()


@pytest.mark.slow
def test_a_rollback_after_partitions_were_forgotten_repeats_the_same(tmp_path: Path) -> None:
    app = RotatingApp(tmp_path)
    for number in range(10):
        app.rotate(number, forgets=True)
    paths = [write_file(app.logs, number) for number in (10, 11)]
    app.read()
    before = StateDirectory(app.state).manifests.latest()
    app.engine.close()
    results = app.results
    directory = StateDirectory(app.state)
    with directory.locked():
        roll_back(directory, before.epoch - 2)
    app.start()
    app.read()
    app.engine.close()
    after = StateDirectory(app.state).manifests.latest()
    assert after.streams == before.streams
    assert app.results == results
    assert all(path.exists() for path in paths)

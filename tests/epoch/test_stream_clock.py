"""An engine whose wall clock is days wrong emits what one with a right clock emits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.state.directory import StateDirectory
from penstock.state.rollback import roll_back
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from penstock.testing.manual_clock import ManualClock, PassingClock

NOW = 1_800_000_000
DAY = 86_400


def line(second: float) -> str:
    return json.dumps({"time": int((NOW + second) * 1e6)})


class Stream:
    """An engine over lines, with a wall clock that a test sets."""

    def __init__(self, state: Path, wall_offset_days: float, *lines: str, ahead: str = "1d") -> None:
        self.log, self.sink, self.state = ListLog({"p": list(lines)}, finished=False), ListSink(), state
        self.wall, self.ahead = ManualClock(NOW + wall_offset_days * DAY), ahead

    def run(self, epoch_units: int = 1 << 40) -> InlineEngine:
        decoder = ps.json_lines({"time": pl.Datetime("us")}, times={"time": "us"})
        events = ps.stream("events", self.log, decoder, time="time", ahead=self.ahead)
        engine = InlineEngine(
            ps.app("app", ps.output("all", events.select("time"), self.sink)),
            self.state,
            epoch_units=epoch_units,
            clock=PassingClock(),
            wall=self.wall,
        )
        list(engine.steps())
        engine.close()
        return engine

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.sink.rows()

    @property
    def clocks(self) -> list[dict[str, int]]:
        """What the epoch records have."""
        records = StateDirectory(self.state).records
        found = [records.read(epoch) for epoch in range(records.newest_epoch() + 1)]
        return [dict(record.end.clocks) for record in found if record is not None]


@pytest.mark.parametrize("days", [-20_000, -30, -3, 0, 3, 30])
@pytest.mark.parametrize("epoch_units", [7, 1 << 40])
def test_a_leader_whose_clock_is_days_wrong_delivers(
    tmp_path: Path, days: float, epoch_units: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(tmp_path, days, *(line(second) for second in range(100)))
    engine = stream.run(epoch_units)
    # an epoch of fewer events than show a time is not enough to doubt the clock
    assert len(stream.rows) >= (100 if days >= 0 or epoch_units > 10 else 93)
    is_behind = days < -1
    assert bool(engine.admission.clocks.behind_seconds) == is_behind
    assert ("the wall clock of this machine is wrong" in caplog.text) == is_behind
    assert bool(stream.clocks[-1]) == is_behind


@pytest.mark.parametrize("days", [0, -5])
@pytest.mark.parametrize("at", [0, 50, 99])
def test_a_single_wild_event_does_not_move_the_bound(tmp_path: Path, days: float, at: int) -> None:
    lines = [line(second) for second in range(100)]
    lines[at] = line(400 * DAY)
    stream = Stream(tmp_path, days, *lines)
    stream.run()
    assert len(stream.rows) == 99
    stream.log.add("p", *(line(second) for second in range(100, 200)))
    stream.run()
    assert len(stream.rows) == 199


def test_a_stream_of_one_event_an_epoch_is_believed_after_a_few(tmp_path: Path) -> None:
    stream = Stream(tmp_path, -3, *(line(60 * n) for n in range(60)))
    stream.run(epoch_units=1)
    assert len(stream.rows) > 45


def test_events_of_several_days_in_one_epoch_are_believed(tmp_path: Path) -> None:
    stream = Stream(tmp_path, -9, *(line(n * DAY / 20 - 8 * DAY) for n in range(160)))
    stream.run()
    assert len(stream.rows) == 160


def test_a_replay_believes_what_the_epoch_believed(tmp_path: Path) -> None:
    stream = Stream(tmp_path, -3, *(line(second) for second in range(100)))
    stream.run(epoch_units=40)
    clocks, rows = stream.clocks, len(stream.rows)
    directory = StateDirectory(stream.state)
    with directory.locked():
        roll_back(directory, 0)
    stream.wall.turn(-1000 * DAY)
    stream.run(epoch_units=40)
    assert stream.clocks == clocks
    assert len(stream.rows) == rows
    assert directory.manifests.latest().counters["late"] == 0


def test_a_clock_that_is_set_right_counts_again(tmp_path: Path) -> None:
    stream = Stream(tmp_path, -3, *(line(second) for second in range(50)))
    stream.run()
    stream.wall.turn(3 * DAY)
    stream.log.add("p", *(line(second) for second in range(50, 100)))
    engine = stream.run()
    assert not engine.admission.clocks.behind_seconds
    assert stream.clocks[-1] == {}
    assert len(stream.rows) == 100


def test_a_clock_that_is_set_back_while_an_engine_runs_is_noticed(tmp_path: Path) -> None:
    stream = Stream(tmp_path, 0, *(line(second) for second in range(50)))
    decoder = ps.json_lines({"time": pl.Datetime("us")}, times={"time": "us"})
    events = ps.stream("events", stream.log, decoder, time="time")
    engine = InlineEngine(
        ps.app("app", ps.output("all", events.select("time"), stream.sink)),
        tmp_path,
        clock=PassingClock(),
        wall=stream.wall,
    )
    list(engine.steps())
    stream.wall.turn(-4 * DAY)
    stream.log.add("p", *(line(second) for second in range(50, 100)))
    list(engine.steps())
    engine.close()
    assert len(stream.rows) == 100


def test_a_restart_continues_with_the_time_of_the_stream(tmp_path: Path) -> None:
    """Even where so little is read that it shows no time."""
    stream = Stream(tmp_path, -30, *(line(second) for second in range(50)))
    stream.run()
    for number in range(3):
        stream.log.add("p", line(100 + number))
        engine = stream.run()
        assert engine.admission.clocks.behind_seconds
        assert stream.clocks[-1]
    assert len(stream.rows) == 53


def test_a_restart_after_the_clock_was_set_does_not_go_back_to_the_time_of_the_stream(tmp_path: Path) -> None:
    stream = Stream(tmp_path, -30, *(line(second) for second in range(50)))
    stream.run()
    stream.wall.turn(40 * DAY)
    stream.log.add("p", line(9 * DAY))
    engine = stream.run()
    assert not engine.admission.clocks.behind_seconds
    assert stream.clocks[-1] == {}
    assert len(stream.rows) == 51

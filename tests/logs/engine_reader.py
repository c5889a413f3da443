"""Reads a log of files with a real engine: what `FileReader` does by hand, with admission, records and a sink."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl

import penstock as ps
from penstock.epoch.runner import EpochReport
from penstock.testing.inline import InlineEngine
from penstock.testing.list_sink import ListSink
from penstock.testing.manual_clock import PassingClock


def json_lines(name: str, first: int, last: int) -> bytes:
    """Lines that an engine can decode, all of one time, so that none is late."""
    made = ({"time": 1_000_000, "line": f"{name} {i} {'p' * (i % 50)}"} for i in range(first, last))
    return b"".join(json.dumps(one).encode() + b"\n" for one in made)


class EngineReader:
    """An engine on a glob, and the lines that its sink has."""

    def __init__(self, pattern: str | Path, state: Path, settle_seconds: float = 0.0) -> None:
        self._pattern, self._state, self._settle_seconds = str(pattern), state, settle_seconds
        self._sink, self._clock = ListSink(), PassingClock()
        self._start()

    def _start(self) -> None:
        decoder = ps.json_lines({"time": pl.Datetime("us"), "line": pl.String}, times={"time": "us"})
        log = ps.files(self._pattern, gz_settle_seconds=self._settle_seconds)
        events = ps.stream("s", log, decoder, time="time", lateness="1h")
        app = ps.app("reader", ps.output("lines", events, self._sink))
        self._engine = InlineEngine(app, self._state, clock=self._clock)

    def restart(self) -> None:
        """A new engine on the same state directory."""
        self._engine.close()
        self._start()

    def step(self) -> EpochReport | None:
        """One epoch, if there is a reason for one."""
        return self._engine.step()

    def settle(self) -> None:
        """Epochs until all is read, and long enough for a file that vanished to be missed."""
        for _ in range(3):
            list(self._engine.steps())
            self._clock.turn(10)

    def prune(self) -> None:
        """Retain the newest epochs only."""
        self._engine.remove_old_state(1)

    def close(self) -> None:
        self._engine.close()

    @property
    def lines(self) -> Counter[bytes]:
        """The lines of all results, as they were written."""
        rows = self._sink.rows()
        return Counter(json.dumps({"time": 1_000_000, "line": row["line"]}).encode() for row in rows)

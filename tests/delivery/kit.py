"""Sinks that are away or slow, and an engine of jobs in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.errors import ExternalError
from penstock.settings import INLINE, Settings
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink

DEADLINE = 60.0


class Switched(ListSink):
    """A sink that is away while `is_away`, blocks while `gate` is closed, and names itself."""

    def __init__(self, name: str = "switched") -> None:
        super().__init__()
        self.name, self.is_away, self.opened = name, False, 0
        self.gate = threading.Event()
        self.gate.set()
        self.raises: Exception | None = None
        self.closed = False

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        self._check()
        self.opened += 1
        super().open(job, schema)

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        self.gate.wait(DEADLINE)
        self._check()
        return super().write(epoch, rows)

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.raises is not None:
            raise self.raises
        if self.is_away:
            raise ExternalError("SINK_UNWRITABLE", f"{self.name} is away", is_transient=True)

    def describe(self) -> str:
        return self.name

    def numbers(self) -> list[int]:
        """The numbers in its rows, in the order in which it got them."""
        return [row["n"] for row in self.rows()]


def wait_until(is_reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_reached():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


class Numbers:
    """A growing stream of the numbers from 0 on."""

    def __init__(self) -> None:
        self.log = ListLog({"p0": []}, finished=False)
        self.count = 0
        decoder = ps.json_lines({"at": ps.Datetime("us", "UTC"), "n": ps.Int64})
        self.stream = ps.stream("numbers", self.log, decoder, time="at", lateness=0)

    def add(self, count: int) -> None:
        first, self.count = self.count, self.count + count
        times = (
            f"2026-03-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z" for n in range(first, self.count)
        )
        self.log.add("p0", *(f'{{"at": "{at}", "n": {n}}}' for n, at in enumerate(times, first)))


def settings_of(folder: Path, **more: Any) -> Settings:
    state = folder / "state"
    return replace(Settings(state=state, master=INLINE, drain=False, epoch_interval_seconds=0.0), **more)


def app_of(numbers: Numbers, **sinks: ListSink) -> ps.App:
    """An app with an output for each sink."""
    rows = numbers.stream.select("n")
    return ps.app("numbers", *(ps.output(name, rows, sink) for name, sink in sinks.items()))


@contextlib.contextmanager
def running(program: Program | ps.App, settings: Settings) -> Iterator[Engine]:
    """Run an engine in a thread. Raises what ended it."""
    engine, failures = Engine(program, settings), list[BaseException]()

    def run() -> None:
        try:
            engine.run()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield engine
    finally:
        engine.stop()
        thread.join(DEADLINE)
        assert not thread.is_alive(), "the engine does not stop"
    if failures:
        raise failures[0]


def jobs_of(numbers: Numbers, state: Path, sql: str) -> Program:
    """Jobs of SQL on the stream of numbers."""
    return Program("numbers", state, streams={"numbers": numbers.stream}, begin=sql)

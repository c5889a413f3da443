"""An engine that crashes at a step of an epoch and restarts, in one process; and a sink that is not idempotent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.epoch import admission, stages
from penstock.epoch import runner as epoch
from penstock.epoch import slice as slices
from penstock.epoch.kill_points import StepName
from penstock.epoch.recovery import RecoveryOutcome
from penstock.ha.schemes import Semantics
from penstock.query.stream import Stream
from penstock.settings import Settings
from penstock.sinks.contract import Sink
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from tests import golden_query as golden

#: of an epoch, and in all
UNITS, LINES = 20, 200
BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Crashed(BaseException):
    """The engine's process has ended."""


class Crash:
    """Ends the engine once, at the step and epoch of `at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: tuple[str, int] | None = None
        for module in (admission, epoch, slices, stages):
            monkeypatch.setattr(module, "reached", self)

    def __call__(self, step: StepName, number: int, engine_pid: int | None = None) -> None:
        if self.at == (step, number):
            self.at = None
            raise Crashed


@contextmanager
def crash_at(step: str, epoch: int) -> Iterator[None]:
    """Let the engine that runs inside crash at a step of an epoch, once."""
    with pytest.MonkeyPatch.context() as patch:
        Crash(patch).at = (step, epoch)
        yield


class NonIdempotentSink(Sink):
    """A sink without deduplication: an epoch that is delivered twice is in it twice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([epoch, *row], default=str)}\n" for row in rows.iter_rows())
        return True

    def describe(self) -> str:
        return str(self.path)


def read_rows(folder: Path, name: str) -> list[list[Any]]:
    """Return the rows of a sink without deduplication, each after its epoch."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def seconds() -> Stream:
    """Return a stream of events a second apart, in one partition: an epoch is the next UNITS of them."""
    lines = {"p0": [f"{(BEGIN + timedelta(seconds=n)).isoformat()},u{n % 3},/a,1.0" for n in range(LINES)]}
    return ps.stream("events", ListLog(lines), golden.decoder(), time="time", lateness=0)


def run_engine(
    app: ps.App, folder: Path, semantics: Semantics = Semantics.precise, every: int = 4
) -> RecoveryOutcome:
    """Run an engine on a folder until it crashes, or has read everything."""
    options: dict[str, Any] = {"epoch_units": UNITS, "checkpoint_every": every, "semantics": semantics}
    engine = InlineEngine(app, folder / "state", **options)
    try:
        for _ in engine.steps():
            pass
        engine.runner.checkpoint()
    except Crashed:
        pass
    finally:
        engine.close()
    return engine.recovery


def crash_in_epoch_6(
    build: Callable[[], ps.App], folder: Path, crash: Crash, semantics: Semantics
) -> RecoveryOutcome:
    """Epoch 3 is durable; epochs 4 and 5 are emitted; the engine crashes in epoch 6 after it has written its runs."""
    crash.at = ("sliced", 6)
    assert not run_engine(build(), folder, semantics).has_epochs
    assert StateDirectory(folder / "state").manifests.latest().epoch == 3
    return run_engine(build(), folder, semantics)


def settings(folder: Path, units: int = UNITS, **more: Any) -> Settings:
    """Return settings of an engine without Spark that runs to the end, with a durable manifest every four epochs."""
    return Settings(
        state=folder / "state",
        master="inline",
        drain=True,
        most_epoch_units=units,
        first_epoch_units=units,
        epoch_interval_seconds=0.0,
        checkpoint_every=4,
        cache_root=folder / "memory",
        **more,
    )

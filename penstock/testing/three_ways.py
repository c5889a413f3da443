"""Run a query three ways: straight; with other epoch sizes; killed at every step and resumed with other slices.

All runs must emit the same rows. Otherwise an assertion names the run that differs. Spark and processes are real: a
killed run is a process of its own that SIGKILL ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cloudpickle

from penstock.engine.engine import Engine
from penstock.epoch.kill_points import STEPS, StepName
from penstock.query.logical import App
from penstock.settings import Settings
from penstock.spark.session import SparkSession

#: builds the app; its outputs must be JSON-lines sinks below the directory it is given
Build = Callable[[Path], App]
Rows = dict[str, list[str]]

_CHILD = "import sys; from penstock.testing.three_ways import child; child(sys.argv[1])"


@dataclass(frozen=True)
class Way:
    """One way of running a query: how epochs and slices are cut, and where it is killed."""

    epoch_units: int
    slices: int
    killed_at: StepName | None = None
    killed_in_epoch: int = 1
    resumed_slices: int = 3
    checkpoint_every: int = 1

    def __str__(self) -> str:
        cut = f"epochs of {self.epoch_units} units, {self.slices} slices"
        if self.checkpoint_every > 1:
            cut += f", durable every {self.checkpoint_every}"
        if self.killed_at is None:
            return cut
        return (
            f"{cut}, killed at {self.killed_at} of epoch {self.killed_in_epoch}, then {self.resumed_slices}"
        )


def ways(
    *, straight: int = 1 << 40, others: Iterable[int] = (37, 250), kill_units: int = 120, kill: bool = True
) -> list[Way]:
    """The usual ways: straight, other epoch sizes, and a kill at every step of an epoch."""
    found = [Way(straight, 2), *(Way(units, slices) for units, slices in zip(others, (1, 3), strict=False))]
    return found + [Way(kill_units, 2, step) for step in STEPS] if kill else found


def three_ways(build: Build, folder: Path, spark: SparkSession, chosen: Iterable[Way]) -> Rows:
    """Run the query each way; fails if one emits other rows than the first."""
    first: Rows | None = None
    for number, way in enumerate(chosen):
        rows = run_way(build, folder / str(number), spark, way)
        if first is None:
            first = rows
            assert any(first.values()), "the query emits no rows: there is nothing to compare"
        assert rows == first, f"other rows with {way}: {_difference(first, rows)}"
    assert first is not None
    return first


def run_way(build: Build, folder: Path, spark: SparkSession, way: Way) -> Rows:
    """Run the query one way and read the rows of its sinks."""
    folder.mkdir(parents=True, exist_ok=True)
    slices = way.slices
    if way.killed_at is not None:
        killed = run_killed(build, folder, way)
        assert killed, (
            f"the engine did not come to {way.killed_at} of epoch {way.killed_in_epoch}, where it should die"
        )
        slices = way.resumed_slices
    settings = _settings(folder, way.epoch_units, slices, way.checkpoint_every)
    _run(build, folder / "out", settings, spark)
    return rows_below(folder / "out")


def run_killed(build: Build, folder: Path, way: Way) -> bool:
    """Run the query in a process of its own until it is killed; False if it ended instead."""
    assert way.killed_at is not None
    settings = _settings(folder, way.epoch_units, way.slices, way.checkpoint_every)
    return call_until_killed(
        partial(_run, build, folder / "out", settings), folder, way.killed_at, way.killed_in_epoch
    )


def call_until_killed(function: Callable[[], None], folder: Path, step: StepName, epoch: int) -> bool:
    """Call a function that runs an engine, in a process of its own, until SIGKILL ends that at a step of an epoch;
    False if the function returned instead."""
    pickled = folder / "function.pickle"
    pickled.write_bytes(cloudpickle.dumps(function))
    process = subprocess.run(
        [sys.executable, "-c", _CHILD, str(pickled)],
        env=os.environ
        | {"PENSTOCK_KILL_AT": f"{step}:{epoch}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=240,
        check=False,
    )
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(process.stderr.decode(errors="replace")[-4000:])
    return process.returncode == -signal.SIGKILL


def child(pickled: str) -> None:
    """Call the function, in the process that will be killed."""
    cloudpickle.loads(Path(pickled).read_bytes())()


def _run(build: Build, out: Path, settings: Settings, spark: SparkSession | None = None) -> None:
    Engine(build(out), settings, spark).run()


def _settings(folder: Path, epoch_units: int, slices: int, checkpoint_every: int = 1) -> Settings:
    return Settings(
        state=folder / "state",
        master="local[2]",
        most_epoch_units=epoch_units,
        epoch_interval_seconds=0.0,
        slices=slices,
        drain=True,
        warm_up=False,
        checkpoint_every=checkpoint_every,
        small_epoch_bytes=0,  # even the smallest epoch is cut into slices
    )


def rows_below(folder: Path) -> Rows:
    """The rows of every JSON-lines output below a directory, each as canonical text, sorted."""
    rows: Rows = {}
    for file in sorted(folder.glob("*/*.jsonl")):
        lines = rows.setdefault(file.parent.name, [])
        lines += [json.dumps(json.loads(line), sort_keys=True) for line in file.read_text().splitlines()]
    return {name: sorted(lines) for name, lines in rows.items()}


def _difference(expected: Rows, found: Rows) -> str:
    parts = []
    for name in sorted({*expected, *found}):
        missing = list(set(expected.get(name, [])) - set(found.get(name, [])))
        extra = list(set(found.get(name, [])) - set(expected.get(name, [])))
        count = f"{len(expected.get(name, []))} rows against {len(found.get(name, []))}"
        parts.append(f"{name} ({count}): missing {missing[:3]}, extra {extra[:3]}")
    return "; ".join(parts)

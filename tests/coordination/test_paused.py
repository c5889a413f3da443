"""An engine paused (SIGSTOP) at any step of an epoch and replaced is fenced when it resumes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.engine.engine import Engine
from penstock.epoch.kill_points import STEPS, StepName
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine, run_inline
from penstock.testing.three_ways import Rows, rows_below
from tests.coordination.paused_engine import UNIT, UNITS, build, leading, settings

PAUSED_IN = 1
ROOT = Path(__file__).parents[2]


def written(folder: Path) -> dict[str, Rows]:
    """All output of an engine: results, dead letters and late events."""
    places = {"out": folder / "out", "dead": folder / "state" / "dead", "late": folder / "state" / "late"}
    with closing(sqlite3.connect(folder / "out" / "out.db")) as database:
        table = {"counts": sorted(map(str, database.execute("SELECT * FROM counts")))}
    return {name: rows_below(place) for name, place in places.items()} | {"table": table}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The output of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(build(folder / "out"), folder / "state", epoch_units=UNITS)
    found = written(folder)
    assert all(any(rows.values()) for rows in found.values())
    return found


def paused(folder: Path, step: StepName, how: str) -> subprocess.Popen[str]:
    """Start an engine in a process of its own, which pauses at a step of an epoch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.coordination.paused_engine", str(folder), how],
        env=os.environ | {"PENSTOCK_STOP_AT": f"{step}:{PAUSED_IN}", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stdout is not None
        raise AssertionError(f"it ended instead of pausing: {process.stdout.read()}")
    return process


def end(process: subprocess.Popen[str]) -> None:
    """End an engine and what it has started, whatever it is doing."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.kill
@pytest.mark.parametrize(
    ("how", "step"),
    [
        *(("blind", step) for step in STEPS),
        ("looking", "recorded"),
        ("looking", "gathered"),
        ("looking", "delivered"),
    ],
)
def test_an_engine_paused_at_any_step_and_replaced_is_fenced_when_it_wakes(
    step: StepName, how: str, straight: dict[str, Rows], tmp_path: Path
) -> None:
    """`blind` never looks at its lease: the file system alone refuses what it writes."""
    first = paused(tmp_path, step, how)
    try:
        store, session, lease = leading(tmp_path, 30.0)  # waits until the first one's session has ended
        assert lease.generation == 2
        second = InlineEngine(
            build(tmp_path / "out"),
            tmp_path / "state",
            epoch_units=UNITS,
            slices=3,
            fence=lease,
        )
        try:
            for _ in range(2):
                assert second.step() is not None
            os.killpg(first.pid, signal.SIGCONT)
            says, _ = first.communicate(timeout=60)
            assert "[FENCED]" in says, says
            assert "generation 2; this one is 1" in says
            assert first.returncode == 3
            assert list(second.steps())
        finally:
            second.close()
            session.close()
            store.close()
    finally:
        end(first)
    assert written(tmp_path) == straight
    state = StateDirectory(tmp_path / "state")
    writers = [state.manifests.read(epoch).generation for epoch in state.manifests.epochs()]
    own = PAUSED_IN + (step == "committed")
    assert writers == [1] * own + [2] * (len(writers) - own)


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_engine_on_spark_that_is_paused_and_replaced_is_fenced(
    straight: dict[str, Rows], tmp_path: Path, spark: SparkSession
) -> None:
    first = paused(tmp_path, "admitted", "spark")
    try:
        said = replace(
            settings(tmp_path), coordination=str(tmp_path / "coordination"), unit=UNIT, session_seconds=30.0
        )
        Engine(build(tmp_path / "out"), said, spark).run()  # waits until the first one's session has ended
        os.killpg(first.pid, signal.SIGCONT)
        says, _ = first.communicate(timeout=120)
        assert "[FENCED]" in says, says
        assert first.returncode == 3
    finally:
        end(first)
    assert written(tmp_path) == straight

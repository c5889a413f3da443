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
from tests.coordination.paused_engine import UNIT, UNITS, acquire_lease, build, settings

PAUSED_IN = 1
ROOT = Path(__file__).parents[2]


def read_output(folder: Path) -> dict[str, Rows]:
    """All output of an engine: results, dead letters and late events."""
    folders = {"out": folder / "out", "dead": folder / "state" / "dead", "late": folder / "state" / "late"}
    with closing(sqlite3.connect(folder / "out" / "out.db")) as database:
        table = {"counts": sorted(map(str, database.execute("SELECT * FROM counts")))}
    return {name: rows_below(path) for name, path in folders.items()} | {"table": table}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The output of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(build(folder / "out"), folder / "state", epoch_units=UNITS)
    found = read_output(folder)
    assert all(any(rows.values()) for rows in found.values())
    return found


def start_paused(folder: Path, step: StepName, kind: str) -> subprocess.Popen[str]:
    """Start an engine in a process of its own, which pauses at a step of an epoch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.coordination.paused_engine", str(folder), kind],
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
    ("kind", "step"),
    [
        *(("unchecked", step) for step in STEPS),
        ("checked", "recorded"),
        ("checked", "gathered"),
        ("checked", "emitted"),
    ],
)
def test_an_engine_paused_at_any_step_and_replaced_is_fenced_when_it_resumes(
    step: StepName, kind: str, undisturbed: dict[str, Rows], tmp_path: Path
) -> None:
    """`unchecked` never checks its lease: only the file system refuses its writes."""
    first = start_paused(tmp_path, step, kind)
    try:
        store, session, lease = acquire_lease(tmp_path, 30.0)  # waits until the first one's session has ended
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
            log, _ = first.communicate(timeout=60)
            assert "[FENCED]" in log, log
            assert "generation 2; this one is 1" in log
            assert first.returncode == 3
            assert list(second.steps())
        finally:
            second.close()
            session.close()
            store.close()
    finally:
        end(first)
    assert read_output(tmp_path) == undisturbed
    state = StateDirectory(tmp_path / "state")
    writers = [state.manifests.read(epoch).generation for epoch in state.manifests.epochs()]
    epochs_of_first = PAUSED_IN + (step in ("committed", "delivered"))
    assert writers == [1] * epochs_of_first + [2] * (len(writers) - epochs_of_first)


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_engine_on_spark_that_is_paused_and_replaced_is_fenced(
    undisturbed: dict[str, Rows], tmp_path: Path, spark: SparkSession
) -> None:
    first = start_paused(tmp_path, "admitted", "spark")
    try:
        changed = replace(
            settings(tmp_path), coordination=str(tmp_path / "coordination"), unit=UNIT, session_seconds=30.0
        )
        Engine(build(tmp_path / "out"), changed, spark).run()  # waits until the first one's session has ended
        os.killpg(first.pid, signal.SIGCONT)
        log, _ = first.communicate(timeout=120)
        assert "[FENCED]" in log, log
        assert first.returncode == 3
    finally:
        end(first)
    assert read_output(tmp_path) == undisturbed

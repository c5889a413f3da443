"""Buckets migrate between real executors under load: the rows are the same, also if the engine is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.epoch.moving_child import build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


def run_child(folder: Path, kill_at: str | None = None) -> int:
    """Run an engine in a process of its own; return its exit code.

    Spark gives a Python process ten seconds to start. On a busy machine that may not suffice: then start it again.
    """
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    for _ in range(3):
        process = subprocess.run(
            [sys.executable, "-m", "tests.epoch.moving_child", str(folder)],
            env=environment | ({} if kill_at is None else {"PENSTOCK_KILL_AT": kill_at}),
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=280,
            check=False,
        )
        if b"failed to connect back" not in process.stderr:
            break
    assert process.returncode in (0, -signal.SIGKILL), process.stderr.decode(errors="replace")[-4000:]
    return process.returncode


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_migrations_between_executors_do_not_change_the_rows_and_slices_run_on_their_executors(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    assert run_child(tmp_path) == 0
    assert rows_below(tmp_path / "out") == undisturbed
    reports = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    moves = [report["moved"] for report in reports if report["moved"] is not None]
    assert [move[1] for move in moves] == [True] * 4, moves
    assert moves[1][0] == "warm"
    placed = [report for report in reports if report["places"]]
    as_assigned = [
        report["ran"][str(slice_)] == location
        for report in placed
        for slice_, location in enumerate(report["places"])
    ]
    assert sum(as_assigned) >= 0.9 * len(as_assigned), "Spark rarely runs a slice on another executor"


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.timeout(600)
@pytest.mark.soak
def test_an_engine_continues_after_a_kill_in_the_middle_of_a_migration(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    assert run_child(tmp_path, "switched:5") == -signal.SIGKILL
    assert rows_below(tmp_path / "out") != undisturbed
    run_inline(build(tmp_path / "out"), tmp_path / "state", epoch_units=60, slices=3)
    assert rows_below(tmp_path / "out") == undisturbed

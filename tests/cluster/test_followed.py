"""Elastic runs whose workers die while they join, while buckets move and while they leave, a full cluster and a slow
worker: the rows are those of an undisturbed run, and every bucket has a live owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster import LocalCluster
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.cluster import query, slowed

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(700)]
ROOT = Path(__file__).parents[2]


def run_script(script: str, factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Run a script on a cluster of two workers; return its folder and its observations."""
    folder = factory.mktemp("followed")
    cluster = LocalCluster(factory.mktemp("cluster"))
    cluster.up(workers=2, pin="none")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", f"tests.cluster.{script}", str(folder), str(cluster.directory)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=650,
            check=False,
        )
    finally:
        cluster.down()
    (folder / "stderr.log").write_text(ended.stderr)
    assert ended.returncode == 0, ended.stderr[-12_000:]
    return folder, json.loads((folder / "seen.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return run_script("followed", tmp_path_factory)


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return run_script("slowed", tmp_path_factory)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("straight")
    run_inline(query.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


@pytest.mark.parametrize("name", ["calm", "full", "coming", "leaving"])
def test_the_rows_are_those_of_an_undisturbed_run(
    name: str, runs: tuple[Path, dict[str, Any]], undisturbed: dict[str, list[str]]
) -> None:
    folder, _ = runs
    assert rows_below(folder / name / "out") == undisturbed


@pytest.mark.parametrize("name", ["calm", "full", "coming", "leaving"])
def test_every_bucket_has_a_live_owner(name: str, runs: tuple[Path, dict[str, Any]]) -> None:
    _, seen = runs
    assert set(seen[name]["owners"]) <= set(seen[name]["there"])
    assert seen[name]["there"]


def test_one_more_and_one_fewer_are_two_executed_decisions(
    runs: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = runs
    assert len(seen["calm"]["outcomes"]) == 2
    assert not {"failed", "undone"} & set(seen["calm"]["outcomes"])


def test_no_order_is_left_pending(runs: tuple[Path, dict[str, Any]]) -> None:
    _, seen = runs
    for name in ("coming", "leaving"):
        assert "under way" not in seen[name]["outcomes"]


def test_a_full_cluster_is_reported_and_requested_no_further(
    runs: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = runs
    full = seen["full"]
    assert full["outcomes"] == ["failed"], "what failed is not tried again in the same circumstances"
    (decision,) = full["status"]["decisions"]
    assert "never arrived" in decision["why"]
    assert full["refused"]
    assert full["workers"] == [1, 1]


@pytest.mark.soak  # by itself: beside other work any worker may be the slow one
def test_buckets_move_away_from_a_slow_worker(slow_run: tuple[Path, dict[str, Any]]) -> None:
    _, slow = slow_run
    moves = [(reason, outcome) for kind, reason, outcome in slow["decisions"] if kind == "Move"]
    assert moves, slow
    assert any(f"{slow['slow']} needs" in reason for reason, _ in moves), moves
    assert any(left < 0.75 * slow["before"][sub] for sub, left in slow["after"].items()), slow
    assert {kind for kind, _, _ in slow["decisions"]} == {"Move"}


@pytest.mark.soak
def test_a_slow_worker_loses_and_repeats_nothing(
    slow_run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _ = slow_run
    log = slowed.RevealedLog(slowed.lines())
    log.reveal(slowed.LINES)
    run_inline(query.build(tmp_path / "out", log), tmp_path / "state", slices=1)
    assert rows_below(folder / "slowed" / "out") == rows_below(tmp_path / "out")


def test_the_memory_of_executors_is_that_of_their_java_and_python_processes(
    runs: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = runs
    found = {name: one["memory_bytes"] for name, one in seen["full"]["memory"].items()}
    assert len(found) == 2
    assert all(100e6 < size < 4e9 for size in found.values()), found

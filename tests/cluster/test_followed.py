"""Executors that follow the loop, workers that die while they come, while buckets move and while they leave, a cluster
that has no more, a worker that is slow: none of it shows in the rows, and every bucket has an owner that lives."""

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


def ran(script: str, factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A script on a cluster of two workers, and what it has seen."""
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
    (folder / "told.log").write_text(ended.stderr)
    assert ended.returncode == 0, ended.stderr[-12_000:]
    return folder, json.loads((folder / "seen.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return ran("followed", tmp_path_factory)


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return ran("slowed", tmp_path_factory)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("straight")
    run_inline(query.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


@pytest.mark.parametrize("name", ["calm", "full", "coming", "leaving"])
def test_the_rows_are_those_of_an_undisturbed_run(
    name: str, runs: tuple[Path, dict[str, Any]], straight: dict[str, list[str]]
) -> None:
    folder, _ = runs
    assert rows_below(folder / name / "out") == straight


@pytest.mark.parametrize("name", ["calm", "full", "coming", "leaving"])
def test_every_bucket_has_an_owner_that_lives(name: str, runs: tuple[Path, dict[str, Any]]) -> None:
    _, seen = runs
    assert set(seen[name]["owners"]) <= set(seen[name]["there"])
    assert seen[name]["there"]


def test_one_more_and_one_fewer_are_two_decisions_that_are_carried_out(
    runs: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = runs
    assert len(seen["calm"]["outcomes"]) == 2
    assert not {"failed", "undone"} & set(seen["calm"]["outcomes"])


def test_no_order_is_left_in_between(runs: tuple[Path, dict[str, Any]]) -> None:
    _, seen = runs
    for name in ("coming", "leaving"):
        assert "under way" not in seen[name]["outcomes"]


def test_a_cluster_that_has_no_more_is_told_of_and_asked_no_further(
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
    log = slowed.Dealt(slowed.lines())
    log.show(slowed.LINES)
    run_inline(query.build(tmp_path / "out", log), tmp_path / "state", slices=1)
    assert rows_below(folder / "slowed" / "out") == rows_below(tmp_path / "out")


def test_the_memory_of_executors_is_that_of_their_java_and_python_processes(
    runs: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = runs
    found = {name: one["memory_bytes"] for name, one in seen["full"]["memory"].items()}
    assert len(found) == 2
    assert all(100e6 < size < 4e9 for size in found.values()), found

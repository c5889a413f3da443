"""A query on a cluster of real processes emits the same rows, also while executors join, leave and die."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.cluster import LocalCluster, facts, processes
from penstock.engine.engine import Engine
from penstock.errors import PenstockError
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.cluster import driven, query

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and two workers of one core; all their processes end."""
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
    cluster.up(workers=2)
    mark = cluster.facts().id
    yield cluster
    cluster.down()
    assert processes.find_marked(mark) == []


@pytest.fixture(scope="module")
def run(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the runs on the cluster, and their observations."""
    folder = tmp_path_factory.mktemp("driven")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.cluster.driven", str(folder), str(cluster.directory)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder, json.loads((folder / "seen.json").read_text())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of an undisturbed run without Spark."""
    folder = tmp_path_factory.mktemp("straight")
    run_inline(query.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


def test_a_status_shows_workers_that_are_pinned_and_wait(cluster: LocalCluster) -> None:
    status = cluster.status()
    assert status.alive
    assert re.fullmatch(r"spark://127\.0\.0\.1:\d+", status.url)
    assert [(w.name, w.alive, w.cores) for w in status.workers] == [
        ("worker-1", True, 1),
        ("worker-2", True, 1),
    ]
    for worker in status.workers:
        assert worker.cpus is not None
        assert os.sched_getaffinity(worker.pid) == set(worker.cpus)
    result = CliRunner().invoke(cli, ["cluster", "status", "--dir", str(cluster.directory)])
    assert result.exit_code == 0
    assert "worker-2  alive" in result.output


def test_a_second_cluster_in_the_same_directory_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(PenstockError) as failure:
        cluster.up(workers=1)
    assert failure.value.condition == "CLUSTER_IS_UP"


def test_a_worker_there_is_not_cannot_be_killed(cluster: LocalCluster) -> None:
    with pytest.raises(PenstockError) as failure:
        cluster.kill("worker-9")
    assert failure.value.condition == "NO_SUCH_WORKER"
    assert "worker-1" in str(failure.value)


def test_two_local_cores_emit_the_same_rows(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    Engine(query.build(tmp_path / "out"), driven.settings(tmp_path), spark).run()
    assert rows_below(tmp_path / "out") == undisturbed
    assert all(undisturbed.values())


def test_scaling_out_and_in_does_not_change_the_rows(
    run: tuple[Path, dict[str, Any]], undisturbed: dict[str, list[str]]
) -> None:
    folder, seen = run
    assert seen["begins with"] == 1
    assert seen["grown to two"]
    assert seen["tasks of the second"] > 0
    assert (seen["retired"], seen["gone"], seen["shrunk to"]) == (True, True, True)
    assert seen["elastic epochs"] > 7
    assert rows_below(folder / "elastic" / "out") == undisturbed


def test_more_executors_than_the_cluster_has_never_join(
    run: tuple[Path, dict[str, Any]],
) -> None:
    _, seen = run
    assert (seen["five taken note of"], seen["five came"]) == (True, False)


def test_a_worker_killed_with_its_executor_does_not_change_the_rows(
    run: tuple[Path, dict[str, Any]], undisturbed: dict[str, list[str]], cluster: LocalCluster
) -> None:
    folder, seen = run
    assert seen["two again"]
    assert seen["killed"] >= 2, "the worker, and its executor"
    assert seen["left"] == 1
    assert seen["replaced"], "a worker that joins takes the place"
    assert rows_below(folder / "killed" / "out") == undisturbed
    assert [(w.name, w.alive) for w in cluster.status().workers] == [
        ("worker-1", False),
        ("worker-2", True),
        ("worker-3", True),
    ]


def test_a_worker_that_is_removed_is_forgotten(
    cluster: LocalCluster, run: tuple[Path, dict[str, Any]]
) -> None:
    cluster.remove("worker-1")
    assert [w.name for w in cluster.status().workers] == ["worker-2", "worker-3"]


def test_a_cluster_that_cannot_start_reports_its_last_output_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "spark" / "bin" / "spark-class"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no room on this machine >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("penstock.cluster.spark.spark_home", lambda: tmp_path / "spark")
    with pytest.raises(PenstockError) as failure:
        LocalCluster(tmp_path / "cluster", deadline_seconds=10).up(workers=1)
    assert failure.value.condition == "CLUSTER_DID_NOT_START"
    assert "no room on this machine" in str(failure.value)
    assert facts.read_facts(tmp_path / "cluster") is None


@pytest.mark.parametrize("command", [["status"], ["down"], ["kill", "worker-1"], ["add"]])
def test_a_command_without_a_cluster_is_refused(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["cluster", *command, "--dir", str(tmp_path)])
    assert isinstance(result.exception, PenstockError)
    assert result.exception.condition == "NO_CLUSTER"


@pytest.mark.parametrize("options", [["--memory", "much"], ["--memory", "10m"], ["--pin", "sockets"]])
def test_wrong_sizes_are_refused_before_anything_starts(options: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["cluster", "up", *options, "--dir", str(tmp_path / "cluster")])
    assert isinstance(result.exception, PenstockError)
    assert result.exception.condition == "BAD_OPTION"
    assert not (tmp_path / "cluster" / "cluster.json").exists()

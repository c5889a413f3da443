"""`down` ends all that a cluster has started, also after a killed `up`, and nothing else."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster import LocalCluster, facts, processes
from penstock.cluster.facts import Facts
from penstock.errors import PenstockError

pytestmark = pytest.mark.process

Start = Callable[[str], tuple[LocalCluster, processes.Process]]


@pytest.fixture
def start_killed(tmp_path: Path) -> Iterator[Start]:
    """Create a cluster as a killed `up` leaves it: a process runs, and only the mark is recorded."""
    marks: list[str] = []

    def start(name: str) -> tuple[LocalCluster, processes.Process]:
        directory, mark = tmp_path / name, uuid.uuid4().hex
        directory.mkdir()
        marks.append(mark)
        facts.write_facts(directory, Facts(mark, "none", 1, 1024))
        command = ["sleep", "60"]  # no shell, which would first have to become it
        process = processes.start(command, dict(os.environ), f"{mark}/master", directory / "log", None)
        return LocalCluster(directory), process

    yield start
    for mark in marks:
        processes.kill(processes.find_marked(mark))


def test_processes_of_a_killed_up_are_ended(start_killed: Start) -> None:
    cluster, process = start_killed("one")
    assert not cluster.status().alive
    assert cluster.down() == 1
    assert not processes.is_alive(process)
    assert facts.read_facts(cluster.directory) is None


def test_a_cluster_in_another_directory_is_left_alone(start_killed: Start) -> None:
    (one, first), (_, second) = start_killed("one"), start_killed("other")
    one.down()
    assert (processes.is_alive(first), processes.is_alive(second)) == (False, True)


def test_a_cluster_is_not_started_beside_the_remains_of_another(start_killed: Start) -> None:
    cluster, _ = start_killed("one")
    with pytest.raises(PenstockError) as failure:
        cluster.up(workers=1)
    assert failure.value.condition == "CLUSTER_IS_UP"
    with pytest.raises(PenstockError) as failure:
        cluster.add()
    assert failure.value.condition == "MASTER_GONE"


def test_one_command_at_a_time_changes_a_cluster(start_killed: Start) -> None:
    cluster, process = start_killed("one")
    with facts.lock_cluster(cluster.directory), pytest.raises(PenstockError) as failure:
        cluster.down()
    assert failure.value.condition == "CLUSTER_BUSY"
    assert processes.is_alive(process)


def test_a_damaged_cluster_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / facts.FILE).write_text('{"id": 3}')
    with pytest.raises(PenstockError) as failure:
        LocalCluster(tmp_path).status()
    assert failure.value.condition == "CLUSTER_FILE_DAMAGED"


def test_a_command_without_a_cluster_creates_no_directory(tmp_path: Path) -> None:
    with pytest.raises(PenstockError):
        LocalCluster(tmp_path / "none").down()
    assert not (tmp_path / "none").exists()

"""What a cluster has started is ended by `down`, whatever became of `up`; what others have started is not."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster import LocalCluster, facts, processes
from penstock.cluster.facts import Facts
from penstock.errors import PenstockError

Begin = Callable[[str], tuple[LocalCluster, processes.Process]]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begin]:
    """Makes a cluster as an `up` leaves it that was killed: a process runs, and only the mark is written down."""
    marks: list[str] = []

    def begin(name: str) -> tuple[LocalCluster, processes.Process]:
        directory, mark = tmp_path / name, uuid.uuid4().hex
        directory.mkdir()
        marks.append(mark)
        facts.write_facts(directory, Facts(mark, "none", 1, 1024))
        command = ["sleep", "60"]  # which has begun when it was started: a shell would first become it
        process = processes.start(command, dict(os.environ), f"{mark}/master", directory / "log", None)
        return LocalCluster(directory), process

    yield begin
    for mark in marks:
        processes.kill(processes.find_marked(mark))


def test_what_an_up_that_was_killed_has_started_is_ended(begun: Begin) -> None:
    cluster, process = begun("one")
    assert not cluster.status().alive
    assert cluster.down() == 1
    assert not processes.is_alive(process)
    assert facts.read_facts(cluster.directory) is None


def test_a_cluster_in_another_directory_is_left_alone(begun: Begin) -> None:
    (one, first), (_, second) = begun("one"), begun("other")
    one.down()
    assert (processes.is_alive(first), processes.is_alive(second)) == (False, True)


def test_what_is_left_of_a_cluster_must_be_ended_before_another_is_started(begun: Begin) -> None:
    cluster, _ = begun("one")
    with pytest.raises(PenstockError) as failure:
        cluster.up(workers=1)
    assert failure.value.condition == "CLUSTER_IS_UP"
    with pytest.raises(PenstockError) as failure:
        cluster.add()
    assert failure.value.condition == "MASTER_GONE"


def test_one_command_at_a_time_changes_a_cluster(begun: Begin) -> None:
    cluster, process = begun("one")
    with facts.lock_cluster(cluster.directory), pytest.raises(PenstockError) as failure:
        cluster.down()
    assert failure.value.condition == "CLUSTER_BUSY"
    assert processes.is_alive(process)


def test_a_file_that_tells_of_no_cluster_is_named(tmp_path: Path) -> None:
    (tmp_path / facts.FILE).write_text('{"id": 3}')
    with pytest.raises(PenstockError) as failure:
        LocalCluster(tmp_path).status()
    assert failure.value.condition == "CLUSTER_FILE_DAMAGED"


def test_asking_where_there_is_no_cluster_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(PenstockError):
        LocalCluster(tmp_path / "none").down()
    assert not (tmp_path / "none").exists()

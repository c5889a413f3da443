"""Processes are ended by who they are, never by a number somebody else may have by now."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.processes import Process, end, find_marked, find_process, is_alive, kill, start
from penstock.errors import ExternalError

pytestmark = pytest.mark.process


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark nobody else has; what carries it is gone after the test."""
    own = uuid.uuid4().hex
    yield own
    kill(find_marked(own))


def started(mark: str, folder: Path, script: str, part: str = "part") -> Process:
    return start(["/bin/sh", "-c", script], dict(os.environ), f"{mark}/{part}", folder / "log", None)


def until(reached: object, deadline_seconds: float = 10) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_is_known_by_number_and_beginning(mark: str, tmp_path: Path) -> None:
    process = started(mark, tmp_path, "exec sleep 60")
    assert is_alive(process)
    assert find_process(process.pid) == process
    stranger = replace(process, began="another time")
    assert not is_alive(stranger)
    kill([stranger])
    end([stranger], 0.1)
    assert is_alive(process), "the number alone is not enough"
    end([process])
    assert not is_alive(process)


def test_all_that_a_process_started_is_found_by_the_mark(mark: str, tmp_path: Path) -> None:
    process = started(mark, tmp_path, "sleep 60 & sleep 60 & wait")
    other = started(mark, tmp_path, "exec sleep 60", "other")
    until(lambda: len(find_marked(f"{mark}/part")) == 3)
    kill([process])
    assert len(find_marked(f"{mark}/part")) == 2, "children stay behind, and are still found"
    assert find_marked(f"{mark}/othe") == []
    kill(find_marked(f"{mark}/part"))
    assert find_marked(mark) == [other]


def test_who_does_not_listen_is_killed_after_the_deadline(mark: str, tmp_path: Path) -> None:
    process = started(mark, tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: "ready" in (tmp_path / "log").read_text())
    end([process], 0.3)
    assert not is_alive(process)


def test_a_process_is_pinned_and_so_are_those_it_starts(mark: str, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    only = min(before)
    script = ["/bin/sh", "-c", "sh -c 'grep Cpus_allowed_list /proc/self/status'; exec sleep 60"]
    process = start(script, dict(os.environ), mark, tmp_path / "log", [only])
    until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    assert os.sched_getaffinity(process.pid) == {only}
    assert (tmp_path / "log").read_text().split() == ["Cpus_allowed_list:", str(only)]
    assert os.sched_getaffinity(0) == before


def test_a_program_that_is_not_there_is_told(mark: str, tmp_path: Path) -> None:
    with pytest.raises(ExternalError) as failure:
        start([str(tmp_path / "none")], {}, mark, tmp_path / "log", None)
    assert failure.value.condition == "PROCESS_NOT_STARTED"

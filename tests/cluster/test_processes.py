"""Processes are identified by id and start time, so that no other process is ended."""

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


def start_script(mark: str, folder: Path, script: str, part: str = "part") -> Process:
    return start(["/bin/sh", "-c", script], dict(os.environ), f"{mark}/{part}", folder / "log", None)


def wait_until(reached: object, deadline_seconds: float = 10) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_is_identified_by_id_and_start_time(mark: str, tmp_path: Path) -> None:
    process = start_script(mark, tmp_path, "exec sleep 60")
    assert is_alive(process)
    assert find_process(process.pid) == process
    stranger = replace(process, began="another time")
    assert not is_alive(stranger)
    kill([stranger])
    end([stranger], 0.1)
    assert is_alive(process), "the number alone is not enough"
    end([process])
    assert not is_alive(process)


def test_child_processes_are_found_by_the_mark(mark: str, tmp_path: Path) -> None:
    process = start_script(mark, tmp_path, "sleep 60 & sleep 60 & wait")
    other = start_script(mark, tmp_path, "exec sleep 60", "other")
    wait_until(lambda: len(find_marked(f"{mark}/part")) == 3)
    kill([process])
    assert len(find_marked(f"{mark}/part")) == 2, "children stay behind, and are still found"
    assert find_marked(f"{mark}/othe") == []
    kill(find_marked(f"{mark}/part"))
    assert find_marked(mark) == [other]


def test_a_process_that_ignores_the_signal_is_killed_after_the_deadline(mark: str, tmp_path: Path) -> None:
    process = start_script(mark, tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    wait_until(lambda: "ready" in (tmp_path / "log").read_text())
    end([process], 0.3)
    assert not is_alive(process)


def test_a_process_is_pinned_and_so_are_those_it_starts(mark: str, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    only = min(before)
    script = ["/bin/sh", "-c", "sh -c 'grep Cpus_allowed_list /proc/self/status'; exec sleep 60"]
    process = start(script, dict(os.environ), mark, tmp_path / "log", [only])
    wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    assert os.sched_getaffinity(process.pid) == {only}
    assert (tmp_path / "log").read_text().split() == ["Cpus_allowed_list:", str(only)]
    assert os.sched_getaffinity(0) == before


def test_a_missing_program_is_reported(mark: str, tmp_path: Path) -> None:
    with pytest.raises(ExternalError) as failure:
        start([str(tmp_path / "none")], {}, mark, tmp_path / "log", None)
    assert failure.value.condition == "PROCESS_NOT_STARTED"

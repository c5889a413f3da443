"""`penstock run` as a process of its own: to the end, into a user's mistake, and through a Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.directory import StateDirectory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

TOTAL = 60_000

COUNT = f"""
import penstock as ps

def unchanged(frame):
    return frame

clicks = ps.stream("clicks", ps.generated(total={TOTAL}, rate=4_000), ps.combined_log(extra=[ps.Cookie("session")]),
                   time="time", lateness="1s")
total = clicks.map_batches(unchanged).running("1s").count()
app = ps.app("counted", ps.output("total", total, ps.jsonl("out")))
"""

FAILING = """
import penstock as ps

def halve(frame):
    return frame.with_columns(half=1 // (frame.height - frame.height))

clicks = ps.stream("clicks", ps.generated(total=500, live=False), ps.combined_log(extra=["cookie"]), time="time")
app = ps.app("failing", ps.output("halves", clicks.map_batches(halve), ps.jsonl("out")))
"""


class Penstock:
    """A started command in a process group of its own, as in a terminal."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from penstock.cli.commands import main; main()", *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt(self) -> None:
        """Do what Ctrl-C does: send the signal to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for_end(self, seconds: float = 300) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Penstock]]:
    processes: list[Penstock] = []
    yield processes
    for process in processes:
        process.kill()


def wait_for_results(directory: Path, process: Penstock, seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not list(directory.glob("epoch-*.jsonl")):
        assert process.process.poll() is None, process.wait_for_end()
        assert time.monotonic() < deadline, "no result arrived"
        time.sleep(0.05)


def rows(directory: Path) -> list[dict[str, object]]:
    files = sorted(directory.glob("epoch-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_run_ends_cleanly_at_ctrl_c_and_the_next_one_continues_without_counting_twice(
    tmp_path: Path, started: list[Penstock]
) -> None:
    (tmp_path / "job.py").write_text(COUNT)
    started.append(Penstock(tmp_path, "run", "job.py", "--master", "local[2]"))
    wait_for_results(tmp_path / "out", started[-1])
    started[-1].interrupt()
    code, out, err = started[-1].wait_for_end()
    assert (code, err) == (0, "")
    assert "counted stopped after" in out
    assert "starting Spark" in out
    state = StateDirectory(tmp_path / ".penstock" / "counted")
    events = state.manifests.latest().counters["events"]
    assert 0 < events < TOTAL
    before = rows(tmp_path / "out")

    started.append(Penstock(tmp_path, "run", "job.py", "--master", "local[2]", "--drain"))
    code, out, err = started[-1].wait_for_end()
    assert (code, err) == (0, "")
    assert "counted ended after" in out
    assert f"{TOTAL:,} since the first start" in out
    results = rows(tmp_path / "out")
    assert results[: len(before)] == before
    counts = [row["count"] for row in results]
    assert counts == sorted(counts, key=lambda count: int(str(count)))
    assert counts[-1] == TOTAL
    instants = [row["as_of"] for row in results]
    assert len(set(instants)) == len(instants)


def find_java(group: int) -> int:
    """The process of Java in a process group."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,comm="], capture_output=True, text=True, check=True)
    processes = [line.split() for line in listed.stdout.splitlines()]
    (found,) = (int(pid) for pid, its_group, name in processes if int(its_group) == group and name == "java")
    return found


def test_a_run_whose_spark_is_killed_ends_and_the_next_one_continues(
    tmp_path: Path, started: list[Penstock]
) -> None:
    (tmp_path / "job.py").write_text(COUNT)
    started.append(Penstock(tmp_path, "run", "job.py", "--master", "local[2]"))
    wait_for_results(tmp_path / "out", started[-1])
    os.kill(find_java(started[-1].process.pid), signal.SIGKILL)
    code, _, err = started[-1].wait_for_end(60)
    assert code == 3
    assert "[SPARK_ENDED] the process of Spark has ended" in err  # after what pyspark itself says
    started.append(Penstock(tmp_path, "run", "job.py", "--master", "local[2]", "--drain"))
    code, _, err = started[-1].wait_for_end()
    assert (code, err) == (0, "")
    assert [row["count"] for row in rows(tmp_path / "out")][-1] == TOTAL


def test_a_user_function_that_raises_is_reported_with_its_line_and_the_span(
    tmp_path: Path, started: list[Penstock]
) -> None:
    (tmp_path / "job.py").write_text(FAILING)
    started.append(Penstock(tmp_path, "run", "job.py", "--master", "local[2]", "--drain"))
    code, _, err = started[-1].wait_for_end()
    assert code == 2
    assert err.startswith("[USER_FUNCTION_FAILED] ZeroDivisionError")
    assert "job.py:5 `return frame.with_columns(half=1 // (frame.height - frame.height))`" in err
    assert "stream clicks, partition p" in err
    assert "offsets 0 to 250" in err
    assert "Traceback" not in err
    assert not list((tmp_path / "out").glob("epoch-*.jsonl"))

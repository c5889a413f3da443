"""A benchmark that is ended leaves no process behind, whatever it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.cluster.processes import find_process

ROOT = Path(__file__).resolve().parents[2]
MARK = "PENSTOCK_TEST_MARK"
#: starts a process in a session of its own, whose parent ends, and one that ignores SIGTERM; stays or ends
BENCHMARK = """
import subprocess, sys, time
from bench.guard import guard
guard(grace_seconds=3.0, sweep_seconds=0.5)
idle = "import time; time.sleep(600)"
orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {idle!r}], start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan], start_new_session=True)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
one = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
one.stdout.readline()
try:
    print("running", flush=True)
    time.sleep(0 if sys.argv[1] == "ends" else 600)
finally:
    print("closed", flush=True)
    time.sleep(600 if sys.argv[1] == "hangs" else 0)
sys.exit(int(sys.argv[2]))
"""


def marked(mark: str) -> dict[int, str]:
    """The processes that have inherited a mark and still run, and their commands."""
    variable, found = f"{MARK}={mark}".encode(), {}
    for folder in Path("/proc").iterdir():
        try:
            mine = folder.name.isdigit() and variable in (folder / "environ").read_bytes().split(b"\0")
            if mine and find_process(int(folder.name)) is not None:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A benchmark under way, and the mark that all its processes have; they are ended whatever comes of the test."""
    mark = uuid.uuid4().hex
    env = os.environ | {
        MARK: mark,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder),
    }
    with open(folder / "errors", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process, mark
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=60)


def until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.kill
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", ["stays", "hangs"])
def test_a_signal_ends_a_benchmark_and_all_that_it_started(
    how: str, number: signal.Signals, tmp_path: Path
) -> None:
    with running(["-c", BENCHMARK, how, "0"], tmp_path) as (process, mark):
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert len(marked(mark)) == 4, "the guard, the benchmark, the orphan, and the one that is deaf"
        process.send_signal(number)
        assert process.stdout.readline() == "closed\n", "what it has to close is closed"
        assert process.wait(20) == -number
        assert marked(mark) == {}


@pytest.mark.kill
def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    patient = BENCHMARK.replace(
        "grace_seconds=3.0, sweep_seconds=0.5", "grace_seconds=600, sweep_seconds=600"
    )
    with running(["-c", patient, "hangs", "0"], tmp_path) as (process, mark):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "closed\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
        assert marked(mark) == {}


@pytest.mark.kill
@pytest.mark.parametrize("code", [0, 3])
def test_a_benchmark_that_ends_leaves_nothing_and_its_exit_code_is_kept(code: int, tmp_path: Path) -> None:
    with running(["-c", BENCHMARK, "ends", str(code)], tmp_path) as (process, mark):
        assert process.wait(20) == code
        assert marked(mark) == {}


@pytest.mark.kill
def test_a_benchmark_whose_guard_is_killed_ends_in_its_own_order(tmp_path: Path) -> None:
    with running(["-c", BENCHMARK, "stays", "0"], tmp_path) as (process, _mark):
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        assert process.stdout.readline() == "closed\n"


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["recovery", "--quick", "--only", "active-standby"], signal.SIGTERM),
        (["peers", "--quick", "--only", "latency:penstock"], signal.SIGINT),
    ],
    ids=["recovery", "peers"],
)
def test_engines_of_a_benchmark_end_with_it(
    command: list[str], number: signal.Signals, tmp_path: Path
) -> None:
    with running(["-m", "bench", *command], tmp_path) as (process, mark):
        engine = until(lambda: any("org.apache.spark" in one for one in marked(mark).values()), 120)
        assert engine, (tmp_path / "errors").read_text()
        process.send_signal(number)
        assert process.wait(100) == -number
        assert marked(mark) == {}

"""The processes of the ingest benchmark: a gateway and agents, real ones that end with the case.

A process is yielded once it listens or is connected; also what processes use of the
machine, and whether the log holds what was sent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import end_tree, environment
from penstock.errors import ExternalError, InternalError
from penstock.ingest.segment_log import SegmentLog
from penstock.logs import Span

STREAM = "clicks"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Gateway:
    """A gateway that listens. Its log is `directory`/log."""

    directory: Path
    port: int
    pid: int

    @property
    def log(self) -> Path:
        """The directory of the stream's log."""
        return self.directory / "log" / STREAM


@contextmanager
def gateway(*more: str) -> Iterator[Gateway]:
    """Run a gateway in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="penstock-ingest-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        command = ["gateway", "--dir", str(directory / "log"), "--listen", "127.0.0.1:0", *more]
        with run_process(command, directory / "gateway.log", b"listening") as process:
            output = (directory / "gateway.log").read_bytes()
            port = next(json.loads(line)["port"] for line in output.splitlines() if b"listening" in line)
            yield Gateway(directory, port, process.pid)


@contextmanager
def agent(to: Gateway, name: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent; yield it once it is connected and reads its pipe."""
    spool = str(to.directory / f"spool-{name}")
    command = ["agent", "--to", f"127.0.0.1:{to.port}", "--stream", STREAM, "--spool", spool, *more]
    with run_process(command, to.directory / f"{name}.log", b'"connected"', stdin=subprocess.PIPE) as process:
        yield process


@contextmanager
def run_process(
    command: list[str], log: Path, until: bytes, stdin: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of Penstock; yield it once its log contains `until`."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.main", *command],
            stdin=stdin,
            stderr=output,
            env=environment(),
            start_new_session=True,
        )
    try:
        wait_until(process, log, lambda: until in log.read_bytes(), f"the {command[0]} did not start")
        yield process
    finally:
        end_tree(process)


def wait_until(
    process: subprocess.Popen[bytes],
    log: Path,
    condition: Callable[[], bool],
    failure: str,
    seconds: float = _START_SECONDS,
) -> None:
    """Wait until a condition holds; raise if the process ends before, or the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ExternalError("BENCH_FAILED", failure, detail=log.read_text(errors="replace")[-1_000:])
        time.sleep(0.05)


def finish_agent(process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Close an agent's pipe, and wait until it has shipped all and ended."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        how = "did not end" if code is None else f"ended with {code}"
        raise ExternalError(
            "BENCH_FAILED", f"an agent {how}", detail=log.read_text(errors="replace")[-1_000:]
        )


def check(log: Path, sent: int) -> None:
    """Raise unless the log holds as many lines as were sent."""
    read = SegmentLog(log)
    spans = [Span(one.id, one.earliest, one.latest) for one in read.partitions({})]
    logged = sum(chunk.data.count(b"\n") for span in spans for chunk in read.read(span))
    if logged != sent:
        raise InternalError("BENCH_DISAGREES", f"{sent} lines were sent, but the log holds {logged}")

"""From agent to result: lines written into agents' pipes at a steady rate, until the epoch with them is committed.

Receives the rate and the time; hands how many lines a second came through and how long each took. All of it is real:
agents, gateway and engine are processes of their own. Every agent is sent the same bytes at the same instants and has
a partition of its own, so an offset says which lines an epoch held, whoever's they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.words.errors import ExternalError, InternalError

AGENTS = 2
#: lines are written so often, in seconds
_TICK = 0.02
_STAMP = re.compile(rb"\[[^\]]{26}\]")
_PLACE = b"[@@@@@@@@@@@@@@@@@@@@@@@@@@]"
_START_SECONDS = 180.0
_DRAIN_SECONDS = 300.0


@dataclass
class Passed:
    """What came of a run. `sent`: when so many bytes had been written to each agent."""

    lines: int = 0
    line_bytes: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    #: when each partition was committed up to which offset
    committed: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    epochs: list[float] = field(default_factory=list)

    def delays(self, warm_seconds: float) -> list[float]:
        """Seconds from the write of lines to the commit of their epoch, of all that was written after the warm-up."""
        found = []
        for ends in self.committed.values():
            offsets = [offset for _, offset in ends]
            for at, upto in self.sent:
                if at >= self.sent[0][0] + warm_seconds:
                    found.append(ends[bisect_left(offsets, upto)][0] - at)
        return found

    def rate(self, warm_seconds: float) -> float:
        """Lines a second that were committed between the warm-up and the last write."""
        since, until = self.sent[0][0] + warm_seconds, self.sent[-1][0]
        through = 0.0
        for ends in self.committed.values():
            inside = [(at, offset) for at, offset in ends if since <= at <= until]
            if len(inside) > 1:
                (first, low), (last, high) = inside[0], inside[-1]
                through += (high - low) / self.line_bytes / (last - first)
        return through

    @property
    def behind_seconds(self) -> float:
        """How long after the last write the last line was through."""
        return max(ends[-1][0] for ends in self.committed.values()) - self.sent[-1][0]


def passed(
    folder: Path, port: int, lines: bytes, rate: float, seconds: float, told: Callable[[str], None]
) -> Passed:
    """Send lines at a rate for some time through a gateway that listens at a port and writes to FOLDER/log."""
    (folder / "log").mkdir(exist_ok=True)
    template = [_STAMP.sub(_PLACE, line, count=1) for line in lines.splitlines(keepends=True)]
    with contextlib.ExitStack() as running:
        told("starting the engine")
        engine = running.enter_context(_engine(folder))
        agents = [running.enter_context(_agent(folder, port, number)) for number in range(AGENTS)]
        told(f"{rate:,.0f} lines a second, for {seconds:.0f} s")
        found = _sent([agent.stdin.fileno() for agent in agents if agent.stdin], template, rate, seconds)
        for agent in agents:
            assert agent.stdin is not None
            agent.stdin.close()
        _drained(folder, found, engine)
        for agent in agents:
            agent.wait(60)
    return found


def _sent(pipes: list[int], template: list[bytes], rate: float, seconds: float) -> Passed:
    found = Passed()
    share = rate / len(pipes)
    began, lines, size, at = time.time(), 0, 0, 0
    while (now := time.time()) < began + seconds:
        due = int((now - began) * share) - lines
        if due > 0:
            block = template[at : at + due]
            at = at + due if at + due < len(template) else 0
            stamp = time.strftime("[%d/%b/%Y:%H:%M:%S +0000]", time.gmtime(now)).encode()
            data = b"".join(block).replace(_PLACE, stamp)
            for pipe in pipes:
                _written(pipe, data)
            lines, size = lines + len(block), size + len(data)
            found.sent.append((now, size))
        time.sleep(max(0.0, now + _TICK - time.time()))
    found.lines = lines * len(pipes)
    found.line_bytes = size / max(lines, 1)
    return found


def _written(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def _drained(folder: Path, found: Passed, engine: subprocess.Popen[bytes]) -> None:
    """Wait until all that was sent is committed; raise if it is not what was sent."""
    deadline, total = time.monotonic() + _DRAIN_SECONDS, found.sent[-1][1] * AGENTS
    while True:
        epochs = [json.loads(line) for line in _whole_lines(folder / "epochs.jsonl")]
        if epochs and sum(epochs[-1]["offsets"].values()) >= total:
            break
        if engine.poll() is not None or time.monotonic() > deadline:
            log = (folder / "engine.log").read_text(errors="replace")[-1_000:]
            raise ExternalError("BENCH_FAILED", "not all lines came through", detail=log)
        time.sleep(0.1)
    events, aside = (sum(epoch[name] for epoch in epochs) for name in ("events", "aside"))
    if (events, aside) != (found.lines, 0):
        raise InternalError(
            "BENCH_DISAGREES", f"{found.lines} lines were sent, {events} counted and {aside} put aside"
        )
    for epoch in epochs:
        for partition, offset in epoch["offsets"].items():
            ends = found.committed.setdefault(partition, [])
            if not ends or offset > ends[-1][1]:
                ends.append((epoch["at"], offset))
    found.epochs = [epoch["seconds"] for epoch in epochs]


def _whole_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    text = file.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "penstock.bench.ingest_engine",
        str(folder / "log" / "clicks"),
        str(folder),
    ]
    with open(folder / "engine.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not (folder / "running").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                detail = (folder / "engine.log").read_text(errors="replace")[-1_000:]
                raise ExternalError("BENCH_FAILED", "the engine did not start", detail=detail)
            time.sleep(0.1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _agent(folder: Path, port: int, number: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock.main", "agent", "--to", f"127.0.0.1:{port}"]
    more = [
        "--stream",
        "clicks",
        "--spool",
        str(folder / f"spool{number}"),
        "--linger",
        "100ms",
        "--drain",
        "5m",
    ]
    with open(folder / f"agent{number}.log", "wb") as log:
        process = subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stderr=log)
    try:
        while b'"connected"' not in (folder / f"agent{number}.log").read_bytes():
            if process.poll() is not None:
                raise ExternalError("BENCH_FAILED", "an agent did not start")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()

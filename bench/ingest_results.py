"""From agent to result: lines written into agents' pipes at a steady rate, until the epoch with them is committed.

It measures how many lines a second were committed and how long each took. All of it is real:
agents, gateway and engine are processes of their own. Every agent is sent the same bytes at the same instants and has
a partition of its own, so the offsets of an epoch show which lines it read. Lines count as sent when
they were due: if a pipe makes its writer wait, that counts too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.benchmark import ShowProgress
from bench.ingest_processes import Gateway, agent, finish_agent, wait_until
from bench.processes import end_tree, environment
from penstock.errors import InternalError

AGENTS = 2
#: lines are written so often, in seconds
_TICK = 0.02
_STAMP = re.compile(rb"\[[^\]]{26}\]")
_STAMP_PLACEHOLDER = b"[@@@@@@@@@@@@@@@@@@@@@@@@@@]"
_START_SECONDS = 180.0
_DRAIN_SECONDS = 300.0
#: progress is shown so often
_PROGRESS_SECONDS = 10


@dataclass
class Throughput:
    """The measurements of a run. `sent`: when lines were due, and how many bytes each agent had with them."""

    lines: int = 0
    line_bytes: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    #: when each partition was committed up to which offset
    committed: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def delays(self, warm_seconds: float) -> list[float]:
        """Seconds from when lines were due to the commit of their epoch, of all lines after the warm-up."""
        throughput = []
        for ends in self.committed.values():
            offsets = [offset for _, offset in ends]
            for at, end in self.sent:
                if at >= self.sent[0][0] + warm_seconds:
                    throughput.append(ends[bisect_left(offsets, end)][0] - at)
        return throughput

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
        """How long after the last write the last line was committed."""
        return max(ends[-1][0] for ends in self.committed.values()) - self.sent[-1][0]


def send_through(
    to: Gateway, lines: bytes, rate: float, seconds: float, show_progress: ShowProgress
) -> Throughput:
    """Send lines at a rate for some time through a gateway, to an engine that counts them."""
    folder = to.directory
    template = [_STAMP.sub(_STAMP_PLACEHOLDER, line, count=1) for line in lines.splitlines(keepends=True)]
    options = ("--linger", "100ms", "--drain", "5m")
    with contextlib.ExitStack() as running:
        show_progress("starting the engine")
        engine = running.enter_context(_engine(to))
        names = [f"agent{number}" for number in range(AGENTS)]
        agents = [running.enter_context(agent(to, name, *options)) for name in names]
        pipes = [one.stdin.fileno() for one in agents if one.stdin]
        throughput = _send_lines(pipes, template, rate, seconds, show_progress)
        show_progress("waiting for the last lines")
        for one, name in zip(agents, names, strict=True):
            finish_agent(one, folder / f"{name}.log", _DRAIN_SECONDS)
        _wait_for_commit(folder, throughput, engine)
        show_progress("ending the engine")
    return throughput


def _send_lines(
    pipes: list[int], template: list[bytes], rate: float, seconds: float, show_progress: ShowProgress
) -> Throughput:
    throughput = Throughput()
    share = rate / len(pipes)
    started_at, lines, size, at, shown = time.time(), 0, 0, 0, -1
    while (now := time.time()) < started_at + seconds:
        due = int((now - started_at) * share) - lines
        if due > 0:
            block = template[at : at + due]
            at = at + due if at + due < len(template) else 0
            stamp = time.strftime("[%d/%b/%Y:%H:%M:%S +0000]", time.gmtime(now)).encode()
            data = b"".join(block).replace(_STAMP_PLACEHOLDER, stamp)
            first_due = started_at + lines / share
            for pipe in pipes:
                _write_all(pipe, data)
            lines, size = lines + len(block), size + len(data)
            throughput.sent.append((first_due, size))
        if (passed := int(now - started_at) // _PROGRESS_SECONDS) > shown:
            shown = passed
            show_progress(f"{now - started_at:.0f} of {seconds:.0f} s, {rate:,.0f} lines a second")
        time.sleep(max(0.0, now + _TICK - time.time()))
    throughput.lines = lines * len(pipes)
    throughput.line_bytes = size / max(lines, 1)
    return throughput


def _write_all(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def _wait_for_commit(folder: Path, throughput: Throughput, engine: subprocess.Popen[bytes]) -> None:
    """Wait until all lines are committed; raise if they are not those that were sent."""
    each = throughput.sent[-1][1]
    epochs: list[dict[str, Any]] = []

    def through() -> bool:
        epochs[:] = [json.loads(line) for line in _whole_lines(folder / "epochs.jsonl")]
        return bool(epochs) and sum(epochs[-1]["offsets"].values()) >= each * AGENTS

    wait_until(engine, folder / "engine.log", through, "not all lines were committed", _DRAIN_SECONDS)
    events, dropped = (sum(epoch[name] for epoch in epochs) for name in ("events", "aside"))
    if (events, dropped) != (throughput.lines, 0):
        raise InternalError(
            "BENCH_DISAGREES",
            f"{throughput.lines} lines were sent, {events} counted and {dropped} late or dead",
        )
    ends = epochs[-1]["offsets"]
    if sorted(ends.values()) != [each] * AGENTS:
        raise InternalError("BENCH_DISAGREES", f"each agent was sent {each} bytes, the log has {ends}")
    for epoch in epochs:
        for partition, offset in epoch["offsets"].items():
            committed = throughput.committed.setdefault(partition, [])
            if not committed or offset > committed[-1][1]:
                committed.append((epoch["at"], offset))


def _whole_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    text = file.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


@contextlib.contextmanager
def _engine(to: Gateway) -> Iterator[subprocess.Popen[bytes]]:
    folder = to.directory
    to.log.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "bench.ingest_engine", str(to.log), str(folder)]
    log = folder / "engine.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment(), start_new_session=True
        )
    try:
        wait_until(process, log, (folder / "running").exists, "the engine did not start", _START_SECONDS)
        yield process
    finally:
        end_tree(process)  # not killed at once: Spark would leave its files behind

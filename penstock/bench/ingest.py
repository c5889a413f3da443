"""The ingest benchmark: agents and a gateway on one machine, real processes, lines of the made-up click stream.

Receives its size; hands findings, case by case, each only after all lines were found in the log.

- `throughput`: one agent reads a pipe as fast as it can; from the first line to the last acknowledgement.
- `light`: what an agent costs at 5,000 lines a second, each line a write of its own as a web server does.
- `result`: from two agents' pipes through gateway and engine to committed counts, at 200,000 lines a second and more.
- `latency`: the same at half of that: how long lines take from the pipe to the commit of their epoch.
- `agents`: many agents, simulated in this process, at 50 lines a second each: what the gateway acknowledges, how soon,
  and whether its memory stays where it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.bench.findings import Finding, Target
from penstock.bench.ingest_results import AGENTS, Passed, passed
from penstock.ingest.frames import Frame
from penstock.ingest.intake import Hello
from penstock.ingest.segment_log import SegmentLog
from penstock.logs import GeneratedLog, Span
from penstock.words.errors import InternalError

BENCH, ENGINE, STREAM = "ingest", "penstock", "clicks"
CASES = ("throughput", "light", "result", "latency", "agents")
LIGHT_RATE = 5_000
RESULT_RATE = 200_000
#: of the rate asked for, so that it is not what is offered that bounds it
OFFERED = 1.05
AGENT_RATE = 50


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    lines: int = 10_000_000
    light_seconds: float = 60
    agents: int = 1_000
    agents_seconds: float = 600
    result_seconds: float = 60
    warm_seconds: float = 15
    runs: int = 3


QUICK = Size(
    lines=1_000_000,
    light_seconds=10,
    agents=1_000,
    agents_seconds=15,
    result_seconds=15,
    warm_seconds=5,
    runs=1,
)


class Ingest:
    """The cases."""

    def __init__(self, size: Size, told: Callable[[str], None]) -> None:
        self._size, self._told = size, told
        self.stages: dict[str, dict[str, float]] = {}
        self._lines = _lines(200_000)

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "throughput": self._throughput,
            "light": self._light,
            "result": self._result,
            "latency": self._latency,
            "agents": self._agents,
        }

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """What is not measured of these cases and why, a line each."""
        return []

    def _throughput(self) -> Iterator[Finding]:
        runs = []
        for number in range(self._size.runs):
            self._told(f"throughput, run {number + 1}")
            with _gateway() as (directory, port), _agent(directory, port) as agent:
                assert agent.stdin is not None
                time.sleep(1)  # both have started
                began, sent = time.perf_counter(), 0
                while sent < self._size.lines:
                    agent.stdin.write(self._lines)
                    sent += self._lines.count(b"\n")
                agent.stdin.close()
                agent.wait()
                runs.append(sent / (time.perf_counter() - began))
                _check(directory, sent)
        yield Finding(
            BENCH, "throughput", ENGINE, "agent to gateway", "lines/s", tuple(runs), Target(200_000)
        )

    def _light(self) -> Iterator[Finding]:
        self._told("light")
        lines = self._lines.splitlines(keepends=True)
        with _gateway() as (directory, port), _agent(directory, port) as agent:
            assert agent.stdin is not None
            pipe, sent, slowest = agent.stdin.fileno(), 0, 0.0
            time.sleep(1)
            began, before = time.perf_counter(), _cpu_seconds(agent.pid)
            while (passed := time.perf_counter() - began) < self._size.light_seconds:
                while sent < passed * LIGHT_RATE:
                    at = time.perf_counter()
                    os.write(pipe, lines[sent % len(lines)])
                    slowest = max(slowest, time.perf_counter() - at)
                    sent += 1
                time.sleep(0.002)
            share = (_cpu_seconds(agent.pid) - before) / passed * 100
            memory = _memory_mb(agent.pid)
            agent.stdin.close()
            agent.wait()
            _check(directory, sent)
        yield Finding(BENCH, "light", ENGINE, "agent's core", "%", (share,), Target(5, "at most"))
        yield Finding(BENCH, "light", ENGINE, "agent's memory", "MB", (memory,))
        yield Finding(BENCH, "light", ENGINE, "slowest write to the pipe", "ms", (slowest * 1e3,))

    def _result(self) -> Iterator[Finding]:
        runs = list(self._passed("result", RESULT_RATE * OFFERED))
        rates = tuple(run.rate(self._size.warm_seconds) for run in runs)
        behind = tuple(run.behind_seconds for run in runs)
        yield Finding(
            BENCH, "result", ENGINE, "agent to gateway to result", "lines/s", rates, Target(RESULT_RATE)
        )
        yield Finding(BENCH, "result", ENGINE, "last line through after", "s", behind)

    def _latency(self) -> Iterator[Finding]:
        rate = RESULT_RATE / 2
        runs = [run.delays(self._size.warm_seconds) for run in self._passed("latency", rate)]
        case = f"{rate:,.0f} lines/s"
        for share, target in ((50, None), (99, Target(1.5, "at most"))):
            found = tuple(float(np.percentile(run, share)) for run in runs)
            yield Finding(BENCH, case, ENGINE, f"agent to result, p{share}", "s", found, target)

    def _passed(self, case: str, rate: float) -> Iterator[Passed]:
        seconds = self._size.warm_seconds + self._size.result_seconds
        for number in range(self._size.runs):
            with _gateway("--partitions", str(AGENTS)) as (directory, port):
                yield passed(
                    directory,
                    port,
                    self._lines,
                    rate,
                    seconds,
                    lambda line, run=number: self._told(f"{case}, run {run + 1}: {line}"),  # type: ignore[misc]
                )

    def _agents(self) -> Iterator[Finding]:
        self._told(f"{self._size.agents} agents")
        count, seconds = self._size.agents, self._size.agents_seconds
        lines = self._lines.splitlines(keepends=True)[:AGENT_RATE]
        with _gateway("--most-connections", str(count + 10)) as (directory, port):
            pid = _gateway_pid(directory)
            simulated = _Crowd(port, count, b"".join(lines), seconds)
            memory: list[float] = []
            began, before = time.perf_counter(), _cpu_seconds(pid)
            asyncio.run(simulated.run(lambda: memory.append(_memory_mb(pid))))
            passed = time.perf_counter() - began
            share = (_cpu_seconds(pid) - before) / passed * 100
            _check(directory, simulated.acknowledged)
        middle = memory[len(memory) // 2]
        wanted = count * AGENT_RATE
        case, delays = f"{count} agents", np.array(simulated.delays) * 1e3
        rate = simulated.steady / (seconds - 1)
        yield Finding(BENCH, case, ENGINE, "acknowledged", "lines/s", (rate,), Target(wanted * 0.95))
        yield Finding(BENCH, case, ENGINE, "acknowledgement p99", "ms", (float(np.percentile(delays, 99)),))
        yield Finding(BENCH, case, ENGINE, "gateway's core", "%", (share,))
        yield Finding(BENCH, case, ENGINE, "gateway's memory", "MB", (memory[-1],))
        yield Finding(
            BENCH,
            case,
            ENGINE,
            "memory grown since the middle",
            "MB",
            (memory[-1] - middle,),
            Target(5, "at most"),
        )


class _Crowd:
    """Agents that each send a frame a second, and wait for its acknowledgement before the next."""

    def __init__(self, port: int, count: int, lines: bytes, seconds: float) -> None:
        self._port, self._count, self._lines, self._seconds = port, count, lines, seconds
        self.acknowledged = 0
        #: lines acknowledged while all of them were sending
        self.steady = 0
        self._began = time.perf_counter()
        self.delays: list[float] = []

    async def run(self, look: Callable[[], None]) -> None:
        """Send for the time asked for; `look` is called each second."""
        async with asyncio.TaskGroup() as tasks:
            agents = [tasks.create_task(self._one(number)) for number in range(self._count)]
            while not all(agent.done() for agent in agents):
                look()
                await asyncio.sleep(1)

    async def _one(self, number: int) -> None:
        await asyncio.sleep(number / self._count)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        name, position = f"agent-{number}", 0
        writer.write(Hello(STREAM, name).encoded())
        await reader.readline()
        until, due = time.perf_counter() + self._seconds, time.perf_counter()
        while time.perf_counter() < until:
            frame = Frame.of(name, position, self._lines)
            at = time.perf_counter()
            writer.write(frame.encoded())
            position = frame.end
            while json.loads(await reader.readline()).get("durable", 0) < position:
                pass
            self.delays.append(time.perf_counter() - at)
            self.acknowledged += frame.count
            self.steady += frame.count if 1 <= time.perf_counter() - self._began < self._seconds else 0
            due += 1
            await asyncio.sleep(max(due - time.perf_counter(), 0))
        writer.close()


def _lines(count: int) -> bytes:
    log = GeneratedLog(partitions=1, total=count, live=False)
    return b"".join(chunk.data for chunk in log.read(Span("p0", 0, count)))


@contextmanager
def _gateway(*more: str) -> Iterator[tuple[Path, int]]:
    with tempfile.TemporaryDirectory(prefix="penstock-ingest-") as name:
        directory = Path(name)
        with open(directory / "said", "w+b") as said:
            command = [sys.executable, "-m", "penstock.main", "gateway", "--dir", str(directory / "log")]
            process = subprocess.Popen([*command, "--listen", "127.0.0.1:0", *more], stderr=said)
            try:
                while b"listening" not in (text := (directory / "said").read_bytes()):
                    if process.poll() is not None:
                        raise InternalError("BENCH_FAILED", "the gateway did not start", detail=text.decode())
                    time.sleep(0.02)
                (directory / "pid").write_text(str(process.pid))
                yield directory, json.loads(text.splitlines()[0])["port"]
            finally:
                process.terminate()
                process.wait()


@contextmanager
def _agent(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "penstock.main",
        "agent",
        "--to",
        f"127.0.0.1:{port}",
        "--stream",
        STREAM,
    ]
    with open(directory / "agent said", "wb") as said:
        more = ["--spool", str(directory / "spool"), "--drain", "1h"]
        process = subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stderr=said)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _check(directory: Path, sent: int) -> None:
    """Raise unless the log holds as many lines as were sent."""
    log = SegmentLog(directory / "log" / STREAM)
    spans = [Span(one.id, one.earliest, one.latest) for one in log.partitions({})]
    found = sum(chunk.data.count(b"\n") for span in spans for chunk in log.read(span))
    if found != sent:
        raise InternalError("BENCH_DISAGREES", f"{sent} lines were sent, but the log holds {found}")


def _gateway_pid(directory: Path) -> int:
    return int((directory / "pid").read_text())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

"""The ingest benchmark: agents and a gateway on one machine, real processes, lines of the made-up click stream.

A case yields its findings only after all lines were found in the log.

- `throughput`: one agent reads a pipe as fast as it can; from the first line to the last acknowledgement.
- `light`: what an agent costs at 5,000 lines a second, each line a write of its own as a web server does.
- `result`: from two agents' pipes through gateway and engine to committed counts, at 200,000 lines a second and more.
- `latency`: the same at half of that: how long lines take from the pipe to the commit of their epoch.
- `connections`: requests of one line over HTTP, 500 a second, beside 1,000 connections that send nothing and 40 that
  send a byte now and then: how soon a line is on disk.
- `agents`: many agents, simulated in this process, at 50 lines a second each: what the gateway acknowledges, how soon,
  and whether its memory stays where it was.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.api_load import AnsweredRequests, run_load
from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding, Target
from bench.held_connections import hold_connections
from bench.ingest_processes import STREAM, agent, check, finish_agent, gateway
from bench.ingest_requests import run_posts
from bench.ingest_results import AGENTS, Throughput, send_through
from bench.processes import cpu_seconds, memory_bytes
from bench.simulated_agents import SimulatedAgents
from penstock.logs import GeneratedLog, Span

BENCH, ENGINE = "ingest", "penstock"
LIGHT_RATE = 5_000
RESULT_RATE = 200_000
#: times the target rate, so that the offered load is not the limit
OFFERED = 1.05
AGENT_RATE = 50
#: a long case reports its progress so often
_PROGRESS_SECONDS = 10


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    lines: int = 10_000_000
    light_seconds: float = 30
    agents: int = 1_000
    agents_seconds: float = 600
    requests_per_second: int = 500
    silent: int = 1_000
    slow: int = 40
    requests_seconds: float = 60
    result_seconds: float = 60
    warm_seconds: float = 15
    runs: int = 3


QUICK = Size(
    lines=1_000_000,
    light_seconds=10,
    agents=1_000,
    agents_seconds=15,
    requests_seconds=5,
    result_seconds=15,
    warm_seconds=5,
    runs=1,
)


class Ingest(Benchmark):
    """The cases."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size
        self._lines = _lines(200_000)

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {
            "throughput": self._throughput,
            "light": self._light,
            "result": self._result,
            "latency": self._latency,
            "agents": self._agents,
            "connections": self._connections,
        }

    def _throughput(self) -> Iterator[Finding]:
        runs = []
        for run in self._runs("throughput"):
            with gateway() as to, agent(to, "agent", "--drain", "1h") as process:
                assert process.stdin is not None
                self._show_progress(f"{run}: {self._size.lines:,} lines as fast as they go")
                started_at, sent = time.perf_counter(), 0
                while sent < self._size.lines:
                    process.stdin.write(self._lines)
                    sent += self._lines.count(b"\n")
                finish_agent(process, to.directory / "agent.log", 600)
                runs.append(sent / (time.perf_counter() - started_at))
                self._show_progress(f"{run}: reading the log back")
                check(to.log, sent)
        yield Finding(
            BENCH, "throughput", ENGINE, "agent to gateway", "lines/s", tuple(runs), Target(200_000)
        )

    def _light(self) -> Iterator[Finding]:
        lines = self._lines.splitlines(keepends=True)
        shares, memory, slowest = list[float](), list[float](), list[float]()
        for run in self._runs("light"):
            with gateway() as to, agent(to, "agent", "--drain", "1h") as process:
                self._show_progress(
                    f"{run}: {LIGHT_RATE:,} lines a second for {self._size.light_seconds:g} s"
                )
                assert process.stdin is not None
                pipe, sent, longest = process.stdin.fileno(), 0, 0.0
                started_at, before = time.perf_counter(), cpu_seconds(process.pid)
                while (passed := time.perf_counter() - started_at) < self._size.light_seconds:
                    while sent < passed * LIGHT_RATE:
                        at = time.perf_counter()
                        os.write(pipe, lines[sent % len(lines)])
                        longest = max(longest, time.perf_counter() - at)
                        sent += 1
                    time.sleep(0.002)
                shares.append((cpu_seconds(process.pid) - before) / passed * 100)
                memory.append(memory_bytes(process.pid, "VmHWM") / 1e6)
                slowest.append(longest * 1e3)
                finish_agent(process, to.directory / "agent.log", 600)
                check(to.log, sent)
        case = f"{LIGHT_RATE:,} lines/s"
        yield Finding(BENCH, case, ENGINE, "agent's core", "%", tuple(shares), Target(5, "at most"))
        yield Finding(BENCH, case, ENGINE, "agent's memory at most", "MB", tuple(memory))
        yield Finding(BENCH, case, ENGINE, "slowest write to the pipe", "ms", tuple(slowest))

    def _connections(self) -> Iterator[Finding]:
        size, found = self._size, list[AnsweredRequests]()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        line = self._lines.splitlines(keepends=True)[0]
        for run in self._runs("connections"):
            with (
                gateway("--http", f"127.0.0.1:{port}", "--stream", STREAM) as to,
                hold_connections(port, size.silent, size.slow, retry_seconds=1.0),
            ):
                self._show_progress(
                    f"{run}: {size.requests_per_second} a second, {size.requests_seconds:g} s"
                )
                posts = run_posts(port, STREAM, line, size.requests_per_second, size.requests_seconds)
                found.append(run_load(posts))
                check(to.log, len(found[-1].delays))
        case = f"{size.requests_per_second} requests/s beside {size.silent:,} silent and {size.slow} slow connections"
        rates, least = tuple(one.rate for one in found), Target(size.requests_per_second * 0.99)
        yield Finding(BENCH, case, ENGINE, "answered", "requests/s", rates, least)
        for name, share in (("on disk after, p50", 0.5), ("on disk after, p99", 0.99), ("slowest", 1.0)):
            delays = [sorted(one.delays) for one in found]
            values = tuple(one[min(len(one) - 1, int(share * len(one)))] * 1_000 for one in delays)
            yield Finding(BENCH, case, ENGINE, name, "ms", values)

    def _result(self) -> Iterator[Finding]:
        runs = list(self._send_runs("result", RESULT_RATE * OFFERED))
        rates = tuple(run.rate(self._size.warm_seconds) for run in runs)
        behind = tuple(run.behind_seconds for run in runs)
        yield Finding(
            BENCH, "result", ENGINE, "agent to gateway to result", "lines/s", rates, Target(RESULT_RATE)
        )
        yield Finding(BENCH, "result", ENGINE, "last line through after", "s", behind)

    def _latency(self) -> Iterator[Finding]:
        rate = RESULT_RATE / 2
        runs = [run.delays(self._size.warm_seconds) for run in self._send_runs("latency", rate)]
        case = f"{rate:,.0f} lines/s"
        for share, target in ((50, None), (99, Target(1.5, "at most"))):
            values = tuple(float(np.percentile(run, share)) for run in runs)
            yield Finding(BENCH, case, ENGINE, f"agent to result, p{share}", "s", values, target)

    def _send_runs(self, case: str, rate: float) -> Iterator[Throughput]:
        seconds = self._size.warm_seconds + self._size.result_seconds
        for run in self._runs(case):
            with gateway("--partitions", str(AGENTS)) as to:

                def show_progress(line: str, run: str = run) -> None:
                    self._show_progress(f"{run}: {line}")

                yield send_through(to, self._lines, rate, seconds, show_progress)

    def _agents(self) -> Iterator[Finding]:
        count, seconds = self._size.agents, self._size.agents_seconds
        lines = self._lines.splitlines(keepends=True)[:AGENT_RATE]
        memory: list[float] = []
        with gateway("--most-connections", str(count + 10)) as to:
            simulated = SimulatedAgents(to.port, count, b"".join(lines), seconds)

            def sample_memory(passed: float) -> None:
                memory.append(memory_bytes(to.pid) / 1e6)
                if len(memory) % _PROGRESS_SECONDS == 1:
                    progress = f"{simulated.acknowledged:,} lines, the gateway has {memory[-1]:.0f} MB"
                    self._show_progress(f"{count:,} agents: {passed:.0f} of {seconds:.0f} s, {progress}")

            started_at, before = time.perf_counter(), cpu_seconds(to.pid)
            simulated.send(sample_memory)
            share = (cpu_seconds(to.pid) - before) / (time.perf_counter() - started_at) * 100
            self._show_progress(f"{count:,} agents: reading {simulated.acknowledged:,} lines back")
            check(to.log, simulated.acknowledged)
        case, late = f"{count:,} agents", float(np.percentile(simulated.delays, 99)) * 1e3
        target = Target(count * AGENT_RATE * 0.95)
        yield Finding(BENCH, case, ENGINE, "acknowledged", "lines/s", (simulated.rate,), target)
        values = (float(simulated.acknowledged),)
        yield Finding(BENCH, case, ENGINE, "acknowledged and found in the log", "lines", values)
        yield Finding(BENCH, case, ENGINE, "acknowledgement, p99", "ms", (late,))
        yield Finding(BENCH, case, ENGINE, "gateway's core", "%", (share,))
        yield Finding(BENCH, case, ENGINE, "gateway's memory at most", "MB", (max(memory),))
        name, flat = "memory grown in the second half", Target(5, "at most")
        yield Finding(BENCH, case, ENGINE, name, "MB", (_memory_growth(memory),), flat)

    def _runs(self, case: str) -> Iterator[str]:
        """Yield the name of each run and show it."""
        for number in range(self._size.runs):
            run = f"{case}, run {number + 1} of {self._size.runs}"
            self._show_progress(run)
            yield run


def _memory_growth(memory: Sequence[float]) -> float:
    """Return the growth from the middle to the end, each the median of a tenth of all samples."""
    tenth, middle = max(len(memory) // 10, 1), len(memory) // 2
    return statistics.median(memory[-tenth:]) - statistics.median(memory[middle : middle + tenth])


def _lines(count: int) -> bytes:
    log = GeneratedLog(partitions=1, total=count, live=False)
    return b"".join(chunk.data for chunk in log.read(Span("p0", 0, count)))

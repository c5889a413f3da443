"""The API under load: how soon questions are answered, and whether every subscriber gets every epoch.

Receives a size; hands findings. `penstock serve` runs as a process of its own on the real engine, and events flow. The
load comes from here, at the instants a steady rate says: a question that waits for others counts its waiting too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.bench.findings import Finding, Target
from penstock.client.sse import Reader
from penstock.words.errors import ExternalError, InternalError

BENCH = "api"
_SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 2000, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS;
CREATE JOB popular AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 1 SECONDS
"""
_SERVE = "from penstock.service.cli import main; main()"
_START_SECONDS = 180.0
Told = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    seconds: float = 30.0
    asks_per_second: int = 500
    connections: int = 32
    subscribers: int = 200
    runs: int = 3


QUICK = Size(seconds=5.0, runs=1)


class Api:
    """One run of the benchmark."""

    def __init__(self, size: Size, told: Told) -> None:
        self._size, self._told = size, told
        self.stages: dict[str, dict[str, float]] = {}

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {"ask": self.ask, "subscribers": self.subscribers}

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """What is not measured here and why, a line each."""
        return []

    def ask(self) -> Iterator[Finding]:
        """How soon questions are answered."""
        size, runs = self._size, list[list[float]]()
        with _served(self._told) as port:
            for number in range(size.runs):
                self._told(f"ask: run {number + 1} of {size.runs}")
                runs.append(asyncio.run(_asked(port, size)))
        case = f"{size.asks_per_second} questions a second"
        for share, target in ((0.5, None), (0.99, Target(20, "at most"))):
            found = tuple(_quantile(samples, share) * 1000 for samples in runs)
            yield Finding(BENCH, case, "penstock", f"answer, p{share * 100:.0f}", "ms", found, target)

    def subscribers(self) -> Iterator[Finding]:
        """Whether each gets every epoch once, and how far the last is behind the first."""
        size, shares, lags = self._size, list[float](), list[float]()
        with _served(self._told) as port:
            for number in range(size.runs):
                self._told(f"subscribers: run {number + 1} of {size.runs}")
                had = asyncio.run(_subscribed(port, size))
                common = range(max(min(one) for one in had), min(max(one) for one in had) + 1)
                told = sorted({epoch for one in had for epoch in one if epoch in common})
                right = [one for one in had if [epoch for epoch in one if epoch in common] == told]
                shares.append(len(right) / len(had))
                spread = (
                    [max(o[e] for o in right) - min(o[e] for o in right) for e in told] if right else [0.0]
                )
                lags.append(_quantile(spread, 0.99) * 1000)
        case = f"{size.subscribers} subscribers"
        yield Finding(BENCH, case, "penstock", "had every epoch once", "share", tuple(shares), Target(1.0))
        yield Finding(BENCH, case, "penstock", "first to last, p99", "ms", tuple(lags))


# -- the load ------------------------------------------------------------------------------------


async def _asked(port: int, size: Size) -> list[float]:
    """Ask at a steady rate; hands the seconds from when each question was due to its answer."""
    due = [number / size.asks_per_second for number in range(int(size.seconds * size.asks_per_second))]
    samples, began = list[float](), time.perf_counter() + 0.5

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last = -1
        for at in due[number :: size.connections]:
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            writer.write(b"GET /jobs/popular/answer HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")
            )
            epoch = json.loads(await reader.readexactly(length))["epoch"]
            samples.append(time.perf_counter() - began - at)
            if b" 200 " not in head[:20] or epoch < last:
                raise InternalError("BENCH_WRONG", "an answer was refused, or older than the one before")
            last = epoch
        writer.close()

    await asyncio.gather(*(one(number) for number in range(size.connections)))
    return samples


async def _subscribed(port: int, size: Size) -> list[dict[int, float]]:
    """Subscribe so often; hands when each had which epochs. Raises if one comes twice."""
    ends = time.monotonic() + size.seconds + 2

    async def one() -> dict[int, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /jobs/popular/events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        events, had = Reader(), dict[int, float]()
        await reader.readuntil(b"\r\n\r\n")
        while time.monotonic() < ends:
            with contextlib.suppress(TimeoutError):
                piece = await asyncio.wait_for(reader.read(1 << 16), max(0.01, ends - time.monotonic()))
                for event in events.read(piece):
                    if event.kind == "rows" and event.id is not None:
                        if int(event.id) in had:
                            raise InternalError("BENCH_WRONG", f"epoch {event.id} came twice")
                        had[int(event.id)] = time.perf_counter()
        writer.close()
        return had

    return [had for had in await asyncio.gather(*(one() for _ in range(size.subscribers))) if had]


def _quantile(samples: Collection[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


# -- the service ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _served(told: Told) -> Iterator[int]:
    """`penstock serve` in a process of its own, once its job has told something; hands its port."""
    told("starting the service")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        Path(folder, "jobs.sql").write_text(_SCRIPT)
        command = [sys.executable, "-c", _SERVE, "serve", "jobs.sql", "--state", "state"]
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{port}"],
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])},
            )
        try:
            _until_it_tells(process, port, Path(folder, "log"))
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until_it_tells(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError, ValueError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs/popular/answer", timeout=5) as answer:
                told: dict[str, Any] = json.load(answer)
            if told["epoch"] is not None and told["epoch"] > 5:
                return
        time.sleep(0.2)
    raise ExternalError(
        "SERVICE_NOT_STARTED", "the service told nothing", detail=log.read_text(errors="replace")[-1_000:]
    )

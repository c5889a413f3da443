"""The API under load: how soon requests are answered, and whether every subscriber gets every epoch.

`penstock serve` runs in a process of its own on the real engine, while events arrive. The
load (see `api_load`) comes from this process.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.api_load import (
    AnsweredRequests,
    ReceivedEvents,
    get_json,
    last_result_epoch,
    run_load,
    run_requests,
    run_subscribers,
)
from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding, Target
from bench.held_connections import hold_connections
from bench.processes import end_tree, environment
from penstock.errors import ExternalError

BENCH = "api"
_SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 2000, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS;
CREATE JOB popular AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 1 SECONDS
"""
_SERVE = "from penstock.cli.commands import main; main()"
_START_SECONDS = 180.0
_END_SECONDS = 40.0


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    seconds: float = 30.0
    asks_per_second: int = 500
    connections: int = 32
    subscribers: int = 200
    silent: int = 1_000
    slow: int = 40
    runs: int = 3


QUICK = Size(seconds=5.0, runs=1)


class Api(Benchmark):
    """One run of the benchmark."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {"ask": self.ask, "connections": self.connections, "subscribers": self.subscribers}

    def ask(self) -> Iterator[Finding]:
        """Measure how soon requests are answered."""
        yield from self._ask(f"{self._size.asks_per_second} questions a second", lambda port: nullcontext())

    def connections(self) -> Iterator[Finding]:
        """Measure the same while others hold connections open that send nothing, or a byte now and then."""
        size = self._size
        yield from self._ask(
            f"{size.asks_per_second} questions a second beside {size.silent:,} silent and {size.slow} slow connections",
            lambda port: hold_connections(port, size.silent, size.slow),
        )

    def _ask(self, case: str, others: Callable[[int], AbstractContextManager[None]]) -> Iterator[Finding]:
        size, runs, event_rates = self._size, list[AnsweredRequests](), list[float]()
        with _serve(self._show_progress) as port, others(port):
            for number in range(size.runs):
                self._show_progress(f"{case}, for {size.seconds:g} s: run {number + 1} of {size.runs}")
                before, started_at = get_json(port, "/status")["events"], time.perf_counter()
                runs.append(
                    run_load(run_requests(port, size.asks_per_second, size.seconds, size.connections))
                )
                events = get_json(port, "/status")["events"] - before
                event_rates.append(events / (time.perf_counter() - started_at))
        rates, least = tuple(run.rate for run in runs), Target(size.asks_per_second * 0.99)
        yield Finding(BENCH, case, "penstock", "answered", "answers/s", rates, least)
        for name, share, target in (
            ("answer, p50", 0.5, None),
            ("answer, p99", 0.99, Target(20, "at most")),
            ("slowest answer", 1.0, None),
        ):
            values = tuple(_quantile(run.delays, share) * 1000 for run in runs)
            yield Finding(BENCH, case, "penstock", name, "ms", values, target)
        yield Finding(BENCH, case, "penstock", "events meanwhile", "events/s", tuple(event_rates))

    def subscribers(self) -> Iterator[Finding]:
        """Check that each gets every epoch once, and measure how far the last is behind the first."""
        size, runs = self._size, list[ReceivedEvents]()
        with _serve(self._show_progress) as port:
            for number in range(size.runs):
                load = f"{size.subscribers} of them for {size.seconds:g} s"
                self._show_progress(f"subscribers: run {number + 1} of {size.runs}, {load}")
                runs.append(run_load(run_subscribers(port, size.subscribers, size.seconds)))
        case, shares = f"{size.subscribers} subscribers", tuple(run.share for run in runs)
        yield Finding(BENCH, case, "penstock", "had every epoch once", "share", shares, Target(1.0))
        epochs = tuple(float(len(run.epochs)) for run in runs)
        yield Finding(BENCH, case, "penstock", "epochs that told rows", "epochs", epochs, Target(1))
        if all(run.spreads for run in runs):
            lags = tuple(_quantile(run.spreads, 0.99) * 1000 for run in runs)
            yield Finding(BENCH, case, "penstock", "first to last, p99", "ms", lags)


def _quantile(samples: Collection[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


# -- the service ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _serve(show_progress: ShowProgress) -> Iterator[int]:
    """Run `penstock serve` in a process of its own; yield its port once its job has results."""
    show_progress("starting the service")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder, "jobs.sql").write_text(_SCRIPT)
        command = [sys.executable, "-c", _SERVE, "serve", "jobs.sql", "--state", "state"]
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{port}"],
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment(),
            )
        try:
            _wait_for_result(process, port, Path(folder, "log"))
            yield port
        finally:
            show_progress("ending the service")
            end_tree(process, _END_SECONDS)  # not killed at once: Spark would leave its files behind


def _wait_for_result(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(ExternalError, ValueError):
            if last_result_epoch(port) > 5:
                return
        time.sleep(0.2)
    raise ExternalError(
        "SERVICE_NOT_STARTED",
        "the service emitted no results",
        detail=log.read_text(errors="replace")[-1_000:],
    )

"""`./run bench checkpoint`: what the checkpoint interval saves while nothing fails, and costs when something does.

For every interval it measures the length of an epoch, its CPU, the bytes that reach the disk for it, and
the time from a loss at the worst moment to the first new results.

The engine runs without Spark (`inline`), so that the figures are those of the state and not of Spark's start. A loss is
an engine that ends without any cleanup and loses its memory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import penstock as ps
from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.epoch.task import shared_run_store
from penstock.settings import Settings

_ENGINE = "penstock"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    epoch_events: int = 20_000
    epochs: int = 41
    users: int = 200_000
    intervals: tuple[int, ...] = (1, 2, 5, 10, 20)
    runs: int = 3


QUICK = Size(epoch_events=5_000, epochs=21, users=20_000, intervals=(1, 5, 10), runs=1)


class _Stop(Exception):
    """Ends a run from within: the engine is lost."""


@dataclass
class _Reports:
    """The epochs of one engine, which is lost once `until` holds."""

    until: Callable[[EpochReport], bool]
    reports: list[EpochReport] = field(default_factory=list)

    def __call__(self, report: EpochReport) -> None:
        self.reports.append(report)
        if self.until(report):
            raise _Stop


class Checkpoint(Benchmark):
    """The benchmark."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {"interval": self.interval}

    def interval(self) -> Iterator[Finding]:
        """Measure overhead and recovery for each interval."""
        samples: dict[tuple[int, str, str], list[float]] = {}
        for run in range(self._size.runs):
            for every in self._size.intervals:
                self._show_progress(f"a durable manifest every {every}, run {run + 1}")
                with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                    for (metric, unit), value in self._measure(Path(folder), every).items():
                        samples.setdefault((every, metric, unit), []).append(value)
        for (every, metric, unit), values in samples.items():
            yield Finding("checkpoint", f"every {every}", _ENGINE, metric, unit, tuple(values))

    def _measure(self, folder: Path, every: int) -> dict[tuple[str, str], float]:
        """Run an engine up to just before a durable manifest, and the next one up to its first new result."""
        size = self._size
        last = size.epochs - size.epochs % every - 2 if every > 1 else size.epochs - 1
        first = _Reports(lambda report: report.epoch == last)
        cpu = time.process_time()
        self._run_engine(folder, every, first)
        cpu = time.process_time() - cpu
        warm = first.reports[size.epochs // 4 :]
        written = [r.run_bytes if every == 1 else r.checkpoint_bytes for r in warm]
        second = _Reports(lambda report: not report.delivery_skipped)
        started_at = time.perf_counter()
        self._run_engine(folder, every, second)
        recovery = time.perf_counter() - started_at
        return {
            ("epoch", "ms"): 1e3 * sum(report.seconds for report in warm) / len(warm),
            ("CPU of an epoch", "ms"): 1e3 * cpu / len(first.reports),
            ("state on disk an epoch", "kB"): sum(written) / 1e3 / len(warm),
            ("epochs repeated", "epochs"): float(sum(report.replayed for report in second.reports)),
            ("recovery", "s"): recovery,
        }

    def _run_engine(self, folder: Path, every: int, reports: _Reports) -> None:
        shared_run_store.cache_clear()  # as another process would find it
        size = self._size
        settings = Settings(
            state=folder / "state",
            master="inline",
            checkpoint_every=every,
            first_epoch_units=size.epoch_events,
            most_epoch_units=size.epoch_events,
            epoch_interval_seconds=0.0,
            drain=True,
        )
        try:
            Engine(self._app(folder), settings).run(reports)
        except _Stop:
            return
        except Exception as failure:
            if not isinstance(failure.__cause__, _Stop):
                raise

    def _app(self, folder: Path) -> ps.App:
        size = self._size
        total = size.epoch_events * (size.epochs + 2)
        log = ps.generated(total=total, live=False, users=size.users, partitions=1, rate=size.epoch_events)
        clicks = ps.stream(
            "clicks", log, ps.combined_log(extra=[ps.Cookie("session")]), time="time", lateness="1s"
        )
        paths = clicks.key_by("session").last(3, "path").map(path=ps.col("path").list.join(">"))
        return ps.app(
            "checkpoint",
            ps.output(
                "paths",
                paths.select("session", "path").filter(ps.col("path") == ">"),
                ps.jsonl(folder / "paths"),
            ),
            ps.output("visits", clicks.key_by("path").window("10s").count(), ps.jsonl(folder / "visits")),
        )

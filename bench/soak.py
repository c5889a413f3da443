"""The soak: epochs without end while jobs come and go, files rotate and sinks fail, and nothing that grows.

    compressed    so many small epochs back to back, in this process: the engine's admission, runner, record, result
                  log, deliveries, manifests and removal of old state, without Spark
    spark         so many hours on Spark (`local[2]`), a tick of the same work each second

At the end the output of every sink is compared with an oracle, and each series of the second quarter with that of the
last: one that has grown is an error that names it.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding, Target
from bench.soak_chart import draw_soak
from bench.soak_checks import SLACK_EVENTS, Oracle
from bench.soak_faults import Faults, small_disk
from bench.soak_jobs import Jobs
from bench.soak_load import ROTATION_TICKS, TICK_EVENTS, LogFiles
from bench.soak_receiver import Receiver
from bench.soak_samples import Growth, Sample, judge, take_sample
from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.epoch.report import EpochReport
from penstock.errors import InternalError
from penstock.settings import Settings
from penstock.testing.inline import InlineEngine

_BENCH = "soak"
#: an engine removes old state so often, and keeps so many manifests
_REMOVE_EPOCHS, _MANIFESTS = 10, 20
#: from so many epochs on growth is judged: before, the result log and former files fill what they may keep
LEAST_JUDGED_EPOCHS = 20_000
#: how long the end of a run waits for epochs and deliveries, in seconds
_END_SECONDS = 120.0
#: a tick on Spark, in seconds
_TICK_SECONDS = 1.0


@dataclass(frozen=True)
class Size:
    """How long the soak runs: so many epochs, or so many hours on Spark."""

    epochs: int = 100_000
    hours: float = 0.0
    #: without Spark: ends after so many minutes, however many epochs are left
    minutes: float = math.inf
    #: where it writes; by default a folder in memory that is removed at the end
    folder: Path | None = None
    plot: Path | None = None
    #: samples of a run
    samples: int = 100


QUICK = Size(epochs=2_000)


class Soak(Benchmark):
    """One soak."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size
        self.samples: list[Sample] = []

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        return {case_of(self._size): self._run}

    def _run(self) -> Iterator[Finding]:
        given = self._size.folder
        folder = (
            Path(tempfile.mkdtemp(prefix="penstock-soak-", dir=_memory_folder())) if given is None else given
        )
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        try:
            with ExitStack() as stack:
                can_fill = stack.enter_context(small_disk(folder / "full"))
                run = _Run(folder, self._ticks(), can_fill=can_fill)
                stack.callback(run.close)
                execute = self._run_spark if self._size.hours else self._run_compressed
                execute(run)
                self._show_progress("comparing the output with the oracle")
                rows = Oracle(folder, run.receiver, run.jobs.changes, run.files.written, run.slack).check()
        finally:
            if given is None:
                shutil.rmtree(folder, ignore_errors=True)
        yield from self._findings(rows, time.monotonic() - started)

    def _ticks(self) -> int:
        return int(self._size.hours * 3_600 / _TICK_SECONDS) if self._size.hours else self._size.epochs

    def _run_compressed(self, run: _Run) -> None:
        run.start_compressed()
        every = max(self._size.epochs // self._size.samples, 10)
        seconds: list[float] = []
        before = time.process_time()
        deadline = time.monotonic() + 60 * self._size.minutes
        for tick in range(self._size.epochs):
            if time.monotonic() > deadline:
                break
            seconds.append(run.step(tick))
            if (tick + 1) % every == 0:
                cpu = time.process_time() - before
                self._sample(take_sample(tick + 1, run.state, seconds, cpu, run.receiver.pid))
                seconds, before = [], time.process_time()
        run.finish_compressed()

    def _run_spark(self, run: _Run) -> None:
        seconds: list[float] = []
        with _SparkEngine(run, lambda report: seconds.append(report.seconds)) as engine:
            every = max(self._ticks() // self._size.samples, 1)
            start, before = time.monotonic(), time.process_time()
            for tick in range(self._ticks()):
                run.tick(tick)
                engine.check()
                if (tick + 1) % every == 0:
                    taken, seconds[:] = list(seconds), []
                    cpu = time.process_time() - before
                    self._sample(take_sample(engine.last_epoch, run.state, taken, cpu, run.receiver.pid))
                    before = time.process_time()
                time.sleep(max(start + (tick + 1) * _TICK_SECONDS - time.monotonic(), 0.0))
            engine.finish()

    def _sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        if len(self.samples) > 3:
            self._draw()
        values = sample.values
        self._show_progress(
            f"{sample.epochs:,} epochs: {values['memory']:.0f} MB, {values['heap objects']:,.0f} objects, "
            f"{values['descriptors']:.0f} descriptors, {values['threads']:.0f} threads, "
            f"{values['state files and folders']:.0f} files of {values['state bytes']:.0f} KB, an epoch takes "
            f"{values['driver CPU an epoch']:.1f} ms of CPU, {values['epoch, median']:.1f} ms "
            f"(p99 {values['epoch, p99']:.0f})"
        )

    def _draw(self) -> None:
        """Draw what there is so far, and write the samples beside it."""
        if self._size.plot is not None:
            title = f"{self.samples[-1].epochs:,} epochs: jobs come and go, files rotate, sinks fail"
            self._size.plot.write_text(draw_soak(title, self.samples, judge(self.samples)))
            lines = "".join(f"{sample.to_json()}\n" for sample in self.samples)
            self._size.plot.with_suffix(".jsonl").write_text(lines)

    def _findings(self, rows: dict[str, int], seconds: float) -> Iterator[Finding]:
        case = case_of(self._size)
        growth = judge(self.samples)
        self._draw()
        epochs = self.samples[-1].epochs
        yield Finding(_BENCH, case, "penstock", "epochs", "epochs", (float(epochs),))
        yield Finding(_BENCH, case, "penstock", "whole run, with the load", "s", (seconds,))
        for what, count in rows.items():
            yield Finding(_BENCH, case, "penstock", f"rows as the oracle: {what}", "rows", (float(count),))
        for one in growth:
            values = tuple(sample.values[one.series.name] for sample in self.samples)
            yield Finding(_BENCH, case, "penstock", one.series.name, one.series.unit, values)
            target = Target(round(one.most_ratio, 3), "at most") if one.series.is_judged else None
            name = f"{one.series.name}: last quarter / second"
            yield Finding(_BENCH, case, "penstock", name, "times", (one.ratio,), target)
        if self._size.hours or epochs >= LEAST_JUDGED_EPOCHS:
            _refuse_growth(growth)
        else:
            self._show_progress(f"growth is judged from {LEAST_JUDGED_EPOCHS:,} epochs on")


class _Run:
    """The parts of one soak: its files, jobs, faults, and the program."""

    def __init__(self, folder: Path, ticks: int, *, can_fill: bool) -> None:
        self.folder, self.state = folder, folder / "state"
        (folder / "out").mkdir()
        self.receiver = Receiver(folder / "received.jsonl")
        self.jobs = Jobs(folder, self.receiver.url)
        self.faults = Faults(folder, self.receiver, self.jobs, ticks, can_fill=can_fill)
        self.files = LogFiles(folder / "in")
        self.program = Program("soak", self.state, begin=self.jobs.begin())
        self.engine: InlineEngine | None = None
        self.slack = SLACK_EVENTS
        self._turned = 0.0
        self.receiver.start()

    def close(self) -> None:
        """Stop what still runs."""
        if self.engine is not None:
            self.engine.close()
        self.faults.close()

    def tick(self, tick: int) -> None:
        """Do what is due at a tick, then write its events."""
        self.faults.tick(self.program, tick, self.files.written)
        self.jobs.tick(self.program, tick, self.files.written)
        if tick % ROTATION_TICKS == ROTATION_TICKS - 1:
            self.files.rotate()
        self.files.write_tick()

    def start_compressed(self) -> None:
        """Start an engine of which each epoch is a second of the clock by which partitions are idle."""
        self.engine = InlineEngine(
            self.program,
            self.state,
            clock=self._read_clock,
            waits_for_sinks=False,
            small_epoch_bytes=Settings().small_epoch_bytes,
            slices=1,
            buckets=16,
        )

    def _read_clock(self) -> float:
        return time.monotonic() + self._turned

    def step(self, tick: int) -> float:
        """A tick and an epoch; returns what the epoch took, in seconds."""
        assert self.engine is not None
        self.tick(tick)
        self._turned += 1.0
        started = time.perf_counter()
        self.engine.step()
        if tick % _REMOVE_EPOCHS == _REMOVE_EPOCHS - 1:
            self.engine.remove_old_state(_MANIFESTS)
        return time.perf_counter() - started

    def finish_compressed(self) -> None:
        """End the faults, execute what is left, and wait for the sinks."""
        assert self.engine is not None
        self.faults.heal(self.program, self.files.written)
        deadline = time.monotonic() + _END_SECONDS
        for _ in range(10):  # partitions of former files become idle
            self.files.write_tick()
            self._turned += 1.0
            self.engine.step()
            time.sleep(0.1)  # archives settle
        self.program.deliveries.finish(_END_SECONDS, max(deadline - time.monotonic(), 0.0))
        _check_delivered(self.program)


class _SparkEngine:
    """An engine on Spark in a thread, for one run."""

    def __init__(self, run: _Run, watch: Callable[[EpochReport], None]) -> None:
        self._run, self._watch = run, watch
        settings = Settings(state=run.state, master="local[2]")
        run.slack = 60 * TICK_EVENTS  # of the seconds around a command nothing is known
        self._engine = Engine(run.program, settings)
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._execute, daemon=True)

    @property
    def last_epoch(self) -> int:
        """The last epoch."""
        return self._engine.last_epoch

    def __enter__(self) -> _SparkEngine:
        self._thread.start()
        self._ready.wait(_END_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stop()
        self._thread.join(_END_SECONDS)

    def _execute(self) -> None:
        try:
            self._engine.run(
                self._watch, on_phase=lambda phase: self._ready.set() if phase == "running" else None
            )
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def check(self) -> None:
        """Raise the error with which the engine has ended, if it has."""
        if self._error is not None:
            raise self._error

    def _has_backlog(self) -> bool:
        admission = self._engine.admission
        return admission is None or any(admission.backlog.values())

    def finish(self) -> None:
        """End the faults, and wait until all is read and delivered."""
        run = self._run
        run.faults.heal(run.program, run.files.written)
        for _ in range(20):
            run.files.write_tick()
            time.sleep(_TICK_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        while self._has_backlog() and time.monotonic() < deadline:
            self.check()
            time.sleep(0.1)
        run.program.deliveries.finish(_END_SECONDS, _END_SECONDS)
        _check_delivered(run.program)
        self.check()


def case_of(size: Size) -> str:
    """The case that a size runs."""
    return "spark" if size.hours else "compressed"


def _memory_folder() -> str | None:
    """A folder in memory, where there is one: syncs then cost nothing."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _check_delivered(program: Program) -> None:
    lags = program.deliveries.lags()
    if lags:
        lag = lags[0]
        raise InternalError(
            "SOAK_DISAGREES",
            f"{lag.sink} still lacks {lag.epochs} epochs of {lag.job} although it is back",
            detail=lag.error,
        )


def _refuse_growth(growth: list[Growth]) -> None:
    grown = [one for one in growth if one.grows]
    if grown:
        raise InternalError(
            "SOAK_GREW",
            f"in the last quarter there is more than in the second: {', '.join(one.series.name for one in grown)}",
            detail="; ".join(
                f"{one.series.name} {one.second:,.1f} -> {one.last:,.1f} {one.series.unit}" for one in grown
            )
            + ".",
        )

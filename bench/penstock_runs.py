"""Penstock's side of the benchmark: the two queries, and epochs of 1,000 events.

Settings are the defaults, apart from the end: stop when all is read.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from polars import col
from pyspark.sql import SparkSession

from bench.dataset import Dataset, Parameters
from bench.outcome import AnswerRows, EpochClock, Outcome
from bench.reference import TOP, WINDOW_SECONDS
from penstock.catalogue.program import Program
from penstock.decode import Cookie, combined_log
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.errors import InternalError
from penstock.logs import FileLog
from penstock.logs.contract import Log
from penstock.query.app import app, output
from penstock.query.logical import App
from penstock.query.stream import Stream, stream
from penstock.settings import Settings
from penstock.sinks import parquet
from penstock.spark.session import session

LATENESS = "2s"


def clicks(log: Log) -> Stream:
    """The stream of both queries."""
    return stream("clicks", log, combined_log(extra=[Cookie("session")]), time="time", lateness=LATENESS)


def patterns_app(log: Log, results: Path) -> App:
    """The last three pages of each session, counted; the ten most frequent, emitted every 30 s of event time."""
    last = clicks(log).key_by("session").last(3, "path").map(pattern=col("path").list.join(" > "))
    top = last.key_by("pattern").running(f"{WINDOW_SECONDS}s").count().top(TOP)
    return app("patterns", output("top", top, parquet(results)))


def windows_app(log: Log, results: Path) -> App:
    """The ten most visited pages of each 30 s."""
    counts = clicks(log).key_by("path").window(f"{WINDOW_SECONDS}s").count()
    return app("windows", output("top", counts.top(TOP, changes_only=False), parquet(results)))


APPS = {"patterns": patterns_app, "windows": windows_app}


def runs(case: str, datasets: list[Dataset], place: Path) -> list[Outcome]:
    """The case over each data set in turn, in one session; the first ones warm it up for the last."""
    spark = start_session()
    outcomes = []
    for number, dataset in enumerate(datasets):
        folder, results = place / str(number), place / str(number) / "results"
        settings = Settings(state=folder / "state", drain=True)
        application = APPS[case](files_of(dataset), results)
        outcomes.append(run_to_end(application, dataset, settings, spark).outcome(answer(case, results)))
    return outcomes


def small_epochs(warm: int, measured: int, events: int, place: Path) -> Outcome:
    """Epochs of `events` events of the patterns query, one after the other, with more always waiting.

    A sample is the time from the end of one epoch to the end of the next, in ms.
    """
    log = Parameters(events * (warm + measured + 1), servers=2, rate=events).log()
    settings = Settings(
        state=place / "state",
        drain=True,
        most_epoch_units=events,
        epoch_interval_seconds=0.0,
    )
    ends: list[float] = []
    inside: list[float] = []

    def watch(report: EpochReport) -> None:
        ends.append(time.perf_counter())
        inside.append(report.seconds)

    Engine(patterns_app(log, place / "results"), settings, start_session()).run(watch)
    ends, inside = ends[warm : warm + measured + 1], inside[warm : warm + measured + 1]
    gaps = [(after - before) * 1000 for before, after in itertools.pairwise(ends)]
    stages = {"inside Penstock": sum(inside[1:]) / len(gaps)}
    return Outcome(events * len(gaps), ends[-1] - ends[0], len(gaps), samples=gaps, stages=stages)


def start_session(master: str = Settings.master) -> SparkSession:
    """The session that the engine would start for itself."""
    return session(Settings(master=master))


def files_of(dataset: Dataset) -> FileLog:
    """The whole files of a data set, to which nothing will be added."""
    return FileLog(str(dataset.whole / "*.log"), finished=True)


@dataclass(frozen=True)
class CompletedRun:
    """An engine's run over all there was: `stages` are seconds summed over tasks."""

    events: int
    seconds: float
    epochs: int
    stages: dict[str, float]

    def outcome(self, answer: AnswerRows) -> Outcome:
        return Outcome(self.events, self.seconds, self.epochs, answer, stages=self.stages)


def run_to_end(
    program: App | Program,
    dataset: Dataset,
    settings: Settings,
    spark: SparkSession,
    watch: Callable[[EpochReport], None] = lambda _: None,
) -> CompletedRun:
    """Run until all of a data set is read, and refuse a run that did not take all of it."""
    clock = EpochClock()
    stages: dict[str, float] = defaultdict(float)

    def each(report: EpochReport) -> None:
        clock.watch(report)
        for stage, seconds in (*report.stage_seconds.items(), ("inside Penstock", report.seconds)):
            stages[stage] += seconds
        watch(report)

    done = Engine(program, settings, spark).run(each, on_phase=clock.on_phase)
    if (done.events, done.late, done.bad) != (dataset.events, 0, 0):
        raise InternalError(
            "BENCH_EVENTS_LOST",
            f"Penstock took {done.events} of {dataset.events} events, {done.late} late and {done.bad} bad",
        )
    return CompletedRun(done.events, clock.seconds, clock.epochs, dict(stages))


def answer(case: str, results: Path) -> AnswerRows:
    """What the sink holds, in the form in which answers are compared."""
    rows = parquet(results).read()
    if case == "patterns":  # the last result emitted is the final one
        last = rows.filter(rows["as_of"] == rows["as_of"].max()).sort("rank")
        return [list(row) for row in last.select("rank", "pattern", "count").iter_rows()]
    found = rows.sort("window_start", "rank").select("window_start", "rank", "path", "count").iter_rows()
    return [[_seconds(start), *rest] for start, *rest in found]


def _seconds(instant: datetime) -> int:
    return round(instant.timestamp())

"""The outcome of one run of one engine: its result, and how long it took for how much.

The process of the run writes it as JSON for the benchmark.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.errors import InternalError

#: rows of a result: (rank, pattern, count), or (start of the window in seconds, rank, path, count)
AnswerRows = list[list[Any]]


@dataclass(frozen=True)
class Outcome:
    """A run over one data set.

    `seconds`: from the start of the first epoch that had input to the end of the last one, its commit
    included. `samples`: the figure of every epoch, where a case is about single epochs.
    `stages`: for people, where the time went, in seconds summed over tasks.
    """

    events: int
    seconds: float
    epochs: int
    answer: AnswerRows = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the outcomes of a process for the benchmark."""
    path.write_text(json.dumps([asdict(outcome) for outcome in outcomes]))


def read_outcomes(path: Path) -> list[Outcome]:
    """Read the outcomes that a process has written."""
    return [Outcome(**facts) for facts in json.loads(path.read_text())]


class EpochClock:
    """Times a run of Penstock: from when its engine is ready for the first epoch to the end of the last one.

    An engine's `run` takes `on_phase` and `watch`.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._started_at = self._ended_at = math.nan

    @property
    def seconds(self) -> float:
        return self._ended_at - self._started_at

    def on_phase(self, phase: str) -> None:
        """Workers have loaded what they need once it is `running`."""
        if phase == "running":
            self._started_at = time.perf_counter()

    def watch(self, _: object) -> None:
        """An epoch has ended: its manifest is in place."""
        self.epochs += 1
        self._ended_at = time.perf_counter()


def span_seconds(progress: Iterable[Mapping[str, Any]]) -> tuple[float, int]:
    """From the first trigger's start to the last one's end, by Spark's own progress reports; and how many.

    Reports of triggers that ran no batch (Spark sends them when it is idle) do not count.
    """
    batches = [report for report in progress if "addBatch" in report["durationMs"]]
    starts = [datetime.fromisoformat(report["timestamp"]).timestamp() for report in batches]
    ends = [
        at + report["durationMs"]["triggerExecution"] / 1000
        for at, report in zip(starts, batches, strict=True)
    ]
    return max(ends) - min(starts), len(batches)


def agree(what: str, engine: str, answer: AnswerRows, right: AnswerRows) -> None:
    """Refuse an answer that is not the right one."""
    if answer == right:
        return
    unexpected = [row for row in answer if row not in right]
    missing = [row for row in right if row not in answer]
    raise InternalError(
        "BENCH_DISAGREES",
        f"the answer of {engine} for {what} is wrong",
        detail=f"{len(answer)} rows, {len(right)} expected; not expected: {unexpected[:3]}; missing: {missing[:3]}.",
    )

"""The results of jobs: the rows of each epoch, kept for a while, and every job's latest answer.

Receives the rows of an epoch before it is committed; hands a job's latest answer, and its rows from an epoch on.

    DIR/results/EPOCH.arrow   one file an epoch: names of jobs whose rows are alike, their rows (Arrow IPC), and how
                              many rows at the end are each job's last answer (none said: all)

The latest answer of a job that gives one for every instant is that of the last instant it told of; that of others is
what they told in the last epoch. A job is named here by what tells it from former ones of its name.

Guarantees: an epoch's rows are there whole or not at all, and offering them again changes nothing. A file goes once
there are `kept` newer ones, unless a job's latest answer is in it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.state.durable import write_once
from penstock.state.ipc import dense_stream_bytes, from_stream, stream_bytes
from penstock.state.run_file import unwritable_error

_WHOSE = "_whose"
#: answers are mostly replaced within so many epochs
_RECENT = 4


@dataclass(frozen=True)
class JobResult:
    """A job's rows of one epoch; `last`: how many at the end are its last answer, if not all."""

    epoch: int
    rows: pl.DataFrame
    last: int | None = None

    def latest(self) -> JobResult:
        """The last answer among them."""
        return self if self.last is None else JobResult(self.epoch, self.rows.tail(self.last))


class Results:
    """The results under one state directory."""

    def __init__(self, directory: Path, kept: int = 1_000) -> None:
        self._folder, self._kept = directory / "results", kept
        self._lock = threading.Lock()
        self._latest: dict[str, JobResult] = {}
        self._epochs: list[int] = []
        #: what was told before this epoch may be gone
        self.retained_from = 0
        self._recent: deque[tuple[int, tuple[str, ...]]] = deque()

    def load(self, jobs: Collection[str]) -> None:
        """Find the latest answers of jobs after a restart."""
        names = os.listdir(self._folder) if self._folder.exists() else []
        self._epochs = sorted(int(name[:-6]) for name in names if name.endswith(".arrow") and name[0] != ".")
        # fewer than are kept: nothing was ever forgotten
        self.retained_from = self._epochs[-self._kept] if len(self._epochs) >= self._kept else 0
        missing = set(jobs)
        for epoch in reversed(self._epochs):
            if not missing:
                break
            for name, answer in self._of(epoch, missing):
                self._latest[name] = answer
                missing.discard(name)

    def put(
        self, epoch: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int] | None = None
    ) -> None:
        """Keep the rows of an epoch; `last`: how many of a job's are its last answer, where it says so."""
        told = {name: frame for name, frame in rows.items() if frame.height}
        last = {
            name: count for name, count in (last or {}).items() if name in told and count < told[name].height
        }
        if not told:
            return
        path = self._path(epoch)
        with self._lock:
            if self._epochs and epoch < self._epochs[-1] and epoch in self._epochs:
                return  # repeated on the way to where we were
        try:
            if not path.exists():  # another engine of a unit may have kept them
                write_once(path, stream_bytes(_packed(told, last)).to_pybytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        with self._lock:
            self._latest |= {name: JobResult(epoch, frame, last.get(name)) for name, frame in told.items()}
            if epoch not in self._epochs[-2:]:
                self._epochs.append(epoch)
            self._forget_old()
            self._recent.append((epoch, tuple(told)))
            if len(self._recent) > _RECENT:
                self._keep_alone(*self._recent.popleft())

    def latest(self, job: str) -> JobResult | None:
        """A job's latest answer; None before its first."""
        told = self.latest_epoch(job)
        return None if told is None else told.latest()

    def latest_epoch(self, job: str) -> JobResult | None:
        """All that a job told in the last epoch in which it did."""
        with self._lock:
            return self._latest.get(job)

    def of(self, job: str, epoch: int) -> pl.DataFrame | None:
        """A job's rows of one epoch."""
        latest = self.latest_epoch(job)
        if latest is not None and latest.epoch == epoch:
            return latest.rows
        return next((answer.rows for _, answer in self._of(epoch, [job])), None)

    def since(self, job: str, epoch: int) -> Iterator[JobResult]:
        """A job's rows of the epochs from one on, as far as they are kept."""
        with self._lock:
            epochs = [number for number in self._epochs if number >= epoch]
        for number in epochs:
            for _, answer in self._of(number, [job]):
                yield answer

    def forget(self, job: str) -> None:
        """A job is gone: its answers need not be kept."""
        with self._lock:
            self._latest.pop(job, None)

    def keep_only(self, jobs: Collection[str]) -> None:
        """There are these jobs and no others: their answers need not be kept."""
        with self._lock:
            self._latest = {job: answer for job, answer in self._latest.items() if job in jobs}

    def _keep_alone(self, epoch: int, jobs: Collection[str]) -> None:
        """Have answers that stay stand for themselves: as they came, each holds the rows of all jobs in memory."""
        for job in jobs:
            answer = self._latest.get(job)
            if answer is not None and answer.epoch == epoch:
                self._latest[job] = replace(answer, rows=from_stream(stream_bytes(answer.rows)))

    def _forget_old(self) -> None:
        if len(self._epochs) <= self._kept * 1.1:
            return
        needed = {answer.epoch for answer in self._latest.values()}
        old = [epoch for epoch in self._epochs[: -self._kept] if epoch not in needed]
        self.retained_from = self._epochs[-self._kept]
        for epoch in old:
            self._path(epoch).unlink(missing_ok=True)
        self._epochs = [epoch for epoch in self._epochs if epoch not in set(old)]

    def _of(self, epoch: int, jobs: Collection[str]) -> Iterator[tuple[str, JobResult]]:
        """What some jobs told in one epoch."""
        try:
            with pa.memory_map(str(self._path(epoch))) as file:
                wanted = pl.col("jobs").list.set_intersection(list(jobs)).list.len() > 0
                packed = from_stream(file.read_buffer()).filter(wanted)
        except FileNotFoundError:
            return
        for names, rows, *last in packed.iter_rows():
            frame = from_stream(rows)
            counts = last[0] if last else [None] * len(names)  # no such column in files of former versions
            for number, (name, count) in enumerate(zip(names, counts, strict=True)):
                if name in jobs:
                    mine = frame.filter(pl.col(_WHOSE) == number).drop(_WHOSE)
                    yield name, JobResult(epoch, mine, count)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.arrow"


def as_declared(rows: pl.DataFrame, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows with these columns; null where there is no such thing."""
    return rows.select(
        pl.col(name).cast(dtype, strict=False) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in wanted.items()
    )


def _packed(told: Mapping[str, pl.DataFrame], last: Mapping[str, int]) -> pl.DataFrame:
    """The rows of all jobs, those with the same columns together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, frame in told.items():
        alike.setdefault(tuple(f"{n} {t}" for n, t in frame.schema.items()), []).append(name)
    rows = [
        pl.concat(told[name] for name in names).hstack(
            [pl.Series(_WHOSE, np.repeat(np.arange(len(names)), [told[name].height for name in names]))]
        )
        for names in alike.values()
    ]
    # compressed, a fifth of the size, and that much less to bring to disk
    packed = [dense_stream_bytes(frame, "lz4") for frame in rows]
    return pl.DataFrame(
        {
            "jobs": list(alike.values()),
            "rows": packed,
            "last": [[last.get(name) for name in names] for names in alike.values()],
        },
        schema={"jobs": pl.List(pl.String), "rows": pl.Binary, "last": pl.List(pl.Int64)},
    )

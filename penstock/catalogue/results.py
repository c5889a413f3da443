"""Keep the results of jobs: the rows of each epoch, for a while, and every job's latest result, for `ask`.

    DIR/results/EPOCH.arrow   one file an epoch: names of jobs whose rows have the same columns, their rows (Arrow IPC),
                              and how many rows at the end are each job's latest result (null: all)

The latest result of a job that emits one for every instant is that of the last instant; that of others is what they
emitted in the last epoch. Jobs are named by their `JobEntry.result_key`, which distinguishes them from former jobs.

Guarantees: an epoch's rows are there completely or not at all, and putting them again changes nothing. A file is
removed once there are `kept` newer ones, unless a job's latest result is in it.
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
#: most results are replaced within so many epochs
_RECENT = 4


@dataclass(frozen=True)
class JobResult:
    """A job's rows of one epoch; `last`: how many at the end are its latest result, if not all."""

    epoch: int
    rows: pl.DataFrame
    last: int | None = None

    def latest(self) -> JobResult:
        """The latest result among them."""
        return self if self.last is None else JobResult(self.epoch, self.rows.tail(self.last))


class Results:
    """The results under one state directory."""

    def __init__(self, directory: Path, kept: int = 1_000) -> None:
        self._folder, self._kept = directory / "results", kept
        self._lock = threading.Lock()
        self._latest: dict[str, JobResult] = {}
        self._epochs: list[int] = []
        #: rows of earlier epochs may be gone
        self.retained_from = 0
        self._recent: deque[tuple[int, tuple[str, ...]]] = deque()

    def load(self, jobs: Collection[str]) -> None:
        """Find the latest results of jobs after a restart."""
        self._list_epochs()
        missing = set(jobs)
        for epoch in reversed(self._epochs):
            if not missing:
                break
            for name, result in self._read(epoch, missing):
                self._latest[name] = result
                missing.discard(name)

    def put(
        self, epoch: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int] | None = None
    ) -> None:
        """Keep the rows of an epoch; `last`: how many of a job's rows are its latest result, where that is not all."""
        emitted = {name: frame for name, frame in rows.items() if frame.height}
        counts = {name: count for name, count in (last or {}).items() if name in emitted}
        counts = {name: count for name, count in counts.items() if count < emitted[name].height}
        if not emitted:
            return
        path = self._path(epoch)
        with self._lock:
            if self._epochs and epoch < self._epochs[-1] and epoch in self._epochs:
                return  # repeated during recovery
        try:
            if not path.exists():  # another engine of a unit may have kept them
                write_once(path, stream_bytes(_encode_rows(emitted, counts)).to_pybytes())
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        with self._lock:
            self._latest |= {
                name: JobResult(epoch, frame, counts.get(name)) for name, frame in emitted.items()
            }
            if epoch not in self._epochs[-2:]:
                self._epochs.append(epoch)
            self._forget_old()
            self._recent.append((epoch, tuple(emitted)))
            if len(self._recent) > _RECENT:
                self._copy_rows(*self._recent.popleft())

    def latest(self, job: str) -> JobResult | None:
        """A job's latest result; None before its first."""
        result = self.latest_epoch(job)
        return None if result is None else result.latest()

    def latest_epoch(self, job: str) -> JobResult | None:
        """All that a job emitted in the last epoch in which it emitted any rows."""
        with self._lock:
            return self._latest.get(job)

    def of(self, job: str, epoch: int) -> pl.DataFrame | None:
        """A job's rows of one epoch."""
        latest = self.latest_epoch(job)
        if latest is not None and latest.epoch == epoch:
            return latest.rows
        return next((result.rows for _, result in self._read(epoch, [job])), None)

    def since(self, job: str, epoch: int) -> Iterator[JobResult]:
        """A job's rows of the epochs from one on, as far as they are retained."""
        with self._lock:
            epochs = [number for number in self._epochs if number >= epoch]
        for number in epochs:
            for _, result in self._read(number, [job]):
                yield result

    def forget(self, job: str) -> None:
        """Forget the latest result of a job that was dropped."""
        with self._lock:
            self._latest.pop(job, None)

    def keep_only(self, jobs: Collection[str]) -> None:
        """Forget the latest results of all other jobs."""
        with self._lock:
            self._latest = {job: result for job, result in self._latest.items() if job in jobs}

    def _copy_rows(self, epoch: int, jobs: Collection[str]) -> None:
        """Copy the rows of results that stay: as slices of one frame, each keeps the rows of all jobs in memory."""
        for job in jobs:
            result = self._latest.get(job)
            if result is not None and result.epoch == epoch:
                self._latest[job] = replace(result, rows=from_stream(stream_bytes(result.rows)))

    def _forget_old(self) -> None:
        if len(self._epochs) <= self._kept * 1.1:
            return
        needed = {result.epoch for result in self._latest.values()}
        old = [epoch for epoch in self._epochs[: -self._kept] if epoch not in needed]
        self.retained_from = self._epochs[-self._kept]
        for epoch in old:
            self._path(epoch).unlink(missing_ok=True)
        self._epochs = [epoch for epoch in self._epochs if epoch not in set(old)]

    def _list_epochs(self) -> None:
        names = os.listdir(self._folder) if self._folder.exists() else []
        self._epochs = sorted(int(name[:-6]) for name in names if name.endswith(".arrow") and name[0] != ".")
        # fewer than are kept: nothing was ever removed
        self.retained_from = self._epochs[-self._kept] if len(self._epochs) >= self._kept else 0

    def _read(self, epoch: int, jobs: Collection[str]) -> Iterator[tuple[str, JobResult]]:
        """What some jobs emitted in one epoch."""
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


def cast_to_schema(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows with these columns; null where a column is missing."""
    return rows.select(
        pl.col(name).cast(dtype, strict=False) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )


def _encode_rows(emitted: Mapping[str, pl.DataFrame], last: Mapping[str, int]) -> pl.DataFrame:
    """The rows of all jobs, those with the same columns together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, frame in emitted.items():
        groups.setdefault(tuple(f"{n} {t}" for n, t in frame.schema.items()), []).append(name)
    rows = [
        pl.concat(emitted[name] for name in names).hstack(
            [pl.Series(_WHOSE, np.repeat(np.arange(len(names)), [emitted[name].height for name in names]))]
        )
        for names in groups.values()
    ]
    # compressed: a fifth of the size on disk
    encoded = [dense_stream_bytes(frame, "lz4") for frame in rows]
    return pl.DataFrame(
        {
            "jobs": list(groups.values()),
            "rows": encoded,
            "last": [[last.get(name) for name in names] for names in groups.values()],
        },
        schema={"jobs": pl.List(pl.String), "rows": pl.Binary, "last": pl.List(pl.Int64)},
    )

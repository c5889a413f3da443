"""The sides of the state benchmark, each run in a process of its own: Penstock's state, and plain dictionaries.

Measured are the seconds of inserting and of flushing, bytes held, and a digest of
the aggregates (how many events and how many bytes each page had).

Inserting starts from a batch in columns. To Penstock's side belongs all that a slice does in an epoch: reducing,
hashing, sorting, the run on disk (synced), the host's cache, compaction, the manifest. Flushing ends with a frame
of all aggregates.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import polars as pl

from bench.held import REST_SECONDS, Held, file_bytes
from bench.key_stream import BYTES, PAGE, KeyStream
from penstock.logs.draw import mixed
from penstock.operators.contract import FOREVER, NEVER, TIME, Progress, SliceState
from penstock.operators.functions import count, sum_
from penstock.operators.running import RunningAggregation
from penstock.operators.time_windows import TimeWindow
from penstock.settings import Settings
from penstock.state.buckets import key_hash
from penstock.state.cache import HostCache
from penstock.state.collection import Scope
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.run_store import RunStore

#: "penstock": totals are read at the end; "penstock, told": after every batch, those of the pages in it
Side = Literal["penstock", "penstock, told", "dictionary", "dictionary, reduced"]
COUNT, SUM = "n", "b"
_OPERATOR = "running"
#: event time from one batch to the next
_BATCH_MICROS = 1_000_000


@dataclass(frozen=True)
class Taken:
    """What one side took; bytes and seconds, of which the CPU's are of all threads.

    `held` is memory at rest after inserting, `most` memory at any time. `disk` are the runs that the state consists of,
    `kept` all else on disk: older runs to go back to.
    """

    events: int
    keys: int
    insert_seconds: float
    insert_cpu_seconds: float
    flush_seconds: float
    held: int
    most: int
    disk: int
    kept: int
    digest: int


class State(Protocol):
    """What is measured: aggregates that batches go into and that can be read."""

    def insert(self, batch: pl.DataFrame) -> None:
        """Take in a batch."""

    def flush(self) -> pl.DataFrame:
        """All aggregates: `page`, `n` and `b`."""

    def disk(self) -> tuple[int, int]:
        """The bytes on disk that the state needs, and those kept beside."""


class Plain:
    """A dictionary from the page to a list of count and sum, updated event by event."""

    def __init__(self) -> None:
        self._totals: dict[str, list[int]] = {}

    def insert(self, batch: pl.DataFrame) -> None:
        totals = self._totals
        for page, size in zip(batch[PAGE].to_list(), batch[BYTES].to_list(), strict=True):
            found = totals.get(page)
            if found is None:
                totals[page] = [1, size]
            else:
                found[0] += 1
                found[1] += size

    def flush(self) -> pl.DataFrame:
        totals = self._totals.values()
        return pl.DataFrame(
            {PAGE: list(self._totals), COUNT: [n for n, _ in totals], SUM: [b for _, b in totals]}
        )

    def disk(self) -> tuple[int, int]:
        return 0, 0


class Reduced(Plain):
    """The same dictionary, updated once for every page of a batch, which Polars reduces first."""

    def insert(self, batch: pl.DataFrame) -> None:
        totals = self._totals
        reduced = batch.group_by(PAGE).agg(pl.len(), pl.col(BYTES).sum())
        for page, n, size in zip(*(column.to_list() for column in reduced.get_columns()), strict=True):
            found = totals.get(page)
            if found is None:
                totals[page] = [n, size]
            else:
                found[0] += n
                found[1] += size


class Collections:
    """The collections of Penstock's running aggregation, as a slice that has all buckets works on them.

    Until a step of time is over partial aggregates wait in a log, and inserting reads nothing; a step that is
    over goes into a table of totals. With `emit_each_batch` each batch is a step, otherwise all of them are one.
    """

    def __init__(self, place: Path, cache: Path, emit_each_batch: bool) -> None:
        settings = Settings()
        self._buckets, self._manifests = settings.buckets, settings.manifests_kept
        step = _BATCH_MICROS if emit_each_batch else FOREVER // 2
        self._operator = RunningAggregation(
            (PAGE,), TimeWindow(step, step), (count(COUNT), sum_(BYTES, SUM).resolve({BYTES: pl.Int64()}))
        )
        place.mkdir(parents=True, exist_ok=True)
        self._directory = StateDirectory(place)
        self._cache = HostCache(cache, settings.cache_bytes)
        self._store = RunStore(self._directory.runs, self._cache)
        self._manifest = Manifest()
        self._before, self._emit_each_batch = NEVER, emit_each_batch

    def insert(self, batch: pl.DataFrame) -> None:
        start = (self._manifest.epoch + 1) * _BATCH_MICROS
        events = batch.with_columns(pl.lit(start, pl.Int64).alias(TIME))
        self._epoch(self._operator.prepare(events), start + _BATCH_MICROS)
        if self._manifest.epoch % 10 == 9:  # as often as the engine does
            for run in self._directory.remove_old_state(self._manifests):
                self._cache.forget(run)

    def flush(self) -> pl.DataFrame:
        rows = self._operator.current(self._state()) if self._emit_each_batch else self._epoch(None, FOREVER)
        assert rows is not None
        return rows.select(PAGE, COUNT, SUM)

    def disk(self) -> tuple[int, int]:
        needed = self._manifest.state_bytes()
        return needed, file_bytes(self._directory.path) - needed

    def _epoch(self, reduced: pl.DataFrame | None, after: int) -> pl.DataFrame | None:
        state = self._state()
        with self._store.sync_together():  # as a slice's task does
            rows = self._operator.process(reduced, state, Progress(self._before, after))
        changes = [(_OPERATOR, name, change) for name, change in state.changes().items()]
        before, self._manifest = self._manifest, self._manifest.advance(self._manifest.epoch + 1, changes)
        self._directory.manifests.commit(self._manifest)
        for run in before.runs() - self._manifest.runs():
            self._cache.forget(run)
        self._before = after
        return rows

    def _state(self) -> SliceState:
        everything = frozenset(range(self._buckets))
        scope = Scope(self._store, self._manifest.epoch + 1, everything, self._buckets)
        return SliceState(_OPERATOR, self._manifest.collections.get(_OPERATOR, {}), scope)


def measure(
    state: State, stream: KeyStream, memory: Sequence[Path] = (), rest_seconds: float = REST_SECONDS
) -> Taken:
    """Fill a state and read it once. Making a batch, and looking at the aggregates, is not in the clock.

    `memory`: folders whose files are memory. `rest_seconds`: how long to wait before memory is measured.
    """
    inserting = working = 0.0
    with Held(*memory) as holding:
        for batch in stream.batches():
            started_at, cpu_started_at = time.perf_counter(), time.process_time()
            state.insert(batch)
            inserting += time.perf_counter() - started_at
            working += time.process_time() - cpu_started_at
        held, (disk, kept) = holding.at_rest(rest_seconds), state.disk()
        started_at = time.perf_counter()
        totals = state.flush()
        flushing = time.perf_counter() - started_at
        most = holding.most
    return Taken(
        stream.events, totals.height, inserting, working, flushing, held, most, disk, kept, digest(totals)
    )


def digest(totals: pl.DataFrame) -> int:
    """A number that differs when any aggregate does, whatever the order of the pages."""
    words = key_hash(totals, [PAGE])
    for name in (COUNT, SUM):
        words = mixed(words ^ totals[name].cast(pl.Int64).to_numpy().astype(np.uint64))
    return int(np.add.reduce(words, dtype=np.uint64))


def main(side: Side, stream: KeyStream, place: Path, cache: Path, rest_seconds: float) -> None:
    """In the process: run one side, and write its measurements into `place`."""
    state: State
    match side:
        case "dictionary":
            state = Plain()
        case "dictionary, reduced":
            state = Reduced()
        case _:
            state = Collections(place / "state", cache, emit_each_batch=side == "penstock, told")
    taken = measure(state, stream, [cache], rest_seconds)
    (place / "taken.json").write_text(json.dumps(asdict(taken)))


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    rest = REST_SECONDS if task["rest_seconds"] is None else task["rest_seconds"]
    main(task["side"], KeyStream(**task["stream"]), Path(sys.argv[2]), Path(sys.argv[3]), rest)

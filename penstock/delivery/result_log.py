"""The result log: the rows that outputs emit in each epoch, durable before the epoch is committed.

    DIR/results/EPOCH.arrow   one file an epoch: names of outputs whose rows have the same columns, their rows (Arrow
                              IPC), how many rows at the end are each output's latest result (null: all), and the
                              digest of the epoch's record

Whatever consumes results reads them here at its own pace: sinks (`deliveries`), `ask`, subscriptions, jobs that read
the epoch before. An output is named by its `JobEntry.result_key`, which distinguishes it from former jobs of its name.
The latest result of a job that emits one for every instant is that of the last instant; that of others is what they
emitted in the last epoch.

Guarantees: an epoch's rows are there completely or not at all, and appending them again changes nothing, but for
outputs that lacked before: the query has changed, and the epoch is repeated.
Does not guarantee: rows of epochs that were pruned. `prune` says what stays.
On failure: `ExternalError` STATE_UNWRITABLE, and nothing of the epoch is there.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import InternalError
from penstock.state.durable import write_once, write_whole
from penstock.state.ipc import dense_stream_bytes, from_stream, stream_bytes
from penstock.state.run_file import unwritable_error

_LOG = logging.getLogger(__name__)
_WHOSE = "_whose"
#: most results are replaced within so many epochs
_RECENT = 4
#: a file counts at least so much: what it takes of a disk
_LEAST_BYTES = 4_096
#: `prune` looks at so many epochs at most that it has not seen
_EXAMINED_AT_ONCE = 1_000


@dataclass(frozen=True)
class JobResult:
    """An output's rows of one epoch; `last`: how many at the end are its latest result, if not all."""

    epoch: int
    rows: pl.DataFrame
    last: int | None = None

    def latest(self) -> JobResult:
        """The latest result among them."""
        return self if self.last is None else JobResult(self.epoch, self.rows.tail(self.last))


class ResultLog:
    """The result log under one state directory. From any thread."""

    def __init__(self, directory: Path, kept: int = 1_000) -> None:
        self.folder, self._kept = directory / "results", kept
        self._lock = threading.Lock()
        self._latest: dict[str, JobResult] = {}
        self._epochs: list[int] = []
        #: the size of each epoch's file, and of all, in bytes
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        #: epochs up to this one were looked at by `prune`, which kept some
        self._examined = -1
        self._kept_for_sinks: list[int] = []
        self._kept_as_latest: set[int] = set()
        #: the digest of each epoch's record, as far as it was read or written
        self._digests: dict[int, str] = {}
        #: rows of earlier epochs may be gone
        self.retained_from = 0
        self._recent: deque[tuple[int, tuple[str, ...]]] = deque()

    @property
    def epochs(self) -> list[int]:
        """The epochs that have rows here, ascending."""
        with self._lock:
            return list(self._epochs)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        with self._lock:
            return self._bytes

    def load(self, outputs: Collection[str]) -> None:
        """Find the latest results of outputs after a restart."""
        self._list_epochs()
        missing = set(outputs)
        for epoch in reversed(self._epochs):
            if not missing:
                break
            try:
                for name, result in self._read(epoch, missing):
                    self._latest[name] = result
                    missing.discard(name)
            except InternalError as damage:  # whoever needs these rows reports it again
                _LOG.error("%s", damage)

    def append(
        self,
        epoch: int,
        rows: Mapping[str, pl.DataFrame],
        last: Mapping[str, int] | None = None,
        digest: Callable[[], str] = lambda: "",
    ) -> None:
        """Make the rows of an epoch durable; `last`: how many of an output's rows are its latest result, where that is
        not all; `digest`: of the epoch's record, needed if there are rows."""
        emitted = {name: frame for name, frame in rows.items() if frame.height}
        if not emitted:
            return
        counts = {name: count for name, count in (last or {}).items() if name in emitted}
        counts = {name: count for name, count in counts.items() if count < emitted[name].height}
        path, of_record = self._path(epoch), digest()
        try:
            self._write(path, emitted, counts, of_record)
            with self._lock:
                self._set_size(epoch)
                self._digests[epoch] = of_record
        except OSError as failure:
            raise unwritable_error(path, failure) from failure
        with self._lock:
            for name, frame in emitted.items():
                if name not in self._latest or self._latest[name].epoch <= epoch:
                    self._latest[name] = JobResult(epoch, frame, counts.get(name))
            place = bisect_left(self._epochs, epoch)
            if place == len(self._epochs) or self._epochs[place] != epoch:
                self._epochs.insert(place, epoch)
            self._recent.append((epoch, tuple(emitted)))
            if len(self._recent) > _RECENT:
                self._copy_rows(*self._recent.popleft())

    def _write(
        self, path: Path, emitted: Mapping[str, pl.DataFrame], counts: Mapping[str, int], digest: str
    ) -> None:
        if not path.exists():
            content = _encode_rows(emitted, counts, digest)
            if write_once(path, stream_bytes(content).to_pybytes()):
                return
        # a repetition, or another engine of the unit was first
        present = self.outputs_in(_epoch_of(path))
        missing = {name: frame for name, frame in emitted.items() if name not in present}
        if missing:
            known = dict(self._read(_epoch_of(path), present))
            last = {name: one.last for name, one in known.items() if one.last is not None}
            rows = {**{name: one.rows for name, one in known.items()}, **missing}
            write_whole(path, stream_bytes(_encode_rows(rows, {**counts, **last}, digest)).to_pybytes())

    def latest(self, output: str) -> JobResult | None:
        """An output's latest result; None before its first."""
        result = self.latest_epoch(output)
        return None if result is None else result.latest()

    def latest_epoch(self, output: str) -> JobResult | None:
        """All that an output emitted in the last epoch in which it emitted any rows."""
        with self._lock:
            return self._latest.get(output)

    def of(self, output: str, epoch: int) -> pl.DataFrame | None:
        """An output's rows of one epoch; None where it has none, or they were pruned."""
        latest = self.latest_epoch(output)
        if latest is not None and latest.epoch == epoch:
            return latest.rows
        return next((result.rows for _, result in self._read(epoch, [output])), None)

    def digest_of(self, epoch: int) -> str:
        """The digest of an epoch's record; empty where nothing of the epoch is here, or a former version wrote it."""
        if epoch not in self._digests:
            self._read_packed(epoch)
        return self._digests.get(epoch, "")

    def since(self, output: str, epoch: int) -> Iterator[JobResult]:
        """An output's rows of the epochs from one on, as far as they are retained."""
        for number in self.epochs:
            if number >= epoch:
                for _, result in self._read(number, [output]):
                    yield result

    def has(self, epoch: int) -> bool:
        """Whether the rows of an epoch are here; of one without rows nothing is."""
        return self._path(epoch).exists()

    def outputs_in(self, epoch: int) -> set[str]:
        """The outputs that emitted rows in an epoch, as far as they are here."""
        packed = self._read_packed(epoch)
        return set() if packed is None else set(packed["jobs"].explode().to_list())

    def forget(self, output: str) -> None:
        """Forget the latest result of a job that was dropped."""
        with self._lock:
            self._latest.pop(output, None)

    def keep_only(self, outputs: Collection[str]) -> None:
        """Forget the latest results of all other outputs."""
        with self._lock:
            self._latest = {name: result for name, result in self._latest.items() if name in outputs}

    def prune(
        self,
        before: int,
        most_bytes: int,
        lacking: Callable[[int], Collection[str]],
        first_lacked: int | None,
    ) -> int:
        """Remove what nobody needs of the epochs before one: those beyond the newest `kept`, and more of them while all
        have over `most_bytes`, but for latest results and what sinks lack (`lacking`: the outputs, by epoch;
        `first_lacked`: the first such epoch). Returns by how many bytes what is left is over the limit.

        An epoch that stays is not looked at again before it may go: sinks may lack hundreds of thousands."""
        with self._lock:
            latest = {result.epoch for result in self._latest.values()}
            surplus_before = self._epochs[-self._kept] if len(self._epochs) > self._kept else 0
            first = bisect_right(self._epochs, self._examined)
            later = self._epochs[first : min(bisect_left(self._epochs, before), first + _EXAMINED_AT_ONCE)]
        delivered = bisect_left(self._kept_for_sinks, math.inf if first_lacked is None else first_lacked)
        gone, self._kept_for_sinks = self._kept_for_sinks[:delivered], self._kept_for_sinks[delivered:]
        for epoch in gone:
            self._remove(epoch)
        for epoch in sorted(self._kept_as_latest - latest):
            self._kept_as_latest.discard(epoch)
            self._remove_unless_needed(epoch, latest, lacking(epoch))
        for epoch in later:
            if epoch >= surplus_before and self._bytes <= most_bytes:
                break
            self._remove_unless_needed(epoch, latest, lacking(epoch))
            self._examined = epoch
        with self._lock:
            self.retained_from = max(self.retained_from, self._examined + 1)
            return max(self._bytes - most_bytes, 0)

    def _remove_unless_needed(self, epoch: int, latest: Collection[int], lacking: Collection[str]) -> None:
        if epoch in latest:
            self._kept_as_latest.add(epoch)
        elif lacking:
            self._shrink(epoch, lacking)
            insort(self._kept_for_sinks, epoch)
        else:
            self._remove(epoch)

    def _remove(self, epoch: int) -> None:
        self._path(epoch).unlink(missing_ok=True)
        with self._lock:
            place = bisect_left(self._epochs, epoch)
            if place < len(self._epochs) and self._epochs[place] == epoch:
                del self._epochs[place]
            self._bytes -= self._sizes.pop(epoch, 0)
            self._digests.pop(epoch, None)

    def _set_size(self, epoch: int) -> None:
        """Note the size of an epoch's file; with the lock held."""
        size = max(self._path(epoch).stat().st_size, _LEAST_BYTES)
        self._bytes += size - self._sizes.get(epoch, 0)
        self._sizes[epoch] = size

    def _shrink(self, epoch: int, outputs: Collection[str]) -> None:
        """Keep only the rows of some outputs of an epoch."""
        if not self.outputs_in(epoch) - set(outputs):
            return
        found = dict(self._read(epoch, outputs))
        last = {name: one.last for name, one in found.items() if one.last is not None}
        rows = {name: one.rows for name, one in found.items()}
        try:
            content = _encode_rows(rows, last, self.digest_of(epoch))
            write_whole(self._path(epoch), stream_bytes(content).to_pybytes())
            with self._lock:
                self._set_size(epoch)
        except OSError as failure:
            raise unwritable_error(self._path(epoch), failure) from failure

    def _copy_rows(self, epoch: int, outputs: Collection[str]) -> None:
        """Copy the rows of results that stay: as slices of one frame, each keeps the rows of all in memory."""
        for name in outputs:
            result = self._latest.get(name)
            if result is not None and result.epoch == epoch:
                self._latest[name] = replace(result, rows=from_stream(stream_bytes(result.rows)))

    def _list_epochs(self) -> None:
        found: dict[int, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(".arrow") and entry.name[0] != ".":
                    with contextlib.suppress(FileNotFoundError):
                        found[int(entry.name[:-6])] = max(entry.stat().st_size, _LEAST_BYTES)
        self._epochs, self._sizes, self._bytes = sorted(found), found, sum(found.values())
        self._examined, self._kept_for_sinks, self._kept_as_latest = -1, [], set()
        self._digests = {epoch: digest for epoch, digest in self._digests.items() if epoch in found}
        # fewer than are kept: nothing was ever removed
        self.retained_from = self._epochs[-self._kept] if len(self._epochs) >= self._kept else 0

    def _read(self, epoch: int, outputs: Collection[str]) -> Iterator[tuple[str, JobResult]]:
        """What some outputs emitted in one epoch."""
        packed = self._read_packed(epoch)
        if packed is None:
            return
        wanted = pl.col("jobs").list.set_intersection(list(outputs)).list.len() > 0
        for found in packed.filter(wanted).iter_rows(named=True):
            frame, names = from_stream(found["rows"]), found["jobs"]
            counts = found.get("last") or [None] * len(names)  # no such column in files of former versions
            for number, (name, count) in enumerate(zip(names, counts, strict=True)):
                if name in outputs:
                    mine = frame.filter(pl.col(_WHOSE) == number).drop(_WHOSE)
                    yield name, JobResult(epoch, mine, count)

    def _read_packed(self, epoch: int) -> pl.DataFrame | None:
        """The content of an epoch's file; None if there is none."""
        try:
            with pa.memory_map(str(self._path(epoch))) as file:
                packed = from_stream(file.read_buffer())
        except FileNotFoundError:
            return None
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as failure:
            raise InternalError(
                "RESULTS_DAMAGED",
                f"the results of epoch {epoch} cannot be read",
                detail=f"{failure} ({self._path(epoch)})",
                hint="Stop the engine and go back to an earlier epoch with `penstock state rollback DIR`, which makes "
                "them again; or let sinks do without them: `penstock recover skip-delivery DIR JOB --through "
                f"{epoch}`.",
            ) from failure
        if "record" in packed.columns and packed.height:  # former versions wrote none
            self._digests[epoch] = packed["record"][0]  # without the lock, which some callers hold
        return packed

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch:012d}.arrow"


def _epoch_of(path: Path) -> int:
    return int(path.stem)


def cast_to_schema(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows with these columns; null where a column is missing."""
    return rows.select(
        pl.col(name).cast(dtype, strict=False) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )


def _encode_rows(
    emitted: Mapping[str, pl.DataFrame], last: Mapping[str, int], digest: str = ""
) -> pl.DataFrame:
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
            "record": [digest] * len(groups),
        },
        schema={
            "jobs": pl.List(pl.String),
            "rows": pl.Binary,
            "last": pl.List(pl.Int64),
            "record": pl.String,
        },
    )

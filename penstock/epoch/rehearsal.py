"""Rehearses an epoch on a new executor, so that its first real epoch does not wait for what is slow the first time.

The task of a rehearsal is that of the last epoch: the same plan over a little of the same input, without state, with
its slices on the new executor. Its slices write to a directory that is removed.

Why: the first task of an executor starts Python processes, loads modules and unpacks the plan; the first exchange loads
classes and opens connections in Java. All of it took a second of the first epoch, for which the whole stream waited.

Guarantees: a rehearsal has no effect and does not read the state. Users' functions are called once more for some
events, as they are when a task is repeated.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.epoch.scan import run_scan
from penstock.epoch.slice import run_slice
from penstock.epoch.task import EpochTask, StateLocation
from penstock.errors import PenstockError
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.state.bucket_map import BucketMaps, ExecutorLocation

#: the size of a rehearsal's cache
_CACHE_BYTES = 64 << 20
#: about how much a rehearsal reads of a span at most
_CHUNK_BYTES = 2 << 20


def rehearsal_task(task: EpochTask, place: ExecutorLocation, cores: int) -> EpochTask:
    """The epoch without state, with a slice for each core of an executor. One bucket is on another executor, so that
    data goes both ways between them."""
    other = next((one for one in task.maps.locations if one is not None and one != place), None)
    places = [place] * max(cores, 1) + ([other] if other is not None else [])
    owners = [bucket % max(cores, 1) for bucket in range(task.maps.buckets)]
    if other is not None:
        owners[-1] = len(places) - 1
    return replace(
        task,
        maps=BucketMaps(tuple(owners), locations=tuple(places)),
        collections={},
        location=replace(task.location, spill_directory=None),
        unused_runs=(),
        flush=frozenset(),
        previous={},
        job_memory=None,
    )


def smallest_spans(spans: Sequence[tuple[str, Span]]) -> list[tuple[str, Span]]:
    """The smallest span of every stream that is not empty."""
    smallest: dict[str, Span] = {}
    for stream, span in spans:
        if span.end > span.start and (stream not in smallest or _size(span) < _size(smallest[stream])):
            smallest[stream] = span
    return list(smallest.items())


def _size(span: Span) -> int:
    return span.end - span.start


def rehearsal_shares(task: EpochTask, spans: list[tuple[str, Span]]) -> list[list[tuple[str, Span]]]:
    """The spans of a rehearsal's scan tasks, one for each of its places. On the other executor they read nothing."""
    return [spans if place == task.maps.locations[0] else [] for place in task.maps.locations]


class FirstChunkLog(Log):
    """A log that reads only the first records of a span, which are enough for a rehearsal."""

    def __init__(self, log: Log) -> None:
        self._log, self.unit = log, log.unit

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return self._log.partitions(offsets)

    def cut(self, partition: str, start: int, units: int) -> int:
        return self._log.cut(partition, start, units)

    def read(self, span: Span, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[Chunk]:
        yield from itertools.islice(self._log.read(span, _CHUNK_BYTES), 1)

    def describe(self) -> str:
        return f"the first chunk of {self._log.describe()}"


def rehearse_scan(
    task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True
) -> Iterator[tuple[int, bytes]]:
    """A scan task that reads a little."""
    scans = {
        name: replace(plan, stream=replace(plan.stream, log=FirstChunkLog(plan.stream.log)))
        for name, plan in task.plan.scans.items()
    }
    try:
        yield from run_scan(replace(task, plan=replace(task.plan, scans=scans)), spans, first=first)
    except PenstockError:
        return  # an epoch will raise it


def rehearse_slice(
    task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]
) -> Iterator[tuple[int, bytes]]:
    """A slice task whose state is thrown away."""
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-", ignore_cleanup_errors=True) as folder:
        location = StateLocation(f"{folder}/runs", f"{folder}/cache", _CACHE_BYTES)
        try:
            yield from run_slice(replace(task, location=location), level, slice_, incoming)
        except PenstockError:
            return  # an epoch will raise it

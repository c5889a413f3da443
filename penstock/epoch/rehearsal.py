"""Greeting an executor that has come: it does once, for nothing, what epochs will ask of it.

Receives the task of the last epoch; hands one for a rehearsal: the same plan over a little of the same input, without
state, with its slices at the new executor. What the slices write goes to a folder that is removed.

Why: the first task of an executor starts Python processes, loads modules, unpacks the plan; the first exchange loads
classes and opens connections in Java. All of it took a second of the first epoch, for which the whole stream waited.

Invariants: nothing of a rehearsal is kept, and nothing reads the state. Users' functions are called once more for
some events, as they are when a task is repeated.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.epoch.scan import scan
from penstock.epoch.slice import work
from penstock.epoch.task import EpochTask, StatePlace
from penstock.errors import PenstockError
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.state.bucket_map import BucketMaps, ExecutorLocation

#: what a rehearsal's cache may hold, in bytes
_CACHE_BYTES = 64 << 20
#: what it reads of a span at most, about
_CHUNK_BYTES = 2 << 20


def rehearsal(task: EpochTask, place: ExecutorLocation, cores: int) -> EpochTask:
    """The epoch once more, with no state: a slice for each core of an executor and, with one bucket, one where the
    others are, so that data goes both ways between them."""
    beside = next((seat for seat in task.maps.locations if seat is not None and seat != place), None)
    seats = [place] * max(cores, 1) + ([beside] if beside is not None else [])
    buckets = task.maps.buckets
    owners = [bucket % max(cores, 1) for bucket in range(buckets)]
    if beside is not None:
        owners[-1] = len(seats) - 1
    return replace(
        task,
        maps=BucketMaps(tuple(owners), locations=tuple(seats)),
        collections={},
        place=replace(task.place, shelf=None),
        gone=(),
        flush=frozenset(),
        previous={},
    )


def a_little(spans: Sequence[tuple[str, Span]]) -> list[tuple[str, Span]]:
    """Of every stream the smallest span that has something."""
    least: dict[str, Span] = {}
    for stream, span in spans:
        if span.end > span.start and (stream not in least or _units(span) < _units(least[stream])):
            least[stream] = span
    return list(least.items())


def _units(span: Span) -> int:
    return span.end - span.start


def shares_of(task: EpochTask, spans: list[tuple[str, Span]]) -> list[list[tuple[str, Span]]]:
    """What the scan tasks of a rehearsal read, one for each of its places: who is beside sends, but reads nothing."""
    return [spans if place == task.maps.locations[0] else [] for place in task.maps.locations]


class Beginning(Log):
    """A log of which a span is its first records only: some are as good for a rehearsal as all."""

    def __init__(self, log: Log) -> None:
        self._log, self.unit = log, log.unit

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return self._log.partitions(offsets)

    def cut(self, partition: str, start: int, units: int) -> int:
        return self._log.cut(partition, start, units)

    def read(self, span: Span, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[Chunk]:
        yield from itertools.islice(self._log.read(span, _CHUNK_BYTES), 1)

    def describe(self) -> str:
        return f"the beginning of {self._log.describe()}"


def rehearsed_scan(
    task: EpochTask, spans: list[tuple[str, Span]], *, first: bool = True
) -> Iterator[tuple[int, bytes]]:
    """A scan task that reads a little."""
    scans = {
        name: replace(plan, stream=replace(plan.stream, log=Beginning(plan.stream.log)))
        for name, plan in task.plan.scans.items()
    }
    try:
        yield from scan(replace(task, plan=replace(task.plan, scans=scans)), spans, first=first)
    except PenstockError:
        return  # an epoch will say so


def rehearsed_slice(
    task: EpochTask, level: int, slice_: int, incoming: Iterable[bytes]
) -> Iterator[tuple[int, bytes]]:
    """A slice's task whose state is thrown away."""
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-", ignore_cleanup_errors=True) as folder:
        aside = StatePlace(f"{folder}/runs", f"{folder}/cache", _CACHE_BYTES)
        try:
            yield from work(replace(task, place=aside), level, slice_, incoming)
        except PenstockError:
            return  # an epoch will say so

"""Computes event time of a stream: which events are late or dated in the future, and the watermark. Pure.

An event is late when it is more than the allowed lateness older than the newest event *before it in its own partition*,
or older than the stream's watermark. The first depends on the log alone, so it does not matter where epochs are cut.
The second matters only for a partition that was idle or is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.operators.contract import FOREVER, NEVER
from penstock.state.manifest import PartitionTime, StreamTime

Instants = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class EventLateness(NamedTuple):
    """What each event of a partition is."""

    #: dated beyond what is believed
    future: Marks
    late: Marks
    #: the newest time before each event
    newest_before: Instants
    #: the newest believed time, with all of these events
    highest: int


def classify_events(times: Instants, highest: int, floor: int, bound: int, lateness: int) -> EventLateness:
    """Classify one or more events of a partition. `highest` is the newest time before them.

    `floor` is the watermark: an event before it is late whatever its partition has had. An event after `bound` is a
    future event.
    """
    future = times > bound
    newest = np.maximum.accumulate(np.where(future, NEVER, times))
    newest_before = np.maximum(np.append(highest, np.maximum(newest, highest)[:-1]), floor)
    late = times < np.maximum(newest_before - lateness, floor)
    return EventLateness(future, late, newest_before, max(highest, int(newest[-1])))


def advance_watermark(
    stream: StreamTime,
    seen: Mapping[str, int],
    lateness: int,
    *,
    finished: Collection[str] = (),
    idle: Collection[str] = (),
    closed: bool = False,
    limit: tuple[int, int] | None = None,
) -> StreamTime:
    """The stream's time after an epoch that saw these highest event times per partition.

    `finished` partitions are read to their ends. Only when the log is `closed` too, so that no partition can be added,
    is nothing left to wait for. `limit`: how far the watermark may advance, and how many batches of jobs are one
    instant ahead of that.
    """
    partitions: dict[str, PartitionTime] = {}
    for name, partition in stream.partitions.items():
        highest = seen.get(name)
        if highest is not None and (partition.highest is None or highest > partition.highest):
            partition = replace(partition, highest=highest)
        partitions[name] = replace(partition, finished=name in finished, idle=name in idle)
    active = [p for p in partitions.values() if not p.idle and not p.finished]
    before = NEVER if stream.watermark is None else stream.watermark
    watermark = before
    if active:
        if all(p.highest is not None for p in active):
            watermark = min(p.highest for p in active if p.highest is not None) - lateness
    elif closed and partitions and all(p.finished for p in partitions.values()):  # a closed log forgets none
        watermark = FOREVER
    else:
        after = replace(stream, partitions=partitions)
        highest_times = [p.highest for p in after.known_partitions if p.highest is not None]
        watermark = max(highest_times) - lateness if highest_times else before
    unlimited, ahead = max(before, watermark), 0
    watermark = unlimited if limit is None else max(before, min(unlimited, limit[0]))
    if watermark == before:
        ahead = stream.ahead
    if limit is not None and watermark == limit[0] < unlimited:
        ahead = max(ahead, limit[1])
    return replace(stream, partitions=partitions, watermark=watermark, ahead=ahead)


def skip_idle_streams(
    streams: Mapping[str, StreamTime], inputs: Iterable[Collection[str]], ended: Collection[str] = ()
) -> dict[str, StreamTime]:
    """The streams' times, where an idle stream does not hold back those that an operator reads beside it.

    `inputs` are the streams of each operator. The watermark of a stream whose partitions are all idle is raised to that
    of the others; what it brings later and older is late then. Streams that have `ended` do not count, although their
    watermarks may still be limited.
    """
    times = dict(streams)
    for names in inputs:
        idle = [name for name in names if _is_idle(streams[name])]
        active_marks = [streams[name].watermark for name in names if name not in idle and name not in ended]
        idle_marks = [streams[name].watermark for name in idle]
        level = min((NEVER if mark is None else mark for mark in active_marks), default=None)
        if level is None:
            level = max((NEVER if mark is None else mark for mark in idle_marks), default=NEVER)
        for name in idle if len(names) > 1 else ():
            mark = times[name].watermark
            if mark is None or level > mark:
                times[name] = replace(times[name], watermark=level, ahead=0)
    return times


def _is_idle(stream: StreamTime) -> bool:
    """Whether nobody waits for a stream: all of its partitions are idle or read to their ends, and one is idle."""
    partitions = stream.known_partitions
    return any(p.idle for p in partitions) and all(p.idle or p.finished for p in partitions)


def add_partitions(stream: StreamTime, names: Collection[str], first_ordinal: int) -> StreamTime:
    """The stream with partitions it had not seen; each gets the next ordinal, for life."""
    partitions = dict(stream.partitions)
    for name in names:
        if name not in partitions:
            partitions[name] = PartitionTime(first_ordinal)
            first_ordinal += 1
    return replace(stream, partitions=partitions)


def forget_partitions(stream: StreamTime, remaining: Collection[str]) -> StreamTime:
    """The stream without the partitions that offsets no longer name. One stands for all of them: it keeps the highest
    time, which the watermark follows while all are idle, and the highest ordinal, which no other partition gets."""
    gone = [partition for name, partition in stream.partitions.items() if name not in remaining]
    if not gone:
        return stream
    gone += [stream.forgotten] if stream.forgotten is not None else []
    times = [partition.highest for partition in gone if partition.highest is not None]
    forgotten = PartitionTime(max(one.ordinal for one in gone), max(times, default=None), idle=True)
    partitions = {name: one for name, one in stream.partitions.items() if name in remaining}
    return replace(stream, partitions=partitions, forgotten=forgotten)

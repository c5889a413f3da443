"""Event time of a stream: what is late, and how far the watermark has come. Pure.

An event is late when it is more than the allowed lateness older than the newest event *before it in its own
partition*, or older than the stream's watermark. The first depends on the log alone, so it does not matter
where epochs are cut. The second only bites on a partition that was idle or is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from penstock.operators.contract import FOREVER, NEVER
from penstock.state.manifest import PartitionTime, StreamTime


def advanced(
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

    `finished` partitions have been read to their ends; only when the log is `closed`, so that no partition
    can be added either, is nothing left to wait for. `limit`: where the watermark is held though it could go on, and
    how many lots of jobs do not wait for it.
    """
    partitions: dict[str, PartitionTime] = {}
    for name, partition in stream.partitions.items():
        highest = seen.get(name)
        if highest is not None and (partition.highest is None or highest > partition.highest):
            partition = replace(partition, highest=highest)
        partitions[name] = replace(partition, finished=name in finished, idle=name in idle)
    holding = [p for p in partitions.values() if not p.idle and not p.finished]
    before = NEVER if stream.watermark is None else stream.watermark
    watermark = before
    if holding:
        if all(p.highest is not None for p in holding):
            watermark = min(p.highest for p in holding if p.highest is not None) - lateness
    elif closed and partitions and all(p.finished for p in partitions.values()):
        watermark = FOREVER
    else:
        known = [p.highest for p in partitions.values() if p.highest is not None]
        watermark = max(known) - lateness if known else before
    sure, ahead = max(before, watermark), 0
    watermark = sure if limit is None else max(before, min(sure, limit[0]))
    if watermark == before:
        ahead = stream.ahead
    if limit is not None and watermark == limit[0] < sure:
        ahead = max(ahead, limit[1])
    return StreamTime(partitions, watermark, ahead)


def passed_over(
    streams: Mapping[str, StreamTime], meetings: Iterable[Collection[str]], ended: Collection[str] = ()
) -> dict[str, StreamTime]:
    """The streams' times where an idle stream does not hold back those it meets.

    `meetings` are the streams that each operator reads. The watermark of a stream whose partitions are all idle is
    raised to that of the others it meets; what it brings later and older is late then. Streams that have `ended` say
    nothing of that, though their watermarks may still be held.
    """
    found = dict(streams)
    for names in meetings:
        idle = [name for name in names if _is_idle(streams[name])]
        awake = [streams[name].watermark for name in names if name not in idle and name not in ended]
        marks = [streams[name].watermark for name in idle]
        level = min((NEVER if mark is None else mark for mark in awake), default=None)
        if level is None:
            level = max((NEVER if mark is None else mark for mark in marks), default=NEVER)
        for name in idle if len(names) > 1 else ():
            mark = found[name].watermark
            if mark is None or level > mark:
                found[name] = replace(found[name], watermark=level, ahead=0)
    return found


def _is_idle(stream: StreamTime) -> bool:
    """Whether nobody waits for a stream: all of its partitions are idle or read to their ends, and one is idle."""
    partitions = stream.partitions.values()
    return any(p.idle for p in partitions) and all(p.idle or p.finished for p in partitions)


def introduced(stream: StreamTime, names: Collection[str], first_ordinal: int) -> StreamTime:
    """The stream with partitions it had not seen; each gets the next ordinal, for life."""
    partitions = dict(stream.partitions)
    for name in names:
        if name not in partitions:
            partitions[name] = PartitionTime(first_ordinal)
            first_ordinal += 1
    return replace(stream, partitions=partitions)

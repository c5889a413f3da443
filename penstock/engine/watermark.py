"""Event time of a stream: what is late, and how far the watermark has come. Pure.

An event is late when it is more than the allowed lateness older than the newest event *before it in its own
partition*, or older than the stream's watermark. The first depends on the log alone, so it does not matter
where epochs are cut. The second only bites on a partition that was idle or is new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
) -> StreamTime:
    """The stream's time after an epoch that saw these highest event times per partition.

    `finished` partitions have been read to their ends; only when the log is `closed`, so that no partition
    can be added either, is nothing left to wait for.
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
    return StreamTime(partitions, max(before, watermark))


def introduced(stream: StreamTime, names: Collection[str], first_ordinal: int) -> StreamTime:
    """The stream with partitions it had not seen; each gets the next ordinal, for life."""
    partitions = dict(stream.partitions)
    for name in names:
        if name not in partitions:
            partitions[name] = PartitionTime(first_ordinal)
            first_ordinal += 1
    return replace(stream, partitions=partitions)

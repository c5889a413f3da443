"""The gather's tree: partial answers of many tasks come together sixteen at a time, so that the driver's share does
not grow with their number. Pure.

Receives the messages that up to `FAN_IN` tasks sent towards the driver; hands the same said with fewer: one
frame an output, its best rows only where it is a top-k, and the streams' times once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from penstock.engine.message import Message, address
from penstock.query.physical import Plan

#: how many tasks' messages one task of the tree takes
FAN_IN = 16


def parents(tasks: int) -> int:
    """How many tasks of the tree stand above so many."""
    return -(-tasks // FAN_IN)


def brought_together(plan: Plan, incoming: Iterable[bytes]) -> Iterator[bytes]:
    """The messages of several tasks as those of one."""
    frames: dict[str, list[pl.DataFrame]] = {}
    seen: dict[str, dict[str, int]] = {}
    for data in incoming:
        kind, to = address(data)
        if kind == "time":
            for stream, partitions in Message.from_bytes(data).facts.items():
                seen.setdefault(stream, {}).update(partitions)
        elif kind == "rows" and to.startswith("out:"):
            frame = Message.from_bytes(data).frame
            assert frame is not None
            frames.setdefault(to, []).append(frame)
        else:
            yield data
    yield Message("time", "progress", seen).to_bytes()
    for to, parts in frames.items():
        top = plan.outputs[to[4:]].top
        made = [top.merged(parts)] if top is not None else _alike(parts)
        for rows in made:
            if rows is not None and rows.height:
                yield Message("rows", to, {}, rows).to_bytes()


def _alike(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames with the same columns one below the other: the parts of a union may carry different ones."""
    groups: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for frame in frames:
        groups.setdefault(tuple(frame.columns), []).append(frame)
    return [pl.concat(group) for group in groups.values()]

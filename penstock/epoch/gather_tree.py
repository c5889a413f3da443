"""The gather's tree: partial answers of many tasks come together sixteen at a time, so that the driver's share does
not grow with their number. Pure.

Receives the messages that up to `FAN_IN` tasks sent towards the driver; hands the same said with fewer: one
frame an output, its best rows only where it is a top-k, and the streams' times once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from penstock.epoch.message import Envelope, Rows, Times
from penstock.query.edges import EdgeTarget
from penstock.query.physical import Plan

#: how many tasks' messages one task of the tree takes
FAN_IN = 16


def parents(tasks: int) -> int:
    """How many tasks of the tree stand above so many."""
    return -(-tasks // FAN_IN)


def brought_together(plan: Plan, incoming: Iterable[bytes]) -> Iterator[bytes]:
    """The messages of several tasks as those of one."""
    frames: dict[EdgeTarget, list[pl.DataFrame]] = {}
    seen: dict[str, dict[str, int]] = {}
    for data in incoming:
        envelope = Envelope(data)
        target = envelope.target
        if envelope.kind != Times.kind and (target is None or target.output is None):
            yield data
            continue
        match envelope.open():
            case Times(found):
                for stream, partitions in found.items():
                    seen.setdefault(stream, {}).update(partitions)
            case Rows(to, frame):
                frames.setdefault(to, []).append(frame)
    yield Times(seen).to_bytes()
    for to, parts in frames.items():
        top = plan.outputs[to.name].top
        made = [top.merge(parts)] if top is not None else _alike(parts)
        for rows in made:
            if rows is not None and rows.height:
                yield Rows(to, rows).to_bytes()


def _alike(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames with the same columns one below the other: the parts of a union may carry different ones."""
    groups: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for frame in frames:
        groups.setdefault(tuple(frame.columns), []).append(frame)
    return [pl.concat(group) for group in groups.values()]

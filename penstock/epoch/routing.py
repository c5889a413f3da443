"""Splits rows for a stage by the slice that owns the bucket of their key, and encodes them for the exchange.

`operators/routes.py` computes the hash that gives the bucket; the bucket maps of the epoch name the owner.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from penstock.epoch.job_failures import JobFailures
from penstock.epoch.message import encode_rows
from penstock.epoch.task import EpochTask
from penstock.operators.contract import INPUT
from penstock.query.steps import Edge
from penstock.state.buckets import HASH, buckets_of


def route_rows(
    task: EpochTask, edge: Edge, rows: pl.DataFrame, failures: JobFailures
) -> Iterator[tuple[int, bytes]]:
    """Split rows for a stage by the slices that own their keys; rows for an output stay as they are. No rows where the
    user's partitioner fails."""
    operator, spill = task.operator_of(edge), task.location.spill_directory
    if operator is None:
        yield from ((0, data) for data in encode_rows(edge.target, rows, spill_directory=spill))
        return
    hashed, stage = list[pl.DataFrame](), edge.target.name
    with failures.isolate(task.jobs_of(edge.target), task.job_seconds):
        hashed.append(add_hash(task, edge, rows))
    if not hashed:
        return
    rows = hashed[0]
    if task.slices == 1:
        yield from _send(task, edge, 0, rows)
        return
    owners_of = np.asarray(task.bucket_maps[stage], dtype=np.uint16)
    if task.plan.stages[stage].route(edge.port).is_broadcast:
        for slice_ in np.unique(owners_of).tolist():
            yield from _send(task, edge, slice_, rows)
        return
    owners = owners_of[buckets_of(rows[HASH].to_numpy(), task.maps.buckets)]
    for slice_ in range(task.slices):
        part = rows.filter(pl.Series(owners == slice_))
        if part.height:
            yield from _send(task, edge, slice_, part)


def _send(task: EpochTask, edge: Edge, slice_: int, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
    for data in encode_rows(edge.target, rows, edge.port, task.location.spill_directory):
        yield slice_, data


def add_hash(task: EpochTask, edge: Edge, rows: pl.DataFrame) -> pl.DataFrame:
    """Prepared rows with the hash that gives their bucket and, where several edges lead to a port, with their edge."""
    rows = task.plan.stages[edge.target.name].route(edge.port).add_hash(rows, task.maps.buckets)
    return rows if edge.place is None else rows.with_columns(pl.lit(edge.place, pl.UInt8).alias(INPUT))

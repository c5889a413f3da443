"""Events, jobs and engines for tests of jobs; and their answers, worked out in plain Python one event at a time."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.epoch import admission, stages
from penstock.epoch import runner as epoch_module
from penstock.epoch import slice as slices
from penstock.epoch.runner import EpochReport
from penstock.query.stream import Stream
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
Event = dict[str, Any]


class Killed(Exception):
    """The engine was killed, as far as a test in one process can tell."""


def events(count: int = 400, seed: int = 7) -> list[Event]:
    """Clicks in order of time, two or three a second."""
    draw, at, found = random.Random(seed), BEGIN, []
    for number in range(count):
        at += timedelta(milliseconds=draw.choice([0, 100, 400, 900]))
        found.append(
            {
                "ts": at.isoformat(),
                "page": draw.choice(["/a", "/b", "/c", "/d"]),
                "user": f"u{draw.randrange(9)}",
                "bytes": draw.randrange(1000) if number % 17 else None,
                "status": draw.choice([200, 200, 200, 404, 500]),
            }
        )
    return found


def clicks(found: Sequence[Event], *, finished: bool = True) -> Stream:
    """The events as a stream, dealt out to two partitions."""
    lines = [json.dumps(event) for event in found]
    log = ListLog({"p0": lines[::2], "p1": lines[1::2]}, finished=finished)
    return of_log(log)


def of_log(log: ListLog) -> Stream:
    schema: Mapping[str, pl.DataType] = {
        "ts": pl.Datetime("us", "UTC"),
        "page": pl.String(),
        "user": pl.String(),
        "bytes": pl.Int64(),
        "status": pl.Int64(),
    }
    return ps.stream("clicks", log, ps.json_lines(dict(schema)), time="ts", lateness="2s")


#: a program and its engine
Running = tuple[Program, InlineEngine]


@contextmanager
def running(
    state: Path, stream: Stream, sql: str = "", *, functions: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[Running]:
    """Jobs and the engine they run in, on a state directory, with one stream `clicks`."""
    jobs = Program("test", state, streams={"clicks": stream}, functions=functions, begin=sql)
    engine = InlineEngine(jobs, state, **options)
    try:
        yield jobs, engine
    finally:
        engine.close()


def told(reports: Sequence[EpochReport]) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of every job, in the order in which they were told."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for report in reports:
        for name, rows in report.rows.items():
            found.setdefault(name, []).extend(rows.rows())
    return found


def run_all(state: Path, stream: Stream, sql: str, **options: Any) -> dict[str, list[tuple[Any, ...]]]:
    """What jobs tell of the whole stream."""
    with running(state, stream, sql, **options) as (_, engine):
        return told(list(engine.steps()))


@contextmanager
def killed_at(step: str, epoch: int) -> Iterator[None]:
    """Have the engine end at a step of an epoch, as if it had been killed there."""

    def reached(name: str, number: int, pid: int | None = None) -> None:
        if (name, number) == (step, epoch):
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        for module in (admission, epoch_module, slices, stages):
            patched.setattr(module, "reached", reached)
        yield


# -- the oracle ----------------------------------------------------------------------------------


def windows(
    found: Sequence[Event],
    size: int,
    key: Callable[[Event], Any],
    chosen: Callable[[Event], bool] = lambda event: True,
    every: int | None = None,
) -> dict[tuple[int, Any], list[Event]]:
    """The events of every window (by its start, in seconds since 1970) and key."""
    every = every or size
    groups: dict[tuple[int, Any], list[Event]] = defaultdict(list)
    for event in found:
        if not chosen(event):
            continue
        at = datetime.fromisoformat(event["ts"]).timestamp()
        start = int(at // every) * every
        while start > at - size:
            groups[start, key(event)].append(event)
            start -= every
    return groups

"""Events, jobs and engines for tests of jobs, and the rows of windows by an oracle in plain Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
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
from penstock.errors import PenstockError
from penstock.query.stream import Stream
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
Event = dict[str, Any]
#: SQL statements, or a function of the program
Action = str | Callable[[Program], Any]
#: rows by job, in the order in which they were emitted
Rows = dict[str, list[tuple[Any, ...]]]
#: a step of an epoch that no engine reaches
NEVER = ("nowhere", -1)
#: jobs whose rows must not depend on the jobs beside them
STEADY_JOBS = """
CREATE JOB per_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB big AS SELECT user, bytes FROM clicks WHERE bytes > 900;
CREATE JOB sessions AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING SESSION 2 SECONDS
"""


class Killed(Exception):
    """Stands for the end of the engine's process."""


def events(count: int = 400, seed: int = 7) -> list[Event]:
    """Clicks in the order of event time, two or three a second."""
    draw, at, clicks = random.Random(seed), BEGIN, []
    for number in range(count):
        at += timedelta(milliseconds=draw.choice([0, 100, 400, 900]))
        clicks.append(
            {
                "ts": at.isoformat(),
                "page": draw.choice(["/a", "/b", "/c", "/d"]),
                "user": f"u{draw.randrange(9)}",
                "bytes": draw.randrange(1000) if number % 17 else None,
                "status": draw.choice([200, 200, 200, 404, 500]),
            }
        )
    return clicks


def clicks(events: Sequence[Event], *, finished: bool = True) -> Stream:
    """The events as a stream of two partitions."""
    lines = [json.dumps(event) for event in events]
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


def growing_log(count: int = 100) -> tuple[ListLog, list[Event]]:
    """An empty log that is not finished, and events to append to it."""
    return ListLog({"p0": []}, finished=False), events(count)


def append_events(log: ListLog, events: Sequence[Event]) -> None:
    log.add("p0", *(json.dumps(event) for event in events))


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


def emitted_rows(reports: Sequence[EpochReport]) -> Rows:
    rows: Rows = {}
    for report in reports:
        for name, batch in report.rows.items():
            rows.setdefault(name, []).extend(batch.rows())
    return rows


def run_all(state: Path, stream: Stream, sql: str, **options: Any) -> Rows:
    """The rows that jobs emit of the whole stream."""
    with running(state, stream, sql, **options) as (_, engine):
        return emitted_rows(list(engine.steps()))


def retained_rows(jobs: Program, name: str) -> list[tuple[int, tuple[Any, ...]]]:
    """The results of a job that are stored, row by row, with their epochs."""
    return [(result.epoch, row) for result in jobs.since(name, 0) for row in result.rows.rows()]


def life(jobs: Program, name: str) -> str:
    return jobs.catalogue.jobs[name].master.life


def refusal(jobs: Program, sql: str) -> PenstockError:
    """The error with which statements are refused; the catalogue stays as it was."""
    catalogue, commands = jobs.catalogue, jobs.commands
    with pytest.raises(PenstockError) as error:
        jobs.execute(sql)
    assert jobs.catalogue == catalogue
    assert jobs.commands == commands
    return error.value


@contextmanager
def killed_at(step: str, epoch: int) -> Iterator[None]:
    """End the engine at a step of an epoch, as a kill does."""

    def reached(name: str, number: int, pid: int | None = None) -> None:
        if (name, number) == (step, epoch):
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        for module in (admission, epoch_module, slices, stages):
            patched.setattr(module, "reached", reached)
        yield


def run_epochs(running: Running, actions: MutableMapping[int, Action], kill: tuple[str, int] = NEVER) -> bool:
    """Run until everything is read and checkpointed, or until the kill; return whether the engine was killed.

    An action is executed before its epoch and taken out of `actions`, so that the next run does not repeat it."""
    jobs, engine = running
    try:
        with killed_at(*kill):
            more = True
            while more:
                action = actions.pop(engine.next_epoch, None)
                if isinstance(action, str):
                    jobs.execute(action)
                elif action is not None:
                    action(jobs)
                more = engine.step() is not None
            engine.runner.checkpoint()
    except Killed:
        return True
    return False


# -- the oracle ----------------------------------------------------------------------------------


def windows(
    events: Sequence[Event],
    size: int,
    key: Callable[[Event], Any],
    chosen: Callable[[Event], bool] = lambda event: True,
    every: int | None = None,
) -> dict[tuple[int, Any], list[Event]]:
    """The events of every window (by its start, in seconds since 1970) and key."""
    every = every or size
    groups: dict[tuple[int, Any], list[Event]] = defaultdict(list)
    for event in events:
        if not chosen(event):
            continue
        at = datetime.fromisoformat(event["ts"]).timestamp()
        start = int(at // every) * every
        while start > at - size:
            groups[start, key(event)].append(event)
            start -= every
    return groups

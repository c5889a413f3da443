"""A query with every kind of state, run without Spark while its bucket maps change and, on request, the engine dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.epoch import admission, stages
from penstock.epoch import migration as moves
from penstock.epoch import runner as epoch
from penstock.epoch import slice as slices
from penstock.epoch.migration import MapChange, MigrationResult
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.runner import EpochReport
from penstock.query.compile import compile_app
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.testing.inline import InlineEngine
from penstock.testing.list_sink import ListSink
from tests.operators.custom_operators import TOTALS, Totals
from tests.operators.harness import (
    BUCKETS,
    SECOND,
    STRAIGHT,
    Cutting,
    Event,
    History,
    events_stream,
    in_any_order,
)

LOCATIONS = (ExecutorLocation("here", "0"), ExecutorLocation("here", "1"), ExecutorLocation("there", "2"))
#: (epoch, change of the maps in force then)
PlannedChange = tuple[int, Callable[[BucketMaps], MapChange]]


class Killed(BaseException):
    """The engine was killed."""


def before(last: int | None, row: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> int:
    """Emit each number with the user's previous one."""
    emit({"who": row["user"], "n": row["n"], "last": last})
    return int(row["n"] or 0)


def build(history: History, cutting: Cutting, sinks: dict[str, ListSink]) -> ps.App:
    """Windows alone and overlapping, a ranking, a join, sessions, a pattern's strict order, a fold; and operators that
    hand rows to each other inside a slice."""
    events = events_stream(history, cutting)
    users = events.key_by("user")
    sums = users.window("4s").aggregate(ps.count("n"), ps.sum_("n", "sum"))
    outputs = {
        "sums": sums,
        "chained": sums.key_by("user").last(2, "sum"),
        "sliding": users.window("6s", every="2s").count("n"),
        "best": users.running("3s").sum("n", "total").top(2),
        "joined": users.join(
            events.filter(col("page") == "/a").select("time", "user", "page").key_by("user"), within="2s"
        ),
        "sessions": users.session("2s").aggregate(ps.count("n"), ps.last("page", "page")),
        "last": users.last(3, "page"),
        "before": users.apply_rows(before, {"who": pl.String, "n": pl.Int64, "last": pl.Int64}),
        "totals": users.apply(Totals(), TOTALS),
        "products": events.filter(col("n") == 1).product(events.filter(col("n") == 2), within="1s"),
    }
    return ps.app(
        "moving",
        *(ps.output(name, rows, sinks.setdefault(name, ListSink())) for name, rows in outputs.items()),
    )


def rows_of(sinks: dict[str, ListSink]) -> dict[str, list[str]]:
    return {name: in_any_order(sink.rows()) for name, sink in sinks.items()}


def stage_ids() -> list[str]:
    return list(compile_app(build(History(((),)), STRAIGHT, {})).stages)


@contextmanager
def kill_at(step: str, since: int) -> Iterator[list[tuple[str, int]]]:
    """Kill the engine when it first reaches a step in an epoch from `since` on; yield where that was."""
    kills: list[tuple[str, int]] = []

    def reached(at: str, number: int, _: int | None = None) -> None:
        if at == step and number >= since and not kills:
            kills.append((at, number))
            raise Killed

    modules = (admission, epoch, moves, slices, stages)
    patches = [patch.object(module, "reached", reached) for module in modules]
    for one in patches:
        one.start()
    try:
        yield kills
    finally:
        for one in patches:
            one.stop()


def run_engine(
    app: ps.App,
    folder: Path,
    *,
    slices: int = 2,
    changes: list[PlannedChange] | None = None,
    wait_for_warm_up: bool = True,
    rules: MigrationRules | None = None,
    tickets: list[Future[MigrationResult]] | None = None,
) -> list[EpochReport]:
    """Run an engine until everything is read or it is killed. `wait_for_warm_up`: a warm-up ends before the next epoch.
    `tickets` gets the futures of the changes."""
    engine = InlineEngine(
        app,
        folder / "state",
        slices=slices,
        buckets=BUCKETS,
        cache=folder / "cache",
        rules=rules,
    )
    reports = []
    waiting = sorted(changes or [], key=lambda wish: wish[0])
    try:
        while True:
            while waiting and waiting[0][0] <= engine.next_epoch:
                ticket = engine.runner.request_map_change(waiting.pop(0)[1](engine.runner.maps))
                if tickets is not None:
                    tickets.append(ticket)
            report = engine.step()
            if report is None:
                return reports
            reports.append(report)
            active = engine.runner._migrations._active
            if wait_for_warm_up and active is not None and active.round is not None:
                active.round.result(timeout=60)
    finally:
        engine.close()


@st.composite
def planned_changes(draw: st.DrawFn) -> list[PlannedChange]:
    """Changes of the maps at any epochs: of all operators or one, with locations or without, by any protocol."""
    names = stage_ids()
    owners = st.lists(st.integers(0, 4), min_size=BUCKETS, max_size=BUCKETS).map(tuple)
    place = st.none() | st.sampled_from(LOCATIONS)
    found: list[PlannedChange] = []
    for at in draw(st.lists(st.integers(0, 8), min_size=1, max_size=5)):
        default = draw(owners)
        own = draw(st.dictionaries(st.sampled_from(names), owners, max_size=3))
        places = draw(st.just(()) | st.lists(place, min_size=5, max_size=5).map(tuple))
        protocol = draw(st.sampled_from([None, "immediate", "warm", "recreate"]))
        found.append(
            (at, lambda _, a=default, b=own, c=places, d=protocol: MapChange(BucketMaps(a, b, c), d))
        )
    return found


def new_history(events: int, users: int = 5) -> History:
    """Events of two partitions, half a second apart."""
    names = [f"user{at}" for at in range(users)]
    parts = tuple(
        tuple(
            Event(
                part,
                at,
                (1_000 + at // 2) * SECOND,
                names[(at * 7 + part) % users],
                f"/{'ab'[at % 2]}",
                at % 4,
                0.5,
            )
            for at in range(events)
        )
        for part in range(2)
    )
    return History(parts)


def epochs_of(events: int) -> Cutting:
    """Epochs of so many events of each partition."""
    ends = frozenset(range(events, 10_000, events))
    return Cutting((ends, ends), (2,))

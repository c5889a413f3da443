"""Builds snapshots of measurements: stages on a fleet of executors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.scaling.decide import Situation
from penstock.scaling.history import History
from penstock.scaling.measurements import Fleet, Measured, Snapshot
from penstock.scaling.record import Record
from penstock.scaling.settings import ElasticSettings

PERIOD = 5.0


def measured(
    loads: Sequence[float],
    bucket_map: Sequence[int],
    executors: Sequence[str],
    *,
    cost: float = 1e-4,
    input_rate: float | None = None,
    backlog: float = 0.0,
    slowness: dict[str, float] | None = None,
    state_bytes: float = 1e6,
    name: str = "q1",
) -> Measured:
    """Buckets that keep `loads` cores busy, one slice an executor; a slow executor's events are fewer a second."""
    seconds = np.array(loads, dtype=float) * PERIOD
    places = np.array(bucket_map, dtype=np.int64)
    slow = np.array([(slowness or {}).get(executors[place], 1.0) for place in places])
    events = seconds / cost / slow
    done = float(events.sum()) / PERIOD
    return Measured(
        name,
        PERIOD,
        done if input_rate is None else input_rate,
        done,
        backlog,
        float(seconds.sum()),
        seconds,
        events,
        np.full(len(seconds), state_bytes),
        places,
        tuple(executors),
    )


def snapshot(at: float, *stages: Measured, executors: Sequence[str] = ()) -> Snapshot:
    names = tuple(executors) or tuple(dict.fromkeys(e for one in stages for e in one.placement if e))
    count = len(names)
    fleet = Fleet(names, np.ones(count, dtype=np.int64), np.zeros(count), np.zeros(count))
    return Snapshot(at, PERIOD, fleet, {one.stage: one for one in stages}, 0.5, 1.0)


def steady_situation(settings: ElasticSettings, *stages: Measured, seconds: float = 400.0) -> Situation:
    """The situation after the same measurements for so many seconds."""
    history = History(settings.window_seconds, settings.patience_seconds)
    for number in range(1, int(seconds / PERIOD) + 1):
        history = history.add(snapshot(number * PERIOD, *stages))
    assert history.latest is not None
    return Situation(history.latest, history, settings)


def even_load(load: float, executors: int, buckets_each: int = 4, **more: object) -> Measured:
    """A load spread evenly over buckets and executors."""
    count = executors * buckets_each
    names = [f"e{number}" for number in range(executors)]
    return measured([load / count] * count, [b // buckets_each for b in range(count)], names, **more)  # type: ignore[arg-type]


def with_record(now: Situation, past: Record) -> Situation:
    return Situation(now.snapshot, now.history, now.settings, now.costs, past)

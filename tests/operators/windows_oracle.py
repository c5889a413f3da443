"""Windows of time by trying: every event, every window, one after the other."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from hypothesis import strategies as st

import penstock as ps
from tests.operators.harness import SECOND, Event, History, Row

#: (size, every, offset) in seconds: one after the other, overlapping evenly and not, with gaps, shifted
Shape = tuple[float, float | None, float]
SHAPES: st.SearchStrategy[Shape] = st.sampled_from(
    [
        (3, None, 0),
        (3, None, 1),
        (4, 2, 0),
        (10, 1, 0),
        (6.5, 1, 0.5),
        (3, 0.25, 0),
        (15, 0.125, 0),
        (5, 2, 1),
        (2.5, 1.5, 0.25),
        (7, 3, -1),
        (2, 5, 0),
        (1, 3, 2),
        (60, 7, 100),
        (0.25, 0.75, 0),
    ]
)
KEYS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from([("user",), ("user", "page"), ()])

Functions = tuple[Any, ...]
PLAIN: Functions = (
    ps.count(),
    ps.sum_("n", "sum_n"),
    ps.min_("n", "min_n"),
    ps.max_("x", "max_x"),
    ps.avg("x", "avg_x"),
    ps.min_("page", "min_page"),
    ps.earliest("earliest"),
    ps.latest("latest"),
    ps.first("page", "first_page"),
    ps.approx_count_distinct("n", "numbers"),
)
#: whose partial answers grow with the events
GROWING: Functions = (
    ps.count(),
    ps.collect("n", "all_n"),
    ps.median("x", "median_x"),
    ps.count_distinct("page", "pages"),
)
FUNCTIONS: st.SearchStrategy[Functions] = st.sampled_from([PLAIN, GROWING])


def answer(events: list[Event], functions: Functions) -> Row:
    """Aggregates of some events, which are in order."""
    ns = [event.n for event in events if event.n is not None]
    xs = [event.x for event in events if event.x is not None]
    pages = [event.page for event in events if event.page is not None]
    everything: Row = {
        "count": len(events),
        "sum_n": sum(ns),
        "min_n": min(ns, default=None),
        "max_x": max(xs, default=None),
        "avg_x": sum(xs) / len(xs) if xs else None,
        "min_page": min(pages, default=None),
        "earliest": min(event.time for event in events),
        "latest": max(event.time for event in events),
        "first_page": events[0].page,
        "numbers": len(set(ns)),
        "all_n": [event.n for event in events],
        "median_x": statistics.median(xs) if xs else None,
        "pages": len(set(pages)),
    }
    return {function.alias: everything[function.alias] for function in functions}


def starts(shape: Shape, time: int) -> list[int]:
    """When the windows start that contain an instant."""
    size, every, offset = shape
    length, step = round(size * SECOND), round((every or size) * SECOND)
    start, found = round(offset * SECOND) - 200 * step, []
    while start <= time:
        if time < start + length:
            found.append(start)
        start += step
    return found


def windows(history: History, shape: Shape, keys: tuple[str, ...]) -> dict[Any, list[Event]]:
    """The events of every window and key, in order."""
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in history.on_time():
        for start in starts(shape, event.time):
            found[start, *(getattr(event, key) for key in keys)].append(event)
    return found


def head(shape: Shape, start: int, keys: tuple[str, ...], values: list[Any]) -> Row:
    """A row's columns before the aggregates."""
    end = start + round(shape[0] * SECOND)
    return {"window_start": start, "window_end": end} | dict(zip(keys, values, strict=True))


def cut(stream: ps.Stream, shape: Shape, keys: tuple[str, ...]) -> Any:
    """The query's windows."""
    return (stream.key_by(*keys) if keys else stream).window(*shape)


def steady(count: int, users: int = 3) -> History:
    """An event a second, the users in turn."""
    return History(
        (tuple(Event(0, i, (1_000 + i) * SECOND, f"u{i % users}", "/a", i, None) for i in range(count)),)
    )

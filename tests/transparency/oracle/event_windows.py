"""Windows that the events of a key delimit: by count, by a gap, by events that open and close them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.formulas import holds
from tests.transparency.oracle.rows import Row, Values

#: the time of results that are emitted because a log has ended: just before the year 9999
END_OF_TIME = 253_370_764_800_000_000 - 1

#: start, end, time and position of the result, further columns, the rows inside
_Window = tuple[int, int, int, tuple[int, ...] | None, Values, list[Row]]


def event_windows(window: Any, rows: list[Row]) -> Iterable[_Window]:
    match window:
        case d.CountWindow():
            yield from _by_count(window, rows)
        case d.LastWindow():
            for retained in _split_at_expiry(rows, window.forget_after):
                for number, row in enumerate(retained, 1):
                    inside = retained[max(0, number - window.size) : number]
                    if len(inside) == window.size or not window.whole:
                        yield inside[0].time, row.time, row.time, row.position, {}, inside
        case d.SessionWindow():
            inside, end = [], 0
            for row in rows:
                if inside and row.time >= end:
                    yield inside[0].time, end, end - 1, None, {}, inside
                    inside = []
                inside.append(row)
                end = row.time + window.gap
                if window.longest is not None:
                    end = min(end, inside[0].time + window.longest)
            if inside:
                yield inside[0].time, end, end - 1, None, {}, inside
        case d.LandmarkWindow():
            yield from _landmarks(window, rows)


def _split_at_expiry(rows: list[Row], forget_after: int | None) -> list[list[Row]]:
    """Split a key's rows where its state expires."""
    parts: list[list[Row]] = []
    for row in rows:
        if not parts or (forget_after is not None and row.time - parts[-1][-1].time >= forget_after):
            parts.append([])
        parts[-1].append(row)
    return parts


def _by_count(window: d.CountWindow, rows: list[Row]) -> Iterable[_Window]:
    for retained in _split_at_expiry(rows, window.forget_after):
        for start in range(0, len(retained), window.every or window.size):
            inside = retained[start : start + window.size]
            last = inside[-1]
            if len(inside) == window.size:
                position = None if window.partial else last.position
                yield inside[0].time, last.time, last.time, position, {}, inside
            elif window.partial:
                yield inside[0].time, last.time, END_OF_TIME, None, {}, inside


def _landmarks(window: d.LandmarkWindow, rows: list[Row]) -> Iterable[_Window]:
    inside: list[Row] = []

    def close_by_time() -> _Window:
        assert window.longest is not None
        end = inside[0].time + window.longest
        return inside[0].time, end, end - 1, None, {"closed": False}, inside

    for row in rows:
        if inside and window.longest is not None and row.time >= inside[0].time + window.longest:
            yield close_by_time()
            inside = []
        if inside or holds(window.opens, row.values):
            inside.append(row)
            if holds(window.closes, row.values):
                more = {} if window.longest is None else {"closed": True}
                position = row.position if window.longest is None else None
                yield inside[0].time, row.time, row.time, position, more, inside
                inside = []
    if inside and window.longest is not None:
        yield close_by_time()

"""Windows that the events of a key cut themselves: by their number, by silence, by marks among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.formulas import holds
from tests.transparency.oracle.rows import Row, Values

#: when that happens which is told because a log has ended: just before the year 9999
END_OF_TIME = 253_370_764_800_000_000 - 1

#: start, end, when it is told and at which place, further columns, the rows inside
_Window = tuple[int, int, int, tuple[int, ...] | None, Values, list[Row]]


def event_windows(window: Any, rows: list[Row]) -> Iterable[_Window]:
    match window:
        case d.ByCount():
            yield from _by_count(window, rows)
        case d.LastEvents():
            for life in _lives(rows, window.forget_after):
                for number, row in enumerate(life, 1):
                    inside = life[max(0, number - window.size) : number]
                    if len(inside) == window.size or not window.whole:
                        yield inside[0].time, row.time, row.time, row.place, {}, inside
        case d.Sessions():
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
        case d.Landmarks():
            yield from _landmarks(window, rows)


def _lives(rows: list[Row], forget_after: int | None) -> list[list[Row]]:
    """A key's rows, from one time it was forgotten to the next."""
    lives: list[list[Row]] = []
    for row in rows:
        if not lives or (forget_after is not None and row.time - lives[-1][-1].time >= forget_after):
            lives.append([])
        lives[-1].append(row)
    return lives


def _by_count(window: d.ByCount, rows: list[Row]) -> Iterable[_Window]:
    for life in _lives(rows, window.forget_after):
        for start in range(0, len(life), window.every or window.size):
            inside = life[start : start + window.size]
            last = inside[-1]
            if len(inside) == window.size:
                place = None if window.partial else last.place
                yield inside[0].time, last.time, last.time, place, {}, inside
            elif window.partial:
                yield inside[0].time, last.time, END_OF_TIME, None, {}, inside


def _landmarks(window: d.Landmarks, rows: list[Row]) -> Iterable[_Window]:
    inside: list[Row] = []

    def ended() -> _Window:
        assert window.longest is not None
        end = inside[0].time + window.longest
        return inside[0].time, end, end - 1, None, {"closed": False}, inside

    for row in rows:
        if inside and window.longest is not None and row.time >= inside[0].time + window.longest:
            yield ended()
            inside = []
        if inside or holds(window.opens, row.values):
            inside.append(row)
            if holds(window.closes, row.values):
                more = {} if window.longest is None else {"closed": True}
                place = row.place if window.longest is None else None
                yield inside[0].time, row.time, row.time, place, more, inside
                inside = []
    if inside and window.longest is not None:
        yield ended()

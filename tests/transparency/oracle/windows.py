"""Windows and their aggregates."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.event_windows import event_windows
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Key, Row, Values


class Windows(Nodes):
    """Aggregates of windows of every kind."""

    def _windows(self, node: d.Windows) -> Flows:
        flows = self.flows(node.input)
        names = {a.column for a in node.aggregates if a.column} | set(node.keys)
        window = node.window
        results: list[Row] = []
        if isinstance(window, d.TimeWindow | d.Running):
            results = self._aggregate_by_time(node, flows, window, names)
        else:
            marks = (
                {window.opens.column, window.closes.column} if isinstance(window, d.LandmarkWindow) else set()
            )
            for key, rows in self.sort_by_key(flows, node.keys, names | marks).items():
                for start, end, time, position, more, inside in event_windows(window, rows):
                    at = position if len(flows) == 1 else None
                    values = {"window_start": start, "window_end": end, **more}
                    results.append(Row(time, at, self._aggregate_rows(values, node, key, inside)))
        return [results]

    def _aggregate_by_time(self, node: d.Windows, flows: Flows, window: Any, names: set[str]) -> list[Row]:
        running = isinstance(window, d.Running)
        results: list[Row] = []
        if window.emit == "change":
            for key, rows in self.sort_by_key(flows, node.keys, names).items():
                results += self._aggregate_changes(node, key, rows, window, len(flows))
            return results
        groups: dict[tuple[int, int, Key], list[Row]] = defaultdict(list)
        for row in (row for flow in flows for row in flow):
            for start, end in [(0, 0)] if running else _windows_of(window, row.time):
                groups[start, end, row.key(node.keys)].append(row)
        for (start, end, key), rows in groups.items():
            for at in {end} if window.emit == "close" else _instants(rows, window.emit, end, running):
                inside = [row for row in rows if row.time < at]
                values: Values = {} if running else {"window_start": start, "window_end": end}
                values |= {} if window.emit == "close" else {"as_of": at}
                results.append(Row(at - 1, None, self._aggregate_rows(values, node, key, inside)))
        return results

    def _aggregate_changes(
        self, node: d.Windows, key: Key, rows: list[Row], window: Any, flows: int
    ) -> list[Row]:
        running = isinstance(window, d.Running)
        one_window = running or window.size <= (window.every or window.size)
        so_far: dict[tuple[int, int], list[Row]] = defaultdict(list)
        last: dict[tuple[int, int], Values] = {}
        results = []
        for row in rows:
            for bounds in [(0, 0)] if running else _windows_of(window, row.time):
                so_far[bounds].append(row)
                result = self._aggregate_rows({}, node, key, so_far[bounds])
                if bounds not in last or last[bounds] != result:
                    last[bounds] = result
                    values = {} if running else {"window_start": bounds[0], "window_end": bounds[1]}
                    position = row.position if one_window and flows == 1 else None
                    results.append(Row(row.time, position, values | {"as_of": row.time} | result))
        return results

    def _aggregate_rows(self, values: Values, node: d.Windows, key: Key, rows: list[Row]) -> Values:
        columns = values | dict(zip(node.keys, key, strict=True))
        return columns | {a.alias: self._aggregate_column(a, rows) for a in node.aggregates}

    def _aggregate_column(self, aggregate: d.Aggregate, rows: list[Row]) -> Any:
        if aggregate.column is None:
            return {
                "count": len(rows),
                "earliest": min(row.time for row in rows),
                "latest": max(row.time for row in rows),
            }[aggregate.function]
        if aggregate.function in ("first", "last", "collect"):
            values = self._values_in_order(rows, aggregate.column)
            return (
                values
                if aggregate.function == "collect"
                else values[0 if aggregate.function == "first" else -1]
            )
        self.is_ambiguous |= aggregate.function == "approx_quantile"  # it is an estimate
        present = [row.values[aggregate.column] for row in rows if row.values[aggregate.column] is not None]
        return FUNCTIONS[aggregate.function](present, aggregate.share)

    def _values_in_order(self, rows: list[Row], column: str) -> list[Any]:
        found = self.sort_by_key([rows], (), (column,))[()]
        for row, other in pairwise(found):
            if (row.time, row.position) == (other.time, other.position):
                self.is_ambiguous |= row.values[column] != other.values[column]
        return [row.values[column] for row in found]


def _windows_of(window: d.TimeWindow, time: int) -> list[tuple[int, int]]:
    """Return the windows that contain an instant, as (start, end)."""
    advance = window.every or window.size
    start = (time - window.offset) // advance * advance + window.offset
    found = []
    while start + window.size > time:
        found.append((start, start + window.size))
        start -= advance
    return found


def _instants(rows: list[Row], every: int, end: int, running: bool) -> set[int]:
    """Return the instants of results: multiples of `every`, and the window's end."""
    at = {(row.time // every + 1) * every for row in rows}
    return at if running else {min(instant, end) for instant in at}


# -- functions of values -------------------------------------------------------------------------


def _stddev(values: list[Any], _: float) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _variance(values: list[Any], _: float) -> float | None:
    return None if len(values) < 2 else float(statistics.variance(map(Fraction, values)))


def _quantile(values: list[Any], share: float) -> float | None:
    if not values:
        return None
    ordered, position = sorted(values), share * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))


FUNCTIONS: dict[str, Callable[[list[Any], float], Any]] = {
    "sum": lambda values, _: sum(values),
    "min": lambda values, _: min(values, default=None),
    "max": lambda values, _: max(values, default=None),
    "avg": lambda values, _: sum(values) / len(values) if values else None,
    "stddev": _stddev,
    "median": lambda values, _: _quantile(values, 0.5),
    "quantile": _quantile,
    "count_distinct": lambda values, _: len(set(values)),
    "approx_count_distinct": lambda values, _: len(set(values)),
    "approx_quantile": _quantile,
    "count_of": lambda values, _: len(values),
    "variance": _variance,
    "squares": lambda values, _: sum(value * value for value in values) % 1_000_003 if values else None,
}

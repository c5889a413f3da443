"""The best rows of windows and of totals."""

from __future__ import annotations

from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Key, Row, Values


class Top(Nodes):
    """The best rows of all, or of each group."""

    def _top(self, node: d.Top) -> Flows:
        windows = node.input
        while not isinstance(windows, d.Windows):
            windows = windows.input
        running = isinstance(windows.window, d.Running)
        rows = sorted(self.rows(node.input), key=lambda row: row.time)
        groups = list(dict.fromkeys(row.key(node.per) for row in rows))
        return [
            [row for group in groups for row in self._rank_group(node, windows.keys, running, group, rows)]
        ]

    def _rank_group(
        self, node: d.Top, keys: d.Names, running: bool, group: Key, rows: list[Row]
    ) -> list[Row]:
        results: list[Row] = []
        current: dict[Key, Values] = {}
        last: list[Values] | None = None
        when = ("as_of",) if running else ("window_start", "window_end")
        rows_of_group = [row for row in rows if row.key(node.per) == group]
        for time in sorted({row.time for row in rows_of_group}):
            now = [row.values for row in rows_of_group if row.time == time]
            if not running:
                current = {}
            current |= {tuple(values[key] for key in keys): values for values in now}
            best = sorted(current.values(), key=lambda values: _sort_key(values, node, keys))[: node.k]
            ranked = [{name: v for name, v in values.items() if name not in when} for values in best]
            if node.changes_only and ranked == last:
                continue
            last = ranked
            instants = {"as_of": time + 1} if running else {name: now[0][name] for name in when}
            results += [
                Row(time, None, values | instants | {"rank": rank}) for rank, values in enumerate(ranked, 1)
            ]
        return results


def _sort_key(values: Values, node: d.Top, keys: d.Names) -> Any:
    by = values[node.by]
    value = 0 if by is None else by if node.least else -by
    return (
        by is None,
        value,
        [(values[key] is None, 0 if values[key] is None else values[key]) for key in keys],
    )

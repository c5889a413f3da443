"""Operators with state by key: its last rows, whether it was seen, and state of user code."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Row


class Keyed(Nodes):
    """Last, distinct, user functions and custom operators."""

    def _last(self, node: d.Last) -> Flows:
        flows = self.flows(node.input)
        results = []
        for key, rows in self.sort_by_key(flows, node.keys, node.values).items():
            for number, row in enumerate(rows, 1):
                if node.partial or number >= node.size:
                    last = rows[max(0, number - node.size) : number]
                    values = dict(zip(node.keys, key, strict=True))
                    values |= {name: [previous.values[name] for previous in last] for name in node.values}
                    results.append(Row(row.time, self.position_of_result(row, flows), values))
        return [results]

    def _distinct(self, node: d.Distinct) -> Flows:
        flows = self.flows(node.input)
        results = []
        for rows in self.sort_by_key(flows, node.columns, self.names(node.input)).values():
            emitted: Row | None = None
            for row in rows:
                if emitted is None or (node.within is not None and row.time - emitted.time >= node.within):
                    emitted = row
                    results.append(replace(row, position=self.position_of_result(row, flows)))
        return [results]

    def _fold(self, node: d.Fold) -> Flows:
        flows = self.flows(node.input)
        results = []
        for (key,), rows in self.sort_by_key(flows, (node.key,), (node.value,)).items():
            before, seen = None, None
            for row in rows:
                if seen is not None and node.forget_after is not None and row.time - seen > node.forget_after:
                    before = None
                value, seen = row.values[node.value], row.time
                emitted = [{"key": key, "value": value, "before": before}]
                if value is not None and value > 2:
                    emitted.append({"key": key, "value": value, "before": None})
                position = self.position_of_result(row, flows)
                for number, values in enumerate(emitted):
                    results.append(Row(row.time, None if position is None else (*position, number), values))
                before = value
        return [results]

    def _previous(self, node: d.Previous) -> Flows:
        results = []
        for (key,), rows in self.sort_by_key(self.flows(node.input), (node.key,), (node.value,)).items():
            before = None
            for row in rows:
                value = row.values[node.value]
                results.append(Row(row.time, None, {"key": key, "value": value, "before": before}))
                before = value
        return [results]

    def _tickcounts(self, node: d.TickCounts) -> Flows:
        counts: dict[tuple[int, Any], int] = defaultdict(int)
        for row in self.rows(node.input):
            counts[(row.time // node.every + 1) * node.every, row.values[node.key]] += 1
        return [[Row(at - 1, None, {"key": key, "count": n}) for (at, key), n in counts.items()]]

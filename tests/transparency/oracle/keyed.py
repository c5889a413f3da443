"""What is remembered of a key: its last rows, whether it was seen, and what the user's own code keeps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Row


class Keyed(Nodes):
    """Last, distinct, the user's own."""

    def _last(self, node: d.Last) -> Flows:
        flows = self.flows(node.input)
        told = []
        for key, rows in self.in_order(flows, node.keys, node.values).items():
            for number, row in enumerate(rows, 1):
                if node.partial or number >= node.size:
                    last = rows[max(0, number - node.size) : number]
                    values = dict(zip(node.keys, key, strict=True))
                    values |= {name: [one.values[name] for one in last] for name in node.values}
                    told.append(Row(row.time, self.made_at(row, flows), values))
        return [told]

    def _distinct(self, node: d.Distinct) -> Flows:
        flows = self.flows(node.input)
        told = []
        for rows in self.in_order(flows, node.columns, self.names(node.input)).values():
            kept: Row | None = None
            for row in rows:
                if kept is None or (node.within is not None and row.time - kept.time >= node.within):
                    kept = row
                    told.append(replace(row, place=self.made_at(row, flows)))
        return [told]

    def _fold(self, node: d.Fold) -> Flows:
        flows = self.flows(node.input)
        told = []
        for (key,), rows in self.in_order(flows, (node.key,), (node.value,)).items():
            before, seen = None, None
            for row in rows:
                if seen is not None and node.forget_after is not None and row.time - seen > node.forget_after:
                    before = None
                value, seen = row.values[node.value], row.time
                fresh = [{"key": key, "value": value, "before": before}]
                if value is not None and value > 2:
                    fresh.append({"key": key, "value": value, "before": None})
                place = self.made_at(row, flows)
                for number, values in enumerate(fresh):
                    told.append(Row(row.time, None if place is None else (*place, number), values))
                before = value
        return [told]

    def _before(self, node: d.Before) -> Flows:
        told = []
        for (key,), rows in self.in_order(self.flows(node.input), (node.key,), (node.value,)).items():
            before = None
            for row in rows:
                value = row.values[node.value]
                told.append(Row(row.time, None, {"key": key, "value": value, "before": before}))
                before = value
        return [told]

    def _ticks(self, node: d.Ticks) -> Flows:
        counts: dict[tuple[int, Any], int] = defaultdict(int)
        for row in self.rows(node.input):
            counts[(row.time // node.every + 1) * node.every, row.values[node.key]] += 1
        return [[Row(at - 1, None, {"key": key, "told": n}) for (at, key), n in counts.items()]]

"""Sources and stateless operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.transparency import description as d
from tests.transparency.oracle.formulas import compute, holds
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Row, Values


class Stateless(Nodes):
    """Sources, and nodes that process one row at a time."""

    def _source(self, node: d.Source) -> Flows:
        return [self._log(node.stream)[0]]

    def _late(self, node: d.Late) -> Flows:
        return [self._log(node.stream)[1]]

    def _log(self, stream: str) -> tuple[list[Row], list[Row]]:
        """Return the log's events, on time and late; number the partitions through all streams."""
        if stream not in self.first_partitions:
            count = sum(len(self.logs[name].partitions) for name in self.first_partitions)
            self.first_partitions[stream] = count
        return self.logs[stream].split_late(self.first_partitions[stream])

    def _filter(self, node: d.Filter) -> Flows:
        return [[r for r in flow if holds(node.condition, r.values)] for flow in self.flows(node.input)]

    def _map(self, node: d.Map) -> Flows:
        def map_row(row: Row) -> Row:
            computed = {name: compute(formula, row.values) for name, formula in node.columns}
            return replace(row, values=computed if node.only else row.values | computed)

        return [[map_row(row) for row in flow] for flow in self.flows(node.input)]

    def _explode(self, node: d.Explode) -> Flows:
        return self._expand(
            self.flows(node.input),
            lambda v: [v | {node.column: item} for item in v[node.column] or ()],
        )

    def _flatmap(self, node: d.FlatMap) -> Flows:
        def copies(values: Values) -> list[Values]:
            times = 0 if values[node.column] is None else values[node.column] % 3
            copied = {name: values[name] for name, _ in node.columns}
            return [copied | {node.number: number} for number in range(1, times + 1)]

        return self._expand(self.flows(node.input), copies)

    def _expand(self, flows: Flows, copies: Callable[[Values], list[Values]]) -> Flows:
        return [
            [
                Row(row.time, None if row.position is None else (*row.position, number), values)
                for row in flow
                for number, values in enumerate(copies(row.values))
            ]
            for flow in flows
        ]

    def _demux(self, node: d.Demux) -> Flows:
        def is_chosen(values: Values) -> bool:
            matching = [n for n, condition in enumerate(node.conditions) if holds(condition, values)]
            if not matching:
                return node.chosen == len(node.conditions)
            return node.chosen in (matching if node.every_match else matching[:1])

        return [[row for row in flow if is_chosen(row.values)] for flow in self.flows(node.input)]

    def _union(self, node: d.Union) -> Flows:
        return [flow for part in node.parts for flow in self.flows(part)]

    def _rebalance(self, node: d.Rebalance) -> Flows:
        flows = self.flows(node.input)
        if len(flows) == 1:
            return flows

        def add_part_number(row: Row, number: int) -> Row:
            return row if row.position is None else replace(row, position=(*row.position, number))

        return [[add_part_number(row, number) for number, flow in enumerate(flows) for row in flow]]

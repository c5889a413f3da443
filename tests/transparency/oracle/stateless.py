"""Rows without memory: streams as they were logged, and what is made of each row by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.transparency import description as d
from tests.transparency.oracle.formulas import computed, holds
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Row, Values


class Stateless(Nodes):
    """Sources, and nodes that look at one row at a time."""

    def _source(self, node: d.Source) -> Flows:
        return [self._log(node.stream)[0]]

    def _late(self, node: d.Late) -> Flows:
        return [self._log(node.stream)[1]]

    def _log(self, stream: str) -> tuple[list[Row], list[Row]]:
        """Partitions are numbered through all streams, as these are met."""
        if stream not in self.first_partitions:
            met = sum(len(self.logs[name].partitions) for name in self.first_partitions)
            self.first_partitions[stream] = met
        return self.logs[stream].sorted_out(self.first_partitions[stream])

    def _filter(self, node: d.Filter) -> Flows:
        return [[r for r in flow if holds(node.condition, r.values)] for flow in self.flows(node.input)]

    def _map(self, node: d.Map) -> Flows:
        def made(row: Row) -> Row:
            fresh = {name: computed(formula, row.values) for name, formula in node.columns}
            return replace(row, values=fresh if node.only else row.values | fresh)

        return [[made(row) for row in flow] for flow in self.flows(node.input)]

    def _explode(self, node: d.Explode) -> Flows:
        return self._multiplied(
            self.flows(node.input),
            lambda v: [v | {node.column: one} for one in v[node.column] or ()],
        )

    def _flatmap(self, node: d.FlatMap) -> Flows:
        def copies(values: Values) -> list[Values]:
            times = 0 if values[node.column] is None else values[node.column] % 3
            kept = {name: values[name] for name, _ in node.kept}
            return [kept | {node.turn: turn} for turn in range(1, times + 1)]

        return self._multiplied(self.flows(node.input), copies)

    def _multiplied(self, flows: Flows, copies: Callable[[Values], list[Values]]) -> Flows:
        return [
            [
                Row(row.time, None if row.place is None else (*row.place, number), values)
                for row in flow
                for number, values in enumerate(copies(row.values))
            ]
            for flow in flows
        ]

    def _demux(self, node: d.Demux) -> Flows:
        def chosen(values: Values) -> bool:
            fitting = [n for n, condition in enumerate(node.conditions) if holds(condition, values)]
            if not fitting:
                return node.chosen == len(node.conditions)
            return node.chosen in (fitting if node.every_match else fitting[:1])

        return [[row for row in flow if chosen(row.values)] for flow in self.flows(node.input)]

    def _union(self, node: d.Union) -> Flows:
        return [flow for part in node.parts for flow in self.flows(part)]

    def _rebalance(self, node: d.Rebalance) -> Flows:
        flows = self.flows(node.input)
        if len(flows) == 1:
            return flows

        def told_apart(row: Row, number: int) -> Row:
            return row if row.place is None else replace(row, place=(*row.place, number))

        return [[told_apart(row, number) for number, flow in enumerate(flows) for row in flow]]

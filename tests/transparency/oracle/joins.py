"""Joins, self joins, lookups and products: every row against every other."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.columns import Joined
from tests.transparency.oracle.formulas import holds
from tests.transparency.oracle.nodes import Nodes, is_order_undefined
from tests.transparency.oracle.rows import Flows, Key, Row


class Joins(Nodes):
    """Two streams, or a stream with itself."""

    def _join(self, node: d.Join) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.last is not None:
            return [self._join_last(node, left, right, join)]
        pairs = [
            (one, other)
            for one in _all(left)
            for other in _all(right)
            if _equal(one.key(node.keys), other.key(node.right_keys))
            and -node.before <= other.time - one.time <= node.after
            and holds(node.where, join.values(one, other))
        ]
        results = [Row(max(one.time, other.time), None, join.values(one, other)) for one, other in pairs]
        if node.how in ("left", "full"):
            matched = {id(one) for one, _ in pairs}
            unmatched = [one for one in _all(left) if id(one) not in matched]
            results += [Row(one.time + node.after, None, join.values(one, None)) for one in unmatched]
        if node.how in ("right", "full"):
            matched = {id(other) for _, other in pairs}
            unmatched = [other for other in _all(right) if id(other) not in matched]
            results += [Row(other.time + node.before, None, join.values(None, other)) for other in unmatched]
        return [results]

    def _join_last(self, node: d.Join, left: Flows, right: Flows, join: Joined) -> list[Row]:
        """Join each row with the last rows of its key that arrived on the other side before it."""
        assert node.last is not None
        results = []
        left_by_key, right_by_key = _group_by_key(left, node.keys), _group_by_key(right, node.right_keys)
        for key in left_by_key.keys() | right_by_key.keys():
            if None not in key:
                for one, other in self._pair_with_last(
                    left_by_key.get(key, []), right_by_key.get(key, []), node.last
                ):
                    if holds(node.where, join.values(one, other)):
                        results.append(Row(max(one.time, other.time), None, join.values(one, other)))
        return results

    def _pair_with_last(self, left: Flows, right: Flows, last: int) -> list[tuple[Row, Row]]:
        arrivals = []
        for side, flows in enumerate((left, right)):
            for number, flow in enumerate(flows):
                for row in flow:
                    position: Any = (1, str(row.values)) if row.position is None else (0, row.position)
                    arrivals.append(((row.time, *position, number), side, row))
        arrivals.sort(key=lambda arrival: (arrival[0][0], arrival[0][1:], arrival[1]))
        for (rank, side, row), (other_rank, other_side, other) in pairwise(arrivals):
            # at one position, left comes before right
            if row.time == other.time and (side == other_side or rank != other_rank or row.position is None):
                self.is_ambiguous |= is_order_undefined(rank, row, other_rank, other)
                # results come in the order of their contents, and the sides have different columns
                self.is_ambiguous |= (
                    side != other_side and row.position is other.position is None and rank != other_rank
                )
        pairs = []
        seen: tuple[list[Row], list[Row]] = ([], [])
        for _, side, row in arrivals:
            pairs += [(partner, row) if side else (row, partner) for partner in seen[1 - side][-last:]]
            seen[side].append(row)
        return pairs

    def _selfjoin(self, node: d.SelfJoin) -> Flows:
        flows = self.flows(node.input)
        join = self.joined(node)
        results = []
        for key, rows in self.sort_by_key(flows, node.keys, self.names(node.input)).items():
            for number, other in enumerate(rows):
                for one in rows[:number] if node.last is None else rows[max(0, number - node.last) : number]:
                    is_near = node.within is None or other.time - one.time <= node.within
                    if None not in key and is_near and holds(node.where, join.values(one, other)):
                        results.append(Row(other.time, None, join.values(one, other)))
        return [results]

    def _lookup(self, node: d.Lookup) -> Flows:
        events, table = self.flows(node.left), self.flows(node.table)
        join = self.joined(node)
        changes = self.sort_by_key(table, node.table_keys, self.names(node.table))
        results = []
        for event in _all(events):
            key = event.key(node.keys)
            found = [c for c in changes.get(key, []) if c.time <= event.time and None not in key]
            row = found[-1] if found else None
            if row is not None and node.deleted is not None and row.values[node.deleted]:
                row = None
            if row is not None or node.how == "left":
                results.append(
                    Row(event.time, self.position_of_result(event, events), join.values(event, row))
                )
        return [results]

    def _product(self, node: d.Product) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.distinct:
            pairs = self._pair_with_itself(node, left)
        elif node.last is not None:
            pairs = self._pair_with_last(left, right, node.last)
        else:
            pairs = [(one, other) for one in _all(left) for other in _all(right)]
        back = math.inf if node.before is None else node.before
        ahead = math.inf if node.after is None else node.after
        return [
            [
                Row(max(one.time, other.time), None, join.values(one, other))
                for one, other in pairs
                if -back <= other.time - one.time <= ahead and holds(node.where, join.values(one, other))
            ]
        ]

    def _pair_with_itself(self, node: d.Product, flows: Flows) -> list[tuple[Row, Row]]:
        rows = self.sort_by_key(flows, (), self.names(node.left)).get((), [])
        return [
            (one, other)
            for number, other in enumerate(rows)
            for one in (rows[:number] if node.last is None else rows[max(0, number - node.last) : number])
        ]


def _all(flows: Flows) -> list[Row]:
    return [row for flow in flows for row in flow]


def _group_by_key(flows: Flows, keys: d.Names) -> dict[Key, Flows]:
    found: dict[Key, Flows] = defaultdict(lambda: [[] for _ in flows])
    for number, flow in enumerate(flows):
        for row in flow:
            found[row.key(keys)][number].append(row)
    return found


def _equal(one: Key, other: Key) -> bool:
    return None not in one and one == other

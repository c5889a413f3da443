"""Rows that meet: joins, pairs, lookups and products, every row against every other."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.columns import Joined
from tests.transparency.oracle.formulas import holds
from tests.transparency.oracle.nodes import Nodes, undecided
from tests.transparency.oracle.rows import Flows, Key, Row


class Meetings(Nodes):
    """Two streams, or a stream with itself."""

    def _join(self, node: d.Join) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.last is not None:
            return [self._over_last(node, left, right, join)]
        pairs = [
            (one, other)
            for one in _all(left)
            for other in _all(right)
            if _equal(one.key(node.keys), other.key(node.right_keys))
            and -node.before <= other.time - one.time <= node.after
            and holds(node.where, join.values(one, other))
        ]
        told = [Row(max(one.time, other.time), None, join.values(one, other)) for one, other in pairs]
        if node.how in ("left", "full"):
            met = {id(one) for one, _ in pairs}
            alone = [one for one in _all(left) if id(one) not in met]
            told += [Row(one.time + node.after, None, join.values(one, None)) for one in alone]
        if node.how in ("right", "full"):
            met = {id(other) for _, other in pairs}
            alone = [other for other in _all(right) if id(other) not in met]
            told += [Row(other.time + node.before, None, join.values(None, other)) for other in alone]
        return [told]

    def _over_last(self, node: d.Join, left: Flows, right: Flows, join: Joined) -> list[Row]:
        """Each row meets the last rows of its key that came on the other side before it."""
        assert node.last is not None
        told = []
        mine, theirs = _keyed(left, node.keys), _keyed(right, node.right_keys)
        for key in mine.keys() | theirs.keys():
            if None not in key:
                for one, other in self._last_of_other(mine.get(key, []), theirs.get(key, []), node.last):
                    if holds(node.where, join.values(one, other)):
                        told.append(Row(max(one.time, other.time), None, join.values(one, other)))
        return told

    def _last_of_other(self, left: Flows, right: Flows, last: int) -> list[tuple[Row, Row]]:
        turns = []
        for side, flows in enumerate((left, right)):
            for number, flow in enumerate(flows):
                for row in flow:
                    place: Any = (1, str(row.values)) if row.place is None else (0, row.place)
                    turns.append(((row.time, *place, number), side, row))
        turns.sort(key=lambda turn: (turn[0][0], turn[0][1:], turn[1]))
        for (rank, side, row), (other_rank, other_side, other) in pairwise(turns):
            # of one place, left comes before right
            if row.time == other.time and (side == other_side or rank != other_rank or row.place is None):
                self.unsure |= undecided(rank, row, other_rank, other)
                # answers come in the order of their contents: that of other columns on the other side
                self.unsure |= side != other_side and row.place is other.place is None and rank != other_rank
        pairs = []
        seen: tuple[list[Row], list[Row]] = ([], [])
        for _, side, row in turns:
            pairs += [(partner, row) if side else (row, partner) for partner in seen[1 - side][-last:]]
            seen[side].append(row)
        return pairs

    def _pairs(self, node: d.Pairs) -> Flows:
        flows = self.flows(node.input)
        join = self.joined(node)
        told = []
        for key, rows in self.in_order(flows, node.keys, self.names(node.input)).items():
            for number, other in enumerate(rows):
                for one in rows[:number] if node.last is None else rows[max(0, number - node.last) : number]:
                    near = node.within is None or other.time - one.time <= node.within
                    if None not in key and near and holds(node.where, join.values(one, other)):
                        told.append(Row(other.time, None, join.values(one, other)))
        return [told]

    def _lookup(self, node: d.Lookup) -> Flows:
        events, table = self.flows(node.left), self.flows(node.table)
        join = self.joined(node)
        changes = self.in_order(table, node.table_keys, self.names(node.table))
        told = []
        for event in _all(events):
            key = event.key(node.keys)
            found = [c for c in changes.get(key, []) if c.time <= event.time and None not in key]
            row = found[-1] if found else None
            if row is not None and node.deleted is not None and row.values[node.deleted]:
                row = None
            if row is not None or node.how == "left":
                told.append(Row(event.time, self.made_at(event, events), join.values(event, row)))
        return [told]

    def _product(self, node: d.Product) -> Flows:
        left, right = self.flows(node.left), self.flows(node.right)
        join = self.joined(node)
        if node.distinct:
            near = self._of_itself(node, left)
        elif node.last is not None:
            near = self._last_of_other(left, right, node.last)
        else:
            near = [(one, other) for one in _all(left) for other in _all(right)]
        back = math.inf if node.before is None else node.before
        ahead = math.inf if node.after is None else node.after
        return [
            [
                Row(max(one.time, other.time), None, join.values(one, other))
                for one, other in near
                if -back <= other.time - one.time <= ahead and holds(node.where, join.values(one, other))
            ]
        ]

    def _of_itself(self, node: d.Product, flows: Flows) -> list[tuple[Row, Row]]:
        rows = self.in_order(flows, (), self.names(node.left)).get((), [])
        return [
            (one, other)
            for number, other in enumerate(rows)
            for one in (rows[:number] if node.last is None else rows[max(0, number - node.last) : number])
        ]


def _all(flows: Flows) -> list[Row]:
    return [row for flow in flows for row in flow]


def _keyed(flows: Flows, keys: d.Names) -> dict[Key, Flows]:
    found: dict[Key, Flows] = defaultdict(lambda: [[] for _ in flows])
    for number, flow in enumerate(flows):
        for row in flow:
            found[row.key(keys)][number].append(row)
    return found


def _equal(one: Key, other: Key) -> bool:
    return None not in one and one == other

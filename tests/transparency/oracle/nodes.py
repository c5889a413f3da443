"""What every node needs: the rows of its inputs, their columns, and their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.columns import Joined, window_columns
from tests.transparency.oracle.rows import Flows, Key, Log, Row


@dataclass
class Nodes:
    """The logs, and whether the rows are ambiguous; a subclass has a method for each kind of node."""

    logs: dict[str, Log]
    is_ambiguous: bool = False
    first_partitions: dict[str, int] = field(default_factory=dict)

    def flows(self, node: Any) -> Flows:
        """Return the rows of a node, unordered."""
        return getattr(self, f"_{type(node).__name__.lower()}")(node)  # type: ignore[no-any-return]

    def rows(self, node: Any) -> list[Row]:
        return [row for flow in self.flows(node) for row in flow]

    def names(self, node: Any) -> list[str]:
        """Return the columns of a node."""
        match node:
            case d.Source() | d.Late():
                return list(self.logs[node.stream].columns)
            case d.Map():
                computed = [name for name, _ in node.columns]
                return computed if node.only else [*dict.fromkeys((*self.names(node.input), *computed))]
            case d.FlatMap():
                return [*(name for name, _ in node.columns), node.number]
            case d.Union():
                return self.names(node.parts[0])
            case d.Windows():
                return [*window_columns(node.window), *node.keys, *(a.alias for a in node.aggregates)]
            case d.Last():
                return [*dict.fromkeys((*node.keys, *node.values))]
            case d.Join() | d.SelfJoin() | d.Lookup() | d.Product():
                return self.joined(node).names()
            case d.Pattern():
                matching = [step.name for step in node.steps if not step.absent]
                named = [f"{step}_{column}" for step in matching for column in ("time", *node.columns)]
                return [*node.keys, *named, *(["matched"] if node.timeouts else [])]
            case d.Fold() | d.Previous():
                return ["key", "value", "before"]
            case d.TickCounts():
                return ["key", "count"]
            case d.Top():
                return [*self.names(node.input), "rank"]
        return self.names(node.input)

    def joined(self, node: Any) -> Joined:
        match node:
            case d.SelfJoin():
                names = self.names(node.input)
                return Joined(names, names, node.keys, node.keys, node.suffix)
            case d.Join():
                sides = self.names(node.left), self.names(node.right)
                return Joined(*sides, node.keys, node.right_keys, node.suffix)
            case d.Lookup():
                sides = self.names(node.left), self.names(node.table)
                return Joined(*sides, node.keys, node.table_keys, node.suffix, node.deleted)
        return Joined(self.names(node.left), self.names(node.right), (), (), node.suffix)

    # -- order -----------------------------------------------------------------------------------

    def sort_by_key(self, flows: Flows, keys: Sequence[str], names: Iterable[str]) -> dict[Key, list[Row]]:
        """Return the rows of every key in total order; ambiguous if the order is undefined and these columns differ."""
        names = sorted(set(names))
        ranked: dict[Key, list[tuple[Any, Row]]] = defaultdict(list)
        for number, flow in enumerate(flows):
            for row in flow:
                rank = (1,) if row.position is None else (0, row.position, number)
                ranked[row.key(keys)].append(((row.time, *rank), row))
        for found in ranked.values():
            found.sort(key=lambda item: item[0])
            for (rank, row), (other_rank, other) in pairwise(found):
                if row.time == other.time and row.key(names) != other.key(names):
                    self.is_ambiguous |= is_order_undefined(rank, row, other_rank, other)
        return {key: [row for _, row in found] for key, found in ranked.items()}

    def position_of_result(self, row: Row, flows: Flows) -> tuple[int, ...] | None:
        """Return the position of a result for one event: the event's, unless its input is a union."""
        return row.position if len(flows) == 1 else None


def is_order_undefined(rank: Any, row: Row, other_rank: Any, other: Row) -> bool:
    """Whether the order of two different rows of one instant is undefined."""
    if row.position is None or other.position is None:
        return row.position is other.position and row.values != other.values
    # rows derived from different rows of a partition have positions that cannot be compared
    same_partition = row.position[0] == other.position[0]
    return same_partition and (len(row.position) != len(other.position) or rank == other_rank)

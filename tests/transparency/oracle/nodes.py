"""What working out any node needs: the rows of the nodes before it, their columns, and their order."""

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
    """The logs; whether something was met that nothing decides; a subclass has a method for every kind of node."""

    logs: dict[str, Log]
    unsure: bool = False
    first_partitions: dict[str, int] = field(default_factory=dict)

    def flows(self, node: Any) -> Flows:
        """The rows of a node, in no order."""
        return getattr(self, f"_{type(node).__name__.lower()}")(node)  # type: ignore[no-any-return]

    def rows(self, node: Any) -> list[Row]:
        return [row for flow in self.flows(node) for row in flow]

    def names(self, node: Any) -> list[str]:
        """The columns of a node."""
        match node:
            case d.Source() | d.Late():
                return list(self.logs[node.stream].columns)
            case d.Map():
                mine = [name for name, _ in node.columns]
                return mine if node.only else [*dict.fromkeys((*self.names(node.input), *mine))]
            case d.FlatMap():
                return [*(name for name, _ in node.kept), node.turn]
            case d.Union():
                return self.names(node.parts[0])
            case d.Windows():
                return [*window_columns(node.window), *node.keys, *(a.alias for a in node.aggregates)]
            case d.Last():
                return [*dict.fromkeys((*node.keys, *node.values))]
            case d.Join() | d.Pairs() | d.Lookup() | d.Product():
                return self.joined(node).names()
            case d.Pattern():
                taking = [step.name for step in node.steps if not step.absent]
                named = [f"{step}_{column}" for step in taking for column in ("time", *node.columns)]
                return [*node.keys, *named, *(["matched"] if node.timeouts else [])]
            case d.Fold() | d.Before():
                return ["key", "value", "before"]
            case d.Ticks():
                return ["key", "told"]
            case d.Top():
                return [*self.names(node.input), "rank"]
        return self.names(node.input)

    def joined(self, node: Any) -> Joined:
        match node:
            case d.Pairs():
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

    def in_order(self, flows: Flows, keys: Sequence[str], names: Iterable[str]) -> dict[Key, list[Row]]:
        """The rows of every key in total order; unsure if that matters to the columns of these names."""
        names = sorted(set(names))
        placed: dict[Key, list[tuple[Any, Row]]] = defaultdict(list)
        for number, flow in enumerate(flows):
            for row in flow:
                rank = (1,) if row.place is None else (0, row.place, number)
                placed[row.key(keys)].append(((row.time, *rank), row))
        for found in placed.values():
            found.sort(key=lambda one: one[0])
            for (rank, row), (other_rank, other) in pairwise(found):
                if row.time == other.time and row.key(names) != other.key(names):
                    self.unsure |= undecided(rank, row, other_rank, other)
        return {key: [row for _, row in found] for key, found in placed.items()}

    def made_at(self, row: Row, flows: Flows) -> tuple[int, ...] | None:
        """The place of an answer that stands for one event: the event's, unless several streams came together."""
        return row.place if len(flows) == 1 else None


def undecided(rank: Any, row: Row, other_rank: Any, other: Row) -> bool:
    """Whether nothing says which of two different rows of one instant comes first."""
    if row.place is None or other.place is None:
        return row.place is other.place and row.values != other.values
    # a row, and rows that were made of another: their numbers are not of one kind
    same_partition = row.place[0] == other.place[0]
    return same_partition and (len(row.place) != len(other.place) or rank == other_rank)

"""Interleaved placement: chooses the node of a follower so that the work of a lost node is spread over several. Pure.

Invariants, in whatever order units are placed, while the nodes stay the same:
- A follower is not on its leader's node if there is another node.
- The followers of one node's leaders are spread evenly over the other nodes, give or take one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def choose_node(
    home: str, secondaries: Iterable[tuple[str, str]], nodes: Collection[str], avoided: Collection[str] = ()
) -> str:
    """The node of the next follower of a leader at `home`. `secondaries`: for each existing follower, the node of its
    leader and its own; `avoided`: nodes that are chosen only if there is no other besides `home`."""
    placed = list(secondaries)
    load = Counter(node for _, node in placed)
    from_home = Counter(node for primary, node in placed if primary == home)
    others = [node for node in nodes if node != home] or list(nodes)
    suiting = [node for node in others if node not in avoided] or others
    return min(suiting, key=lambda node: (from_home[node], load[node], node))


def count_takeovers(
    primaries: Mapping[str, str], secondaries: Mapping[str, str], lost: str
) -> dict[str, int]:
    """How many units fail over to each node when one node is lost."""
    return dict(Counter(node for unit, node in secondaries.items() if primaries[unit] == lost))

"""Interleaved placement: where a secondary goes, so that a lost node's work is spread over several.

Pure.
Receives where the primary is, where the secondaries of all other units are, and the nodes there are; hands a node.

Invariants, in whichever order units come, while no node comes or goes:
- A secondary is not on its primary's node while there is another one.
- The secondaries of one node's primaries are on the other nodes in equal parts, give or take one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def choose_node(
    home: str, secondaries: Iterable[tuple[str, str]], nodes: Collection[str], avoided: Collection[str] = ()
) -> str:
    """The node of the next secondary of a primary at `home`. `secondaries`: the primary's node and its own, of each
    that is there; `shunned`: nodes that are taken only where there is no other beside `home`."""
    there = list(secondaries)
    load = Counter(node for _, node in there)
    from_home = Counter(node for primary, node in there if primary == home)
    others = [node for node in nodes if node != home] or list(nodes)
    suiting = [node for node in others if node not in avoided] or others
    return min(suiting, key=lambda node: (from_home[node], load[node], node))


def count_takeovers(
    primaries: Mapping[str, str], secondaries: Mapping[str, str], lost: str
) -> dict[str, int]:
    """How many units each node takes over when one is lost."""
    return dict(Counter(node for unit, node in secondaries.items() if primaries[unit] == lost))

"""Interleaved placement: where the secondaries of many units go, so that a lost node's work is spread over several.

Pure.
Receives the node of each unit's primary and the nodes there are; hands the node of each unit's secondary.

Invariants:
- A secondary is never on its primary's node; with a single node there is none.
- The secondaries of one node's primaries are on the other nodes in equal parts, give or take one.
- It does not depend on the order in which units and nodes are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping


def interleaved(primaries: Mapping[str, str], nodes: Collection[str]) -> dict[str, str]:
    """The node of each unit's secondary."""
    ring = sorted({*nodes})
    carried: Counter[str] = Counter()
    placed: dict[str, str] = {}
    for home in sorted({*primaries.values()}):
        others = [node for node in ring if node != home]
        if not others:
            continue
        from_home: Counter[str] = Counter()
        for unit in sorted(unit for unit, node in primaries.items() if node == home):
            # in equal parts for this home, and of those that suit the one with the fewest so far
            place = min(others, key=lambda node: (from_home[node], carried[node], node))
            from_home[place] += 1
            carried[place] += 1
            placed[unit] = place
    return placed


def after_loss(primaries: Mapping[str, str], secondaries: Mapping[str, str], lost: str) -> dict[str, int]:
    """How many units each node takes over when one is lost."""
    return dict(Counter(node for unit, node in secondaries.items() if primaries[unit] == lost))

"""Which runs to merge: size tiers, so that a slice keeps few runs and rewrites a row only a few times.

Pure: sizes in, a range out.
"""

from __future__ import annotations

from collections.abc import Sequence

#: merge once this many neighbours are of one tier; tiers grow by the same factor
FAN_IN = 4
#: never leave more runs than this
MOST = 16


def pick(sizes: Sequence[int]) -> slice | None:
    """The neighbouring runs (the list is oldest first) worth merging into one now, or None.

    Runs are of one tier when their sizes have the same power of four. Four neighbours of one tier make a
    run of the next, so a row is rewritten about once per tier: logarithmically often. The newest such
    neighbours go first. Where tiers alternate and never meet, the newest runs are merged regardless.
    """
    tiers = [max(0, size - 1).bit_length() // 2 for size in sizes]
    end = len(tiers)
    while end >= FAN_IN:
        start = end - 1
        while start > 0 and tiers[start - 1] == tiers[end - 1]:
            start -= 1
        if end - start >= FAN_IN:
            return slice(start, end)
        end = start
    return slice(MOST - 1, len(sizes)) if len(sizes) > MOST else None

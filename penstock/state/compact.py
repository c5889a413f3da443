"""Which runs to merge: size tiers, so that a slice keeps few runs and rewrites a row only a few times.

Pure: sizes in, a range out.
"""

from __future__ import annotations

from collections.abc import Sequence

#: merge once this many neighbours have come together
FAN_IN = 4
#: never leave more runs than this
MOST = 12


def pick(sizes: Sequence[int]) -> slice | None:
    """The newest runs (the list is oldest first) worth merging into one now, or None.

    From the newest backwards, a run joins while it is at most twice all the newer ones together. So a
    merge at least about doubles what it takes in, the runs left grow geometrically with age, and a row
    is rewritten a logarithmic number of times. Always a tail of the list: slices of an earlier cut have written
    runs up to the same epoch side by side, and a merged one must not come to stand among its equals.
    """
    if not sizes:
        return None
    start, gathered = len(sizes) - 1, sizes[-1]
    while start > 0 and sizes[start - 1] <= 2 * gathered:
        start -= 1
        gathered += sizes[start]
    if len(sizes) - start < FAN_IN:
        start = len(sizes)
    if start + (start < len(sizes)) > MOST:
        start = MOST - 1
    return slice(start, len(sizes)) if start < len(sizes) else None

"""Which runs to merge, and in which parts: size tiers, so that a slice keeps few runs and rewrites a row only a few
times.

Pure: sizes in, a range out; runs in, their parts out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from penstock.state.buckets import HASH

#: merge once this many neighbours have come together
FAN_IN = 4
#: never leave more runs than this
MOST = 12
#: about how many rows are merged at a time
ROWS_AT_ONCE = 250_000


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


def parts(runs: Sequence[pl.DataFrame]) -> Iterator[list[pl.DataFrame]]:
    """The runs cut at the same hashes, so that a part has about as many rows as are merged at a time."""
    hashes = [run[HASH].to_numpy() for run in runs]
    longest = max(hashes, key=len)
    step = max(1, ROWS_AT_ONCE * len(longest) // max(1, sum(map(len, hashes))))
    cuts = longest[step::step]
    ends = [np.append(np.searchsorted(there, cuts), len(there)) for there in hashes]
    starts = [np.append(0, end[:-1]) for end in ends]
    for part in range(len(cuts) + 1):
        yield [run[s[part] : e[part]] for run, s, e in zip(runs, starts, ends, strict=True)]

"""Which runs to merge, and in which parts: size tiers, so that a slice keeps few runs and rewrites a row only a few
times. What is too much for one epoch is merged bucket after bucket, over several.

Pure: sizes in, a range out; runs in, their parts out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from penstock.state.buckets import HASH

#: merge once this many neighbours have come together
FAN_IN = 4
#: never leave more runs than this
MOST = 12
#: about how many rows are merged at a time
ROWS_AT_ONCE = 250_000
#: about how many rows a slice merges in an epoch; more if it gets more: a merge must not be outrun by what comes
ROWS_AN_EPOCH = 250_000
ROWS_FOR_ONE = 4


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


def affordable(newest: int) -> int:
    """How many rows may be merged in an epoch whose own run has so many."""
    return max(ROWS_AN_EPOCH, ROWS_FOR_ONE * newest)


def tail(sizes: Sequence[int], most: int) -> int:
    """Where the newest runs begin that together have at most so many rows."""
    start, gathered = len(sizes), 0
    while start > 0 and gathered + sizes[start - 1] <= most:
        start -= 1
        gathered += sizes[start]
    return start


def in_turn(runs: Sequence[Mapping[int, int]], buckets: Iterable[int], most: int) -> dict[int, int]:
    """Which buckets are merged in this epoch, and each from which run on; empty: none is worth it.

    `runs`: the rows of every bucket, oldest run first. Every bucket has tiers of its own; as many are taken as `most`
    rows allow and at least one, those whose merge begins with an older run first, then by number: so what is left of a
    run stays in one piece, and what is merged together is one run again.
    """
    wanted: list[tuple[int, int, int]] = []
    for bucket in buckets:
        there = [at for at, run in enumerate(runs) if run.get(bucket)]
        sizes = [runs[at][bucket] for at in there]
        if (found := pick(sizes)) is not None:
            wanted.append((there[found.start], bucket, sum(sizes[found])))
    chosen: dict[int, int] = {}
    gathered = 0
    for start, bucket, cost in sorted(wanted):
        if not chosen or gathered + cost <= most:
            chosen[bucket] = start
            gathered += cost
    return chosen


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

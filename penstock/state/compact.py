"""Decide which runs to merge: compaction by size tiers. Pure.

So a slice has few runs, and rewrites a row only a few times. A merge that is too large for one epoch is done bucket
after bucket, over several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from penstock.state.buckets import HASH

#: merge once this many neighbors can be joined
FAN_IN = 4
#: never leave more runs than this
MAX_RUNS = 12
#: about this many rows are merged at a time
ROWS_AT_ONCE = 250_000
#: about this many rows a slice merges in an epoch
ROWS_AN_EPOCH = 125_000
#: or this many for each new row, if that is more: new rows must not arrive faster than they are merged
ROWS_FOR_ONE = 8


def pick_runs(sizes: Sequence[int]) -> slice | None:
    """The newest runs (the list is oldest first) to merge into one now, or None.

    From the newest backwards, a run joins while it is at most twice as large as all newer ones together. So a merge at
    least about doubles the size of its largest run, runs grow geometrically with age, and a row is rewritten a
    logarithmic number of times. Always a tail of the list: slices of earlier bucket maps may have written several runs
    up to the same epoch, and a merged run must not get between them.
    """
    if not sizes:
        return None
    start = _tail_start(sizes)
    if len(sizes) - start < FAN_IN:
        start = len(sizes)
    if start + (start < len(sizes)) > MAX_RUNS:
        start = MAX_RUNS - 1
    return slice(start, len(sizes)) if start < len(sizes) else None


def _tail_start(sizes: Sequence[int]) -> int:
    """The index of the first of the newest runs of which each is at most twice all newer ones together."""
    start, newer = len(sizes) - 1, sizes[-1]
    while start > 0 and sizes[start - 1] <= 2 * newer:
        start -= 1
        newer += sizes[start]
    return start


class RunSize(NamedTuple):
    """What merging needs to know of a run: the newest epoch whose changes it has, the epoch that wrote it, and the
    number of rows of each bucket."""

    through: int
    epoch: int
    rows: Mapping[int, int]


class Merge(NamedTuple):
    """Merge into one run: the rows of these buckets in all runs up to the epochs from `since` to `through`."""

    since: int
    through: int
    buckets: frozenset[int]


def plan_merges(runs: Sequence[RunSize], epoch: int, *, at_once: bool = False) -> list[Merge]:
    """The merges of this epoch. The runs are ordered by `through`; those with the same count as one.

    A merge that is too large for one epoch takes the runs up to the epoch before, a few buckets at a time. Its runs can
    be recognized: `epoch` is later than `through`. Until it has merged all buckets, nothing older than that is merged
    with anything newer; so all buckets have the same tiers again afterwards.
    """
    merges: list[Merge] = []
    # the runs of this epoch, or of the one before where those are not there yet; without merged runs
    arrived = [run for run in runs if run.through == run.epoch >= epoch - 1]
    newest = max((run.through for run in arrived), default=-1)
    fresh = sum(sum(run.rows.values()) for run in arrived if run.through == newest)
    most = max(ROWS_AN_EPOCH, ROWS_FOR_ONE * fresh)
    above = -1
    for line in sorted({run.through for run in runs if run.through < run.epoch}, reverse=True):
        if merge := _next_buckets(runs, line, above, most):
            merges.append(merge)
            above = line
            break
    levels = _levels([run for run in runs if run.through > above])
    picked = pick_runs(list(levels.values()))
    if picked is None:
        return merges
    newer = list(levels)
    if at_once or sum(list(levels.values())[picked]) <= most:
        everywhere = frozenset(bucket for run in runs for bucket in run.rows)
        return [*merges, Merge(newer[picked.start], newer[-1], everywhere)]
    line = next((through for through in reversed(newer) if through < epoch), -1)
    merge = None if merges else _next_buckets(runs, line, above, most)
    return [*merges, merge] if merge else merges


def _next_buckets(runs: Sequence[RunSize], line: int, above: int, most: int) -> Merge | None:
    """The next buckets of a merge of runs up to `line`: as many as `most` rows allow, at least one; None once done."""
    done = {bucket for run in runs if run.through == line < run.epoch for bucket in run.rows}
    # the other buckets leave out the same runs as those that are done
    above = max((run.through for run in runs if run.through < line and done & run.rows.keys()), default=above)
    left = [
        RunSize(
            run.through, run.epoch, {bucket: rows for bucket, rows in run.rows.items() if bucket not in done}
        )
        for run in runs
        if above < run.through <= line
    ]
    levels = _levels(left)
    if len(levels) < 2:
        return None
    start = 0 if done else _tail_start(list(levels.values()))
    if start == len(levels) - 1:
        return None
    since = list(levels)[start]
    costs: Counter[int] = Counter()
    for run in left:
        if run.through >= since:
            costs.update(run.rows)
    chosen: set[int] = set()
    for bucket in sorted(
        costs
    ):  # neighbors, so that the rows left in a run, and those merged, are contiguous
        if chosen and costs[bucket] > most:
            break
        chosen.add(bucket)
        most -= costs[bucket]
    return Merge(since, line, frozenset(chosen))


def _levels(runs: Iterable[RunSize]) -> dict[int, int]:
    """The number of rows of all runs up to the same epoch, by that epoch, oldest first, without empty ones."""
    rows: dict[int, int] = {}
    for run in runs:
        rows[run.through] = rows.get(run.through, 0) + sum(run.rows.values())
    return {through: rows[through] for through in sorted(rows) if rows[through]}


def split_runs(runs: Sequence[pl.DataFrame]) -> Iterator[list[pl.DataFrame]]:
    """Split the runs at the same hashes, so that a part has about as many rows as are merged at a time."""
    hashes = [run[HASH].to_numpy() for run in runs]
    longest = max(hashes, key=len)
    step = max(1, ROWS_AT_ONCE * len(longest) // max(1, sum(map(len, hashes))))
    cuts = longest[step::step]
    ends = [np.append(np.searchsorted(there, cuts), len(there)) for there in hashes]
    starts = [np.append(0, end[:-1]) for end in ends]
    for part in range(len(cuts) + 1):
        yield [run[s[part] : e[part]] for run, s, e in zip(runs, starts, ends, strict=True)]

"""Which runs to merge, and in which parts: size tiers, so that a slice keeps few runs and rewrites a row only a few
times. What is too much for one epoch is merged bucket after bucket, over several.

Pure: what runs hold in, what to merge out; runs in, their parts out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

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
ROWS_AN_EPOCH = 125_000
ROWS_FOR_ONE = 8


def pick(sizes: Sequence[int]) -> slice | None:
    """The newest runs (the list is oldest first) worth merging into one now, or None.

    From the newest backwards, a run joins while it is at most twice all the newer ones together. So a
    merge at least about doubles what it takes in, the runs left grow geometrically with age, and a row
    is rewritten a logarithmic number of times. Always a tail of the list: slices of an earlier cut have written
    runs up to the same epoch side by side, and a merged one must not come to stand among its equals.
    """
    if not sizes:
        return None
    start = _joined(sizes)
    if len(sizes) - start < FAN_IN:
        start = len(sizes)
    if start + (start < len(sizes)) > MOST:
        start = MOST - 1
    return slice(start, len(sizes)) if start < len(sizes) else None


def _joined(sizes: Sequence[int]) -> int:
    """Where the newest runs begin of which each is at most twice all newer ones together."""
    start, gathered = len(sizes) - 1, sizes[-1]
    while start > 0 and sizes[start - 1] <= 2 * gathered:
        start -= 1
        gathered += sizes[start]
    return start


class Held(NamedTuple):
    """A run, as far as merging goes: the newest epoch whose changes it holds, the epoch that wrote it, and the rows of
    every bucket."""

    through: int
    epoch: int
    rows: Mapping[int, int]


class Turn(NamedTuple):
    """What becomes one run: of these buckets, all that runs hold up to the epochs from `since` to `through`."""

    since: int
    through: int
    buckets: frozenset[int]


def due(runs: Sequence[Held], epoch: int, *, at_once: bool = False) -> list[Turn]:
    """What is merged in this epoch; the runs are ordered by `through`, and those with the same count as one.

    A merge that is too much for one epoch is made of the runs up to the epoch before, a few buckets at a time. What it
    makes says so: it was written later than what it holds. Until all buckets have had their turn nothing older than
    that is merged with anything newer; so all buckets have the same tiers again afterwards.
    """
    found: list[Turn] = []
    # the epoch's own, or that of the one before where it is not there yet; not what a merge made of older ones
    came = [run for run in runs if run.through == run.epoch >= epoch - 1]
    newest = max((run.through for run in came), default=-1)
    fresh = sum(sum(run.rows.values()) for run in came if run.through == newest)
    most = max(ROWS_AN_EPOCH, ROWS_FOR_ONE * fresh)
    above = -1
    for line in sorted({run.through for run in runs if run.through < run.epoch}, reverse=True):
        if turn := _turn(runs, line, above, most):
            found.append(turn)
            above = line
            break
    levels = _levels([run for run in runs if run.through > above])
    picked = pick(list(levels.values()))
    if picked is None:
        return found
    newer = list(levels)
    if at_once or sum(list(levels.values())[picked]) <= most:
        everywhere = frozenset(bucket for run in runs for bucket in run.rows)
        return [*found, Turn(newer[picked.start], newer[-1], everywhere)]
    line = next((through for through in reversed(newer) if through < epoch), -1)
    turn = None if found else _turn(runs, line, above, most)
    return [*found, turn] if turn else found


def _turn(runs: Sequence[Held], line: int, above: int, most: int) -> Turn | None:
    """The next buckets of a merge of runs up to `line`: as many as `most` rows allow, at least one; None once done."""
    done = {bucket for run in runs if run.through == line < run.epoch for bucket in run.rows}
    # what those that had their turn left out, the others leave out as well
    above = max((run.through for run in runs if run.through < line and done & run.rows.keys()), default=above)
    left = [
        Held(
            run.through, run.epoch, {bucket: rows for bucket, rows in run.rows.items() if bucket not in done}
        )
        for run in runs
        if above < run.through <= line
    ]
    levels = _levels(left)
    if len(levels) < 2:
        return None
    start = 0 if done else _joined(list(levels.values()))
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
    ):  # neighbours: what is left of a run, and what is made of it, are in one piece
        if chosen and costs[bucket] > most:
            break
        chosen.add(bucket)
        most -= costs[bucket]
    return Turn(since, line, frozenset(chosen))


def _levels(runs: Iterable[Held]) -> dict[int, int]:
    """The rows of all runs up to the same epoch, by that epoch, oldest first; those without any are left out."""
    found: dict[int, int] = {}
    for run in runs:
        found[run.through] = found.get(run.through, 0) + sum(run.rows.values())
    return {through: found[through] for through in sorted(found) if found[through]}


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

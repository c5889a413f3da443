"""Chooses the copy of a replicated log that a partition is read from: the leader decides by what every replica reports.

Receives, per replica, what it can reach of each copy; returns the copy to read and how far. Pure: the same reports
give the same choice.

Invariants:
- No replica reads a copy, or an offset in one, that some replica has not reported.
- A copy that some replica does not have, that lags, or that no longer has what comes next is skipped.
- While no copy qualifies, the partition waits; no record is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """What can be read of a copy: from `earliest` up to `latest`."""

    earliest: int
    latest: int


#: copies by their number, as one replica reaches them
Reachable = Mapping[int, Extent]


@dataclass(frozen=True)
class Choice:
    """The copy to read, and the offset at which to stop."""

    copy: int
    limit: int


def intersect_extents(reports: Iterable[Reachable]) -> dict[int, Extent]:
    """Intersect what the replicas have of each copy that all of them have."""
    shared: dict[int, Extent] | None = None
    for report in reports:
        if shared is None:
            shared = dict(report)
            continue
        shared = {
            copy: Extent(max(one.earliest, report[copy].earliest), min(one.latest, report[copy].latest))
            for copy, one in shared.items()
            if copy in report
        }
    return shared or {}


def choose_copy(at: int, now: int | None, reports: Iterable[Reachable]) -> Choice | None:
    """Choose the copy to read from offset `at` on; `now` is the one read so far. None if none has what comes next.

    The copy that is furthest ahead wins, but a partition stays with its copy as long as that has at least half of what
    could be read: copies that are ahead by turns do not change with every epoch.
    """
    fit = {
        copy: one.latest
        for copy, one in intersect_extents(reports).items()
        if one.earliest <= at <= one.latest
    }
    if not fit:
        return None
    best = max(fit, key=lambda copy: (fit[copy], copy == now, -copy))
    if now in fit and 2 * (fit[now] - at) >= fit[best] - at:
        best = now
    return Choice(best, fit[best])

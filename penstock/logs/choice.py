"""Which copy of a replicated log a partition is read from: the leader's decision, from what every member reports.

Receives, per member, what it can reach of each copy; hands the copy to read and how far. Pure: the same reports give
the same choice.

Invariants:
- Nobody is sent to a copy, or to a place in one, that some member has not reported.
- A copy that some member does not have, that lags, or that no longer has what comes next is passed over.
- While no copy qualifies, the partition waits; it never leaves anything out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """What can be read of a copy: from `earliest` up to `latest`."""

    earliest: int
    latest: int


#: copies by their number, as one member reaches them
Reached = Mapping[int, Extent]


@dataclass(frozen=True)
class Choice:
    """Read this copy, at most up to here."""

    copy: int
    upto: int


def common(reports: Iterable[Reached]) -> dict[int, Extent]:
    """What all members have of each copy that all of them have."""
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


def chosen(at: int, now: int | None, reports: Iterable[Reached]) -> Choice | None:
    """The copy to read from offset `at` on, when `now` is the one read so far; None when none has what comes next.

    The furthest on is chosen, but a partition stays with its copy as long as that has at least half of what could be
    read: copies that take turns at being ahead are not changed with every epoch.
    """
    fit = {copy: one.latest for copy, one in common(reports).items() if one.earliest <= at <= one.latest}
    if not fit:
        return None
    best = max(fit, key=lambda copy: (fit[copy], copy == now, -copy))
    if now in fit and 2 * (fit[now] - at) >= fit[best] - at:
        best = now
    return Choice(best, fit[best])

"""Checks whether the copies of a log hold the same, as far as that shows without reading them.

Receives what the copies list; raises `UserError` COPIES_DIFFER where they cannot hold the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.errors import ExternalError, UserError
from penstock.logs.contract import Partition, Span

#: how long two partitions may share a name and differ, in seconds: the file may be rotated in one copy already
_ROTATING_SECONDS = 5.0

#: by common name, which copies have a partition
Seen = Mapping[str, Mapping[int, Partition]]


class Namesakes:
    """Partitions of different copies that have the same name, but differ: the events of both would count.

    `known_as(copy, name)` is the name that users know a partition by.
    """

    def __init__(self, known_as: Callable[[int, str], str | None]) -> None:
        self._known_as = known_as
        self._since: dict[tuple[str, str], float] = {}

    def find_unsure(
        self, seen: Seen, ever: Sequence[Collection[str]], now: float, *, rotates: bool
    ) -> frozenset[str]:
        """Find the partitions not to start for now; raise when they surely differ. `ever`: what each copy was seen to
        have; `rotates`: whether a file may continue under another name."""
        copies = sorted({number for held in seen.values() for number in held})
        found: dict[tuple[str, str], float] = {}
        for one, other in itertools.combinations(copies, 2):
            ours, theirs = (
                self._list_unshared(seen, one, ever[other]),
                self._list_unshared(seen, other, ever[one]),
            )
            for called in sorted(ours.keys() & theirs.keys()):
                pair = (ours[called], theirs[called])
                found[pair] = self._since.get(pair, now)
                if not rotates or now - found[pair] >= _ROTATING_SECONDS:
                    raise difference_error(
                        f"{called} does not start with the same line in two copies",
                        "They would be read as two partitions, and every event that both have would count twice.",
                    )
        self._since = found
        return frozenset(name for pair in found for name in pair)

    def _list_unshared(self, seen: Seen, number: int, others: Collection[str]) -> dict[str, str]:
        """List the known names of the partitions that only one of two copies was ever seen to have."""
        names = [name for name, held in seen.items() if number in held and name not in others]
        called = {self._known_as(number, name): name for name in names}
        return {known: name for known, name in called.items() if known is not None}


def check_ends(partition: str, held: Mapping[int, Partition]) -> None:
    """Raise if finished copies of a partition do not end at the same offset."""
    ends = sorted({one.latest for one in held.values() if one.finished})
    if len(ends) > 1:
        raise difference_error(
            f"partition {partition} ends at {ends[0]} in one copy and at {ends[-1]} in another",
            "Both are declared finished.",
        )


def difference_error(primary: str, detail: str) -> UserError:
    """The error for copies that do not hold the same."""
    return UserError(
        "COPIES_DIFFER",
        primary,
        detail=detail,
        hint="The copies of a replicated log have the same records at the same offsets. Where producers' lines come "
        "interleaved, read gateways' logs with segments_by_producer.",
    )


def behind_error(primary: str, span: Span) -> ExternalError:
    """The error for a copy that lacks the records of a span."""
    return ExternalError(
        "COPY_BEHIND",
        primary,
        where=f"partition {span.partition}, offsets {span.start} to {span.end}",
        detail="No copy that can be read here has the planned records.",
        hint="Another engine, or an earlier start of this one, had it. Bring a copy back that has it.",
    )

"""What can be seen of whether the copies of a log hold the same, without reading them.

Receives what the copies list; raises `UserError` COPIES_DIFFER where they cannot hold the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.errors import UserError
from penstock.logs.contract import Partition

#: how long two partitions may be called the same and not be, in seconds: the file may be rotated in one copy already
_ROTATING_SECONDS = 5.0

#: by common name, which copies have a partition
Seen = Mapping[str, Mapping[int, Partition]]


class Namesakes:
    """Partitions of different copies that people call the same, though they are not: the events of both would count.

    `called(copy, name)` is what people call a partition.
    """

    def __init__(self, called: Callable[[int, str], str | None]) -> None:
        self._called = called
        self._since: dict[tuple[str, str], float] = {}

    def among(
        self, seen: Seen, ever: Sequence[Collection[str]], now: float, *, rotates: bool
    ) -> frozenset[str]:
        """The partitions not to begin with for now; raises when it is sure. `ever`: what each copy was seen to have;
        `rotates`: whether a file may go on under another name."""
        copies = sorted({number for held in seen.values() for number in held})
        found: dict[tuple[str, str], float] = {}
        for one, other in itertools.combinations(copies, 2):
            ours, theirs = self._alone(seen, one, ever[other]), self._alone(seen, other, ever[one])
            for called in sorted(ours.keys() & theirs.keys()):
                pair = (ours[called], theirs[called])
                found[pair] = self._since.get(pair, now)
                if not rotates or now - found[pair] >= _ROTATING_SECONDS:
                    raise differ(
                        f"{called} does not begin with the same line in two copies",
                        "They would be read as two partitions, and every event that both have would count twice.",
                    )
        self._since = found
        return frozenset(name for pair in found for name in pair)

    def _alone(self, seen: Seen, number: int, others: Collection[str]) -> dict[str, str]:
        """What people call the partitions that only one of two copies was ever seen to have."""
        names = [name for name, held in seen.items() if number in held and name not in others]
        called = {self._called(number, name): name for name in names}
        return {people: name for people, name in called.items() if people is not None}


def check_ends(partition: str, held: Mapping[int, Partition]) -> None:
    """Raise if finished copies of a partition do not end at the same offset."""
    ends = sorted({one.latest for one in held.values() if one.finished})
    if len(ends) > 1:
        raise differ(
            f"partition {partition} ends at {ends[0]} in one copy and at {ends[-1]} in another",
            "Both are said to be finished.",
        )


def differ(primary: str, detail: str) -> UserError:
    """The error for copies that do not hold the same."""
    return UserError(
        "COPIES_DIFFER",
        primary,
        detail=detail,
        hint="The copies of a replicated log have the same records at the same offsets. Where producers' lines come "
        "interleaved, read gateways' logs with segments_by_producer.",
    )

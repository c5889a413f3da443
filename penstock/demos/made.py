"""Made-up logs of the demos: an app says how one line is drawn, the rest is here.

Receives a function from draws, an offset and an instant to a line; hands a log that can be read again anywhere.
A line depends on the seed, the partition, the offset and the instant alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from penstock.logs import ORIGIN, Ints, MadeLog, Profile, Rate, draws

_MASK, _STEP = (1 << 64) - 1, 0x9E3779B97F4A7C15


class Draws:
    """Draws for one line, one after the other: splitmix64 from a seed of its own."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        """A whole number from 0 to bound - 1."""
        self._state = (self._state + _STEP) & _MASK
        word = ((self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((word ^ (word >> 31)) >> 11) * bound >> 53

    def low(self, bound: int) -> int:
        """The same, small numbers more often: popular ones have small numbers."""
        return self.below(self.below(self.below(bound) + 1) + 1)


Line = Callable[[Draws, int, int], str]


@dataclass(frozen=True)
class MadeLines:
    """Lines of a function that is given draws, the line's number in the whole log, and microseconds since 1970."""

    kind: ClassVar[str] = "lines"
    file_name: ClassVar[str] = "lines"
    line_bytes: ClassVar[int] = 100

    line: Line
    seed: int
    partitions: int

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        """The lines of the offsets from `first`, one for each instant."""
        seeds = draws(self.seed, partition, first, len(instants)).tolist()
        made = (
            self.line(Draws(seed), (first + at) * self.partitions + partition, micros)
            for at, (seed, micros) in enumerate(zip(seeds, instants.tolist(), strict=True))
        )
        return "".join(f"{line}\n" for line in made).encode()


def made_log(
    line: Line,
    *,
    rate: float,
    profile: Profile = "constant",
    total: int | None = None,
    live: bool = True,
    partitions: int = 2,
    seed: int = 1,
    start_time: datetime = ORIGIN,
) -> MadeLog:
    """A log of such lines, `rate` of them a second; one that is not live is all there at once."""
    return MadeLog(
        MadeLines(line, seed, partitions),
        Rate(rate, profile),
        partitions=partitions,
        total=total,
        live=live,
        start_time=start_time,
        clock=time.time,
    )


def iso(micros: int, *, seconds: bool = False) -> str:
    """An instant as text; as whole `seconds` without an offset, as the challenges write it."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return at.strftime("%Y-%m-%d %H:%M:%S") if seconds else at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

"""Generate the logs of the demos from a function that draws one line.

Guarantees: a line depends on the seed, the partition, the offset and the instant alone, so every process that reads the
log gets the same bytes.
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
    """The random draws of one line: splitmix64 from a seed of its own."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        """An integer from 0 to bound - 1."""
        self._state = (self._state + _STEP) & _MASK
        word = ((self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((word ^ (word >> 31)) >> 11) * bound >> 53

    def low(self, bound: int) -> int:
        """An integer from 0 to bound - 1, small ones more often."""
        return self.below(self.below(self.below(bound) + 1) + 1)


Line = Callable[[Draws, int, int], str]


@dataclass(frozen=True)
class GeneratedLines:
    """Lines of a function of draws, the line's number in the whole log, and microseconds since 1970."""

    kind: ClassVar[str] = "lines"
    file_name: ClassVar[str] = "lines"
    line_bytes: ClassVar[int] = 100

    line: Line
    seed: int
    partitions: int

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        """The lines of the offsets from `first`, one for each instant."""
        seeds = draws(self.seed, partition, first, len(instants)).tolist()
        lines = (
            self.line(Draws(seed), (first + at) * self.partitions + partition, micros)
            for at, (seed, micros) in enumerate(zip(seeds, instants.tolist(), strict=True))
        )
        return "".join(f"{line}\n" for line in lines).encode()


def generate_log(
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
    """A log of generated lines, `rate` of them a second. If it is not live, all lines are there at once."""
    return MadeLog(
        GeneratedLines(line, seed, partitions),
        Rate(rate, profile),
        partitions=partitions,
        total=total,
        live=live,
        start_time=start_time,
        clock=time.time,
    )


def format_time(micros: int, *, seconds: bool = False) -> str:
    """An instant as text; with `seconds` in whole seconds and without a time zone, as the challenges have it."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return at.strftime("%Y-%m-%d %H:%M:%S") if seconds else at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

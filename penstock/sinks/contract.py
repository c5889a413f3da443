"""The contract of sinks: a sink takes the rows of (job, epoch) whole and once, however often they are delivered.

A sink may remember the newest epoch that it has and the digest of that epoch's record (`newest_epoch`). Then a state
directory that was restored from a copy writes nothing over what the sink got meanwhile.

Guarantees: `write` is atomic (a reader sees all rows of an epoch or none) and idempotent (an epoch that the sink has
is not written again). Epochs of one job come in ascending order. A sink that knows generations refuses the rows of a
lower generation than it has seen, also if they were sent before.
Does not guarantee: anything between two jobs.
On failure: raises; the epoch is delivered again after the restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class SinkEpoch:
    """An epoch that a sink has."""

    epoch: int
    #: the digest of its record; empty where a former version wrote it
    digest: str = ""
    #: the highest generation that the sink knows
    generation: int = 0
    #: what a person does to have a state write again from an earlier epoch; empty: give it another label
    hint: str = ""


class Sink(ABC):
    """Where the rows of a job go. The constructor has no effects outside; `open` does the first work."""

    #: the digest of the record of the epoch that is written next; empty if it is not known
    _digest = ""

    @abstractmethod
    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Prepare for a job; removes what a crashed writer left incomplete."""

    def check(self, schema: dict[str, pl.DataType]) -> None:  # noqa: B027 - most sinks take any columns
        """Raise a `UserError` if rows of these columns could not be written, now that the job is altered.

        Called while the sink is open, from any thread. Changes nothing.
        """

    @abstractmethod
    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Write the rows of an epoch. False when the sink has that epoch already.

        Once the job was altered, they may have other columns than those given to `open`; an earlier epoch may still be
        repeated.
        """

    def newest_epoch(self) -> SinkEpoch | None:
        """The newest epoch that the sink has of the job for which it is open; None if it has none, or remembers none.
        Called before `take_over`; changes nothing."""
        return None

    def identify(self, digest: str) -> None:
        """Note the digest of the record of the epoch that is written next. A sink that has an epoch of that number
        with another digest raises STATE_RESTORED."""
        self._digest = digest

    def take_over(self, generation: int) -> None:  # noqa: B027 - not every sink can distinguish writers
        """Accept rows of this generation and refuse those of lower ones; raises FENCED if a higher one has taken over.

        Called after `open` and before each write, always with the engine's own generation.
        """

    def close(self) -> None:  # noqa: B027 - most sinks hold nothing open
        """Release what `open` acquired."""

    @abstractmethod
    def describe(self) -> str:
        """One line for people: where the rows are."""

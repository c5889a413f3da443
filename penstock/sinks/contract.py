"""What a sink is: a place that takes the rows of (job, epoch) once, whole, however often they are offered.

Receives a job's rows of one epoch from the commit step; hands them to files, tables, people.

Guarantees: `write` is atomic (a reader sees all rows of an epoch or none) and idempotent (an epoch
that the sink already holds is not written again). Epochs of one job come in ascending order. A sink that
knows generations refuses the rows of a lower one than it has met, also when they were on their way already.
Does not guarantee: anything between two jobs.
On failure: raises; the epoch is offered again after the restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import polars as pl


class Sink(ABC):
    """Where a job's rows go. Made by the user without touching anything; `open` does the first work."""

    @abstractmethod
    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Make ready for a job; removes what a crashed writer left half done."""

    def check(self, schema: dict[str, pl.DataType]) -> None:  # noqa: B027 - most sinks take any columns
        """Raise a `UserError` if rows of these columns could not be written, now that the job is altered.

        Called while it is open, from any thread, and changes nothing.
        """

    @abstractmethod
    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Take the rows of an epoch. False when the sink held that epoch already.

        Once the job was altered they may have other columns than `open` said; one of before may still be repeated.
        """

    def take_over(self, generation: int) -> None:  # noqa: B027 - a sink that cannot tell writers apart
        """Take rows from this generation on, and nothing any more from lower ones; raises FENCED from a lower one.

        Called after `open` and before each write, always with the engine's own generation.
        """

    def close(self) -> None:  # noqa: B027 - most sinks hold nothing open
        """Let go of what `open` took."""

    @abstractmethod
    def describe(self) -> str:
        """One line for people: where the rows lie."""

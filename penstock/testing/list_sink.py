"""A sink that stores its rows in memory, for tests of queries.

Guarantees: what every sink guarantees, within one process; opening it again loses nothing.
Does not guarantee: anything after the process has ended.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from penstock.sinks.contract import Sink


class ListSink(Sink):
    """Stores `(epoch, rows)` in the order in which epochs were written."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, pl.DataFrame]] = []
        self._written: set[tuple[str, int]] = set()
        self._job = ""

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        self._job = job

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Store the rows of an epoch. An epoch without rows stores nothing."""
        if (self._job, epoch) in self._written:
            return False
        if not rows.is_empty():
            self.epochs.append((epoch, rows))
            self._written.add((self._job, epoch))
        return True

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far, as dicts, in the order they were written."""
        return [row for _, rows in self.epochs for row in rows.to_dicts()]

    def describe(self) -> str:
        return "a list in memory"

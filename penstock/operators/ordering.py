"""Put events in strict order for readers that do not order themselves.

An event waits until no earlier one can come, and then leaves unchanged.
State: `waiting`, the events after the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import ORDER, TIME, Progress, SliceState
from penstock.operators.strict import StrictOperator, take_due, total_order
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Ordering(StrictOperator):
    """Puts the events of each key in strict order and emits these columns."""

    kind: ClassVar[str] = "event-time-order"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        rows = take_due(frame, state.journal("waiting", time=TIME), progress)
        if rows is None:
            return None
        order = total_order(rows)
        return (rows if order is None else rows[order]).select(*ORDER, HASH, *self.columns)

    def describe(self) -> str:
        return f"strict order per {', '.join(self.keys) or 'everything'}"

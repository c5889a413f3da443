"""Rebalance: send rows round-robin, so that the steps after it execute on all slices evenly.

Rows keep the order that they have without it. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import INPUT, ORDER, Operator, Progress, SliceState
from penstock.operators.routes import RoundRobin, Route
from penstock.operators.strict import add_position, fold_input_into_sequence
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Rebalance(Operator):
    """Sends rows round-robin and does nothing else."""

    kind: ClassVar[str] = "round-robin"
    state_version: ClassVar[int] = 1

    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        return "none"

    @property
    def needs_position(self) -> bool:
        return True

    def route(self, port: int = 0) -> Route:
        return RoundRobin()

    def needs(self, port: int = 0) -> set[str]:
        return set(self.columns)

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return add_position(frame).select(*ORDER, *self.columns)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        if frame is None:
            return None
        return (fold_input_into_sequence(frame) if INPUT in frame.columns else frame).drop(HASH)

    def describe(self) -> str:
        return "rebalance: rows sent round-robin"

"""Relay: no work of its own; rows are dealt out evenly, so that the steps after it run on all slices alike.

Receives rows as they come; hands them on. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.contract import Operator, Progress, SliceState
from penstock.operators.routing import RoundRobin, Route
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class Relay(Operator):
    """Rows dealt out round-robin."""

    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        return "none"

    def route(self, port: int = 0) -> Route:
        return RoundRobin()

    def needs(self, port: int = 0) -> set[str]:
        return set(self.columns)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        return None if frame is None else frame.drop(HASH)

    def describe(self) -> str:
        return "rebalance: rows dealt out evenly"

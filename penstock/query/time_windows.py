"""Windows of event time, and totals since the beginning: what they are called and which operator computes them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.functions import AggregateFunction
from penstock.query.windowed import Window

INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class InTime(Window):
    """Windows of `size` microseconds, one after the other."""

    size: int

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"window_start": INSTANT, "window_end": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return Aggregation(keys, self.size, aggregates)


@dataclass(frozen=True)
class Running(Window):
    """Everything since the beginning, told every so many microseconds."""

    every: int

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"as_of": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return Aggregation(keys, self.every, aggregates, running=True)

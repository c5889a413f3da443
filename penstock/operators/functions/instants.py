"""When the first and the last of some events happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import TIME
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.extremes import Extreme


@dataclass(frozen=True)
class _OfTime(AggregateFunction):
    """A function of the events' times."""

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return pl.Datetime("us", "UTC")

    def result(self) -> pl.Expr:
        time = pl.col(self.part("t")).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        return time.alias(self.alias)


@dataclass(frozen=True)
class Earliest(_OfTime):
    """The event time of the earliest event."""

    kind: ClassVar[str] = "earliest"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("t"), pl.col(TIME), greatest=False),)


@dataclass(frozen=True)
class Latest(_OfTime):
    """The event time of the latest event."""

    kind: ClassVar[str] = "latest"
    state_version: ClassVar[int] = 1

    def pieces(self) -> tuple[Piece, ...]:
        return (Extreme(self.part("t"), pl.col(TIME), greatest=True),)


def earliest(alias: str = "earliest") -> AggregateFunction:
    """The event time of the earliest event."""
    return Earliest(alias, None)


def latest(alias: str = "latest") -> AggregateFunction:
    """The event time of the latest event."""
    return Latest(alias, None)

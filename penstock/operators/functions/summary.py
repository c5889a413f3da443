"""What whole numbers come to in every simple respect: how many there are, their sum, mean, least and greatest.

For jobs that ask for some of these: all can be worked on together, and each takes what it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.count_sum import Avg, Count, CountValues, Sum
from penstock.operators.functions.extremes import Extreme, Max, Min
from penstock.operators.functions.sums import LIMB

#: the respects, and the functions that ask for them
FIELDS: dict[type[AggregateFunction], str] = {
    CountValues: "n",
    Sum: "sum",
    Avg: "mean",
    Min: "least",
    Max: "greatest",
}


@dataclass(frozen=True)
class Summary(AggregateFunction):
    """All of it, of a column of Int64, as a struct."""

    kind: ClassVar[str] = "summary"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        whole = pl.Int64()
        return pl.Struct({"n": whole, "sum": whole, "mean": pl.Float64(), "least": whole, "greatest": whole})

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column)
        ends = (Extreme(self.part(end), value, greatest=end == "hi") for end in ("lo", "hi"))
        return (*self._mean.pieces(), *ends)

    def result(self) -> pl.Expr:
        total = Sum(self.alias, self.column, self.of)
        return pl.struct(
            pl.col(self.part("n")).alias("n"),
            total.result().alias("sum"),
            self._mean.result().alias("mean"),
            pl.col(self.part("lo")).alias("least"),
            pl.col(self.part("hi")).alias("greatest"),
        ).alias(self.alias)

    @property
    def _mean(self) -> Avg:
        return Avg(self.alias, self.column, self.of)


def is_in_summary(function: AggregateFunction) -> bool:
    """Whether a summary of its column answers a function."""
    whole = function.of is not None and function.of.is_integer() and function.of not in (pl.UInt64, pl.Int128)
    return type(function) in FIELDS and whole


def read_summary(function: AggregateFunction, summary: str) -> pl.Expr:
    """What a function asks for, of the summary in a column of this name."""
    found = pl.col(summary).struct.field(FIELDS[type(function)])
    answer = function.result_type(function.column_type)
    return found.cast(answer).alias(function.alias)


#: the partial answer of how many rows there are, under the name that summaries stand beside
ROWS = "rows"
COUNT_PART = Count(ROWS, None).part("n")


def partial_columns(
    alias: str,
    n: npt.NDArray[np.int64],
    total: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    greatest: npt.NDArray[np.int64],
) -> list[pl.Series]:
    """The partial answers of a summary, of totals that fit into 64 bits."""
    summary = summarize_column(alias, "")
    none = pl.Series(n == 0)
    limbs = {"s": total & (LIMB - 1), "h": total // LIMB, "n": n}
    made = [pl.Series(summary.part(name), limb) for name, limb in limbs.items()]
    ends = {"lo": least, "hi": greatest}
    return made + [pl.Series(summary.part(name), end).set(none, None) for name, end in ends.items()]


def summarize_column(alias: str, column: str) -> Summary:
    """The summary of a column."""
    return replace(Summary(alias, column), of=pl.Int64())

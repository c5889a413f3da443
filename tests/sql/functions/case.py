"""A case of the comparison with Spark."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Case:
    """Rows, and the calls to evaluate on each."""

    name: str
    frame: pl.DataFrame
    calls: tuple[str, ...]


def lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())

"""What a look-up has found, run by run, in the order it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl


@dataclass
class Found:
    """Rows found so far, and whose they are; `gone` is the column that says of a row that its key is not there."""

    gone: str | None
    at: list[np.ndarray] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)

    def add(self, at: np.ndarray, rows: pl.DataFrame, values: Sequence[str]) -> None:
        """These rows are the answers to the questions of these numbers."""
        if self.gone is not None:
            there = ~rows[self.gone]
            at, rows = at[there.to_numpy()], rows.filter(there)
        self.at.append(at)
        self.rows.append(rows.select(values))

    def aligned(self, height: int) -> pl.DataFrame | None:
        """An answer to each of so many questions, nulls where there is none; None when nothing was found."""
        if not self.rows:
            return None
        rows = pl.concat(self.rows, rechunk=True)
        index = np.full(height, -1, dtype=np.int64)
        index[np.concatenate(self.at)] = np.arange(rows.height)
        where = pl.Series(index).replace(-1, None)
        return rows.select(pl.all().gather(where))

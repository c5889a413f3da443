"""Journals to look at: their rows as the last epoch left them, and nothing that is done to them is kept."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.state.collection import Combine, Journal, Scope
from penstock.state.run import RunEntry


class Unmoved(Journal):
    """A journal of which only the `wanted` rows are there, and that stays as it is."""

    def __init__(
        self, name: str, entries: Sequence[RunEntry], scope: Scope, *, time: str, wanted: pl.Expr
    ) -> None:
        super().__init__(name, entries, scope, time=time)
        self._wanted = wanted

    def rows(self, floor: int, below: int) -> pl.DataFrame | None:
        found = super().rows(floor, below)
        return None if found is None else found.filter(self._wanted)

    def insert(self, rows: pl.DataFrame) -> None:
        pass

    def empty(self, below: int) -> None:
        pass

    def compact(self, floor: int, combine: Combine | None = None, *, parts: int = 1) -> None:
        pass

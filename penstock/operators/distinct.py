"""Distinct: of events with equal keys, the first one, and again one when enough time has passed since.

Receives events in strict order; hands those kept, as they came.
State: `kept`, per key the time of the event that was kept last; forgotten once it can hold nothing back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.strict import Ordered, StrictOperator, position_columns, take_ordered
from penstock.operators.timeline import Ints, Timeline, mark_chain
from penstock.state.buckets import HASH
from penstock.state.collection import Table

_KEPT = "_kept"


@dataclass(frozen=True)
class Distinct(StrictOperator):
    """Keeps an event if none of equal key was kept less than `within` microseconds before it (None: ever)."""

    kind: ClassVar[str] = "deduplicate"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    within: int | None
    #: what is handed on of an event
    columns: tuple[str, ...]

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        memory = state.table("kept", keys=self.keys, time=_KEPT)
        ordered = take_ordered(frame, self.keys, state, progress)
        out = None if ordered is None else self._kept_of(ordered, memory, progress)
        if self.within is None:
            memory.compact()
        else:
            memory.expire(progress.after - self.within + 1)
            memory.compact(progress.after - self.within + 1)
        return out

    def _kept_of(self, ordered: Ordered, memory: Table, progress: Progress) -> pl.DataFrame | None:
        rows, heads = ordered.rows, np.flatnonzero(ordered.first)
        before = memory.lookup(rows.select(HASH, *self.keys)[heads], [_KEPT])[_KEPT].cast(pl.Int64)
        kept = self._first_ones(heads, before) if self.within is None else self._spaced(ordered, before)
        if not len(kept):
            return None
        number = ordered.number[kept]
        last = kept[np.append(number[1:] != number[:-1], True)]
        remembered = rows[last].select(HASH, *self.keys, pl.col(TIME).alias(_KEPT))
        if self.within is not None:
            remembered = remembered.filter(pl.col(_KEPT) > progress.after - self.within)
        memory.insert(remembered)
        return rows[kept].select(*position_columns(rows), *self.columns)

    def _first_ones(self, heads: Ints, before: pl.Series) -> Ints:
        new: npt.NDArray[np.bool_] = before.is_null().to_numpy()
        return heads[new]

    def _spaced(self, ordered: Ordered, before: pl.Series) -> Ints:
        """The rows kept: of each key the first that is free to be, and from each the first after its time."""
        assert self.within is not None
        line = Timeline(ordered, ordered.rows[TIME].to_numpy())
        keys, rows = np.arange(len(line.ends)), len(line.times)
        remembered = before.is_not_null().to_numpy()
        first = np.flatnonzero(ordered.first)
        free = before.fill_null(0).to_numpy() + self.within
        first[remembered] = line.first_from(keys[remembered], free[remembered])
        following = line.first_from(line.number, line.times + self.within)
        following[following == line.ends[line.number]] = rows
        return np.flatnonzero(mark_chain(first[first < line.ends], following))

    def describe(self) -> str:
        how = "ever" if self.within is None else f"in {spelled(self.within)}"
        return f"distinct {', '.join(self.keys)}, once {how}"

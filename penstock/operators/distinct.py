"""Deduplicate: of events with equal keys, emit the first, and the next one once enough time has passed.

The operator reads events in strict order and emits them unchanged.
State: `kept`, for each key the time of its last emitted event; dropped once it can suppress nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.strict import Ordered, StrictOperator, position_columns, take_ordered
from penstock.operators.timeline import Ints, Timeline, mark_chain
from penstock.state.buckets import HASH
from penstock.state.table import Table

_EMITTED_AT = "_kept"


@dataclass(frozen=True)
class Distinct(StrictOperator):
    """Emits an event if none of equal key was emitted less than `within` microseconds before it (None: ever)."""

    kind: ClassVar[str] = "deduplicate"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    within: int | None
    #: the columns of the output
    columns: tuple[str, ...]

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        emitted = state.table("kept", keys=self.keys, time=_EMITTED_AT)
        ordered = take_ordered(frame, self.keys, state, progress)
        rows = None if ordered is None else self._deduplicate(ordered, emitted, progress)
        if self.within is None:
            emitted.compact()
        else:
            emitted.expire(progress.after - self.within + 1)
            emitted.compact(progress.after - self.within + 1)
        return rows

    def _deduplicate(self, ordered: Ordered, emitted: Table, progress: Progress) -> pl.DataFrame | None:
        rows, heads = ordered.rows, np.flatnonzero(ordered.first)
        before = emitted.lookup(rows.select(HASH, *self.keys)[heads], [_EMITTED_AT])
        last_times = before[_EMITTED_AT].cast(pl.Int64)
        if self.within is None:
            chosen: Ints = heads[last_times.is_null().to_numpy()]
        else:
            chosen = self._spaced_rows(ordered, last_times, self.within)
        if not len(chosen):
            return None
        number = ordered.number[chosen]
        last = chosen[np.append(number[1:] != number[:-1], True)]
        latest = rows[last].select(HASH, *self.keys, pl.col(TIME).alias(_EMITTED_AT))
        if self.within is not None:
            latest = latest.filter(pl.col(_EMITTED_AT) > progress.after - self.within)
        emitted.insert(latest)
        return rows[chosen].select(*position_columns(rows), *self.columns)

    def _spaced_rows(self, ordered: Ordered, last_times: pl.Series, within: int) -> Ints:
        """The rows to emit: of each key the first that may be, and from each the next that is `within` after it."""
        line = Timeline(ordered, ordered.rows[TIME].to_numpy())
        keys, rows = np.arange(len(line.ends)), len(line.times)
        known = last_times.is_not_null().to_numpy()
        first = np.flatnonzero(ordered.first)
        free_at = last_times.fill_null(0).to_numpy() + within
        first[known] = line.first_from(keys[known], free_at[known])
        following = line.first_from(line.number, line.times + within)
        following[following == line.ends[line.number]] = rows
        return np.flatnonzero(mark_chain(first[first < line.ends], following))

    def describe(self) -> str:
        how = "ever" if self.within is None else f"in {spelled(self.within)}"
        return f"distinct {', '.join(self.keys)}, once {how}"

"""Emit, for each event, the last n values of its key up to and including it, as lists.

The operator reads events in strict order and emits one row per event, from the n-th event of the key on.
State: `last`, for each key its last n-1 values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import Progress, SliceState
from penstock.operators.strict import Ordered, StrictOperator, position_columns, take_ordered
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class LastN(StrictOperator):
    """`values` of the last `n` events per key. `partial` also emits rows for the first n-1 events of a key."""

    kind: ClassVar[str] = "last-n"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    n: int
    values: tuple[str, ...]
    partial: bool = False

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        return {key: incoming[key] for key in self.keys} | {v: pl.List(incoming[v]) for v in self.values}

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.values}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        history = state.table("last", keys=self.keys)
        history.compact()
        ordered = take_ordered(frame, self.keys, state, progress)
        if ordered is None:
            return None
        rows = ordered.rows
        heads = rows.select(HASH, *self.keys).filter(pl.Series(ordered.first))
        before = history.lookup(
            heads, ["_seen", *(_slot(v, b) for v in self.values for b in range(1, self.n))]
        )
        seen = before["_seen"].cast(pl.Int64).fill_null(0).to_numpy()[ordered.number] + ordered.place + 1
        pools = {v: self._pool(v, rows, before) for v in self.values}
        reach = self._reach(ordered)
        last = ordered.last
        history.insert(
            rows.select(HASH, *self.keys)
            .filter(pl.Series(last))
            .with_columns(
                pl.Series("_seen", seen[last]),
                *(
                    pools[v].gather(reach[last, -b]).alias(_slot(v, b))
                    for v in self.values
                    for b in range(1, self.n)
                ),
            )
        )
        out = rows.select(*position_columns(rows), *self.keys)
        if not self.partial:
            whole = seen >= self.n
            out, reach = out.filter(pl.Series(whole)), reach[whole]
        out = out.with_columns(_lists(pools[v].gather(reach.ravel()), self.n).alias(v) for v in self.values)
        if self.partial:
            # a slot before the key's first event holds no value, not a null
            have = pl.lit(pl.Series(np.minimum(seen, self.n)))
            out = out.with_columns(pl.col(v).list.tail(have) for v in self.values)
        return out

    def _pool(self, value: str, rows: pl.DataFrame, before: pl.DataFrame) -> pl.Series:
        """All values that a row may need: those of this epoch, then the stored ones, slot after slot."""
        values = rows[value]
        slots = (before[_slot(value, b)].cast(values.dtype) for b in range(1, self.n))
        return pl.concat([values, *slots], rechunk=True)

    def _reach(self, ordered: Ordered) -> npt.NDArray[np.int64]:
        """For each row the positions of its n values in the pool, oldest first."""
        place, number = ordered.place, ordered.number
        keys = int(number[-1]) + 1
        columns = []
        for back in range(self.n - 1, -1, -1):
            row = np.arange(len(place)) - back
            # rows this near their key's first event of the epoch need stored values
            slot = back - place - 1
            columns.append(np.where(slot < 0, row, len(place) + slot * keys + number))
        return np.stack(columns, axis=1)

    def describe(self) -> str:
        return f"last {self.n} of {', '.join(self.values)} per {', '.join(self.keys)}"


def _lists(values: pl.Series, n: int) -> pl.Series:
    """Each n consecutive values as a list."""
    if not values.dtype.is_nested():
        return values.reshape((-1, n)).arr.to_list()
    number = pl.Series("_number", np.arange(len(values)) // n).set_sorted()
    return values.to_frame().group_by(number, maintain_order=True).agg(pl.all()).to_series(1)


def _slot(value: str, back: int) -> str:
    return f"_{value}.{back}"

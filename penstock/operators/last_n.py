"""The last n values of every key: for each event, the key's latest n values up to and including it.

Receives events in strict order; hands one row an event (from the n-th of its key on), with lists.
State: per key its last n-1 values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.contract import ORDER, PARTITION, SEQUENCE, Operator, Progress, SliceState
from penstock.operators.strict import Ordered, in_order
from penstock.state.buckets import HASH


@dataclass(frozen=True)
class LastN(Operator):
    """`values` of the last `n` events per key. `partial` also gives rows for a key's first n-1 events."""

    keys: tuple[str, ...]
    n: int
    values: tuple[str, ...]
    partial: bool = False

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        return {key: incoming[key] for key in self.keys} | {v: pl.List(incoming[v]) for v in self.values}

    def needs(self) -> set[str]:
        return {*self.keys, *self.values}

    def prepare(self, frame: pl.DataFrame) -> pl.DataFrame:
        if SEQUENCE not in frame.columns:
            # the rows of an aggregate: at one instant they come in the order of their own keys' hashes
            place = pl.col(HASH).reinterpret(signed=True).alias(SEQUENCE)
            frame = frame.with_columns(pl.lit(0, pl.UInt32).alias(PARTITION), place)
        return frame.select(*ORDER, *dict.fromkeys((*self.keys, *self.values)))

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        history = state.table("last", keys=self.keys)
        history.compact()
        ordered = in_order(frame, self.keys, state, progress)
        if ordered is None:
            return None
        rows, number = ordered.rows, ordered.number
        heads = rows.select(HASH, *self.keys).filter(pl.Series(ordered.first))
        before = history.lookup(
            heads, ["_seen", *(_slot(v, b) for v in self.values for b in range(1, self.n))]
        )
        seen = before["_seen"].cast(pl.Int64).fill_null(0).to_numpy()[number] + ordered.place + 1
        slots = {v: self._slots(v, ordered, before) for v in self.values}
        kept = [slots[v][back].alias(_slot(v, back + 1)) for v in self.values for back in range(self.n - 1)]
        latest = rows.select(HASH, *self.keys).with_columns(pl.Series("_seen", seen), *kept)
        history.insert(latest.filter(pl.Series(ordered.last)))
        out = rows.select(*ORDER, *self.keys)
        if not self.partial:
            whole = pl.Series(seen >= self.n)
            out = out.filter(whole)
            return out.with_columns(
                pl.select(pl.concat_list(s.filter(whole) for s in reversed(slots[v]))).to_series().alias(v)
                for v in self.values
            )
        # a slot before the key's first event is no value, not a null one
        have = pl.lit(pl.Series(np.minimum(seen, self.n)))
        return out.with_columns(
            pl.select(pl.concat_list(reversed(slots[v]))).to_series().alias(v) for v in self.values
        ).with_columns(pl.col(v).list.tail(have) for v in self.values)

    def _slots(self, value: str, ordered: Ordered, before: pl.DataFrame) -> list[pl.Series]:
        """The value of each row, of the one before it in its key, and so on: n columns."""
        values, place, number = ordered.rows[value], ordered.place, ordered.number
        slots = [values.alias("0")]
        for back in range(1, self.n):
            here = values.shift(back)
            for behind in range(back):
                # rows this near their key's first event of the epoch reach into the remembered ones
                reaching = np.flatnonzero(place == behind)
                if len(reaching):
                    old = before[_slot(value, back - behind)].cast(values.dtype).gather(number[reaching])
                    here = here.scatter(reaching, old)
            slots.append(here.alias(str(back)))
        return slots

    def describe(self) -> str:
        return f"last {self.n} of {', '.join(self.values)} per {', '.join(self.keys)}"


def _slot(value: str, back: int) -> str:
    return f"_{value}.{back}"

"""Join each row with the last n rows of its key that arrived on the other side before it.

Both sides are read in strict order (event time, partition, offset; where all is equal, left before right). A row is
emitted for every pair that satisfies the condition, at the time of the later row.
State: `left` and `right`, tables of the last n rows of every key, as lists. A join of a stream with itself has one port
and one table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import (
    INPUT,
    ORDER,
    TIME,
    Inputs,
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints, expand_in_chunks
from penstock.operators.join_columns import JoinCondition, KeyedJoin, describe_keys, gather_columns
from penstock.operators.strict import Ordered, add_position, group_by_key, take_due, total_order
from penstock.state.buckets import HASH
from penstock.state.table import Table

_NAMES = ("left", "right")
#: the side of a row, and its number there
_PORT, _ROW = "_port", "_row"


@dataclass(frozen=True)
class CountJoin(KeyedJoin):
    """A join with the last `n` rows of the other side.

    `ports` is 1 for a join of a stream with itself by the same keys: each row arrives left, then right. `distinct`:
    such a join pairs each row, as the right one, with the n rows before it.
    """

    kind: ClassVar[str] = "count-window-join"
    state_version: ClassVar[int] = 1

    n: int
    condition: JoinCondition | None = None
    distinct: bool = False
    ports: int = 2

    @property
    def order(self) -> str:
        return "strict"

    @property
    def partitioning(self) -> tuple[str, ...]:
        return self.keys

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        frame = frame.drop_nulls(list(self.keys_of(port)))
        return add_position(frame).select(*ORDER, *sorted(self.needs(port)))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        sides = [
            take_due(inputs[port], state.journal(f"waiting_{_NAMES[port]}", time=TIME), progress)
            for port in range(self.ports)
        ]
        tables = [state.table(_NAMES[port], keys=self.keys_of(port)) for port in range(self.ports)]
        for table in tables:
            table.compact()
        merged = self._merge_sides(sides)
        if merged is None:
            return {}
        rows = [self._side_rows(port, sides[port], merged, tables[port]) for port in range(self.ports)]
        pairings = (
            self._pair_with_itself(rows[0], merged) if self.ports == 1 else self._pair_sides(rows, merged)
        )
        results = [result for pairing in pairings for result in self._join_pairs(pairing)]
        return {"": pl.concat(results) if results else None}

    def _merge_sides(self, sides: list[pl.DataFrame | None]) -> Ordered | None:
        """The rows of both sides in one order, as rows of key, side and number."""
        parts = []
        has_inputs = any(INPUT in rows.columns for rows in sides if rows is not None)
        for port, rows in enumerate(sides):
            if rows is not None:
                inputs = [INPUT if INPUT in rows.columns else pl.lit(0, pl.UInt8).alias(INPUT)]
                keys = [
                    pl.col(key).alias(name) for name, key in zip(self.keys, self.keys_of(port), strict=True)
                ]
                row = pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW)
                side = pl.lit(port, pl.UInt8).alias(_PORT)
                parts.append(rows.select(HASH, *ORDER, *(inputs if has_inputs else []), *keys, side, row))
        if not parts:
            return None
        merged = pl.concat(parts)
        return group_by_key(merged, self.keys, total_order(merged))

    def _side_rows(self, port: int, rows: pl.DataFrame | None, merged: Ordered, table: Table) -> _SideRows:
        """The rows of a side, of all keys of this epoch, stored ones first; stores the last n of each key."""
        of_side = merged.rows[_PORT].to_numpy() == port
        number = merged.number[of_side]
        keys = dict(zip(self.keys, self.keys_of(port), strict=True))
        heads = merged.rows.select(HASH, *self.keys).filter(pl.Series(merged.first)).rename(keys)
        names = [TIME, *sorted(self.needs(port))]
        before = table.lookup(heads, [_list_name(name) for name in names])
        sizes = np.zeros(heads.height, dtype=np.int64)
        parts, numbers = [], []
        if before.height and before.dtypes[0] != pl.Null:
            sizes = before[_list_name(TIME)].list.len().fill_null(0).cast(pl.Int64).to_numpy()
            parts.append(before.filter(pl.Series(sizes > 0)).explode(before.columns).rename(_plain_name))
            numbers.append(np.repeat(np.arange(heads.height), sizes))
        if rows is not None:
            parts.append(rows.select(names)[merged.rows[_ROW].to_numpy()[of_side]])
            numbers.append(number)
        if not parts:
            return _SideRows(None, sizes, sizes, number)
        of_key = np.concatenate(numbers)
        order = np.argsort(of_key, kind="stable")
        all_rows, of_key = pl.concat(parts)[order], of_key[order]
        start = np.searchsorted(of_key, np.arange(heads.height))
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        self._store_last(table, all_rows, of_key, heads, np.unique(number))
        return _SideRows(all_rows, start, sizes, position[len(order) - len(number) :])

    def _store_last(
        self, table: Table, rows: pl.DataFrame, of_key: Ints, heads: pl.DataFrame, changed: Ints
    ) -> None:
        """Put the last n rows of the keys that have new ones in the table."""
        end = np.searchsorted(of_key, of_key, side="right")
        last = (end - np.arange(len(of_key)) <= self.n) & np.isin(of_key, changed)
        lists = (
            rows.filter(pl.Series(last))
            .rename(_list_name)
            .group_by(pl.Series("_number", of_key[last]), maintain_order=True)
            .agg(pl.all())
        )
        if lists.height:
            table.insert(pl.concat([heads[changed], lists.drop("_number")], how="horizontal"))

    # -- pairs -----------------------------------------------------------------------------------

    def _pair_with_itself(self, rows: _SideRows, merged: Ordered) -> list[_Pairing]:
        at, start = rows.new_at, rows.start[merged.number]
        as_right = _Pairing(rows, rows, at, np.maximum(start, at - self.n), at, probe=1)
        if self.distinct:
            return [as_right]
        return [
            replace(as_right, probe=0),
            _Pairing(rows, rows, at, np.maximum(start, at + 1 - self.n), at + 1, probe=1),
        ]

    def _pair_sides(self, sides: list[_SideRows], merged: Ordered) -> list[_Pairing]:
        port, number = merged.rows[_PORT].to_numpy(), merged.number
        pairings = []
        for probe, (mine, theirs) in enumerate(zip(sides, reversed(sides), strict=True)):
            # how many new rows of the other side are before each row, of its key
            others = np.cumsum(port != probe) - (port != probe)
            others -= others[np.flatnonzero(merged.first)][number]
            is_probe = port == probe
            start = theirs.start[number[is_probe]]
            high = start + theirs.stored[number[is_probe]] + others[is_probe]
            low = np.maximum(start, high - self.n)
            pairings.append(_Pairing(sides[0], sides[1], mine.new_at, low, high, probe))
        return pairings

    def _join_pairs(self, pairing: _Pairing) -> Iterator[pl.DataFrame]:
        left, right = pairing.left.rows, pairing.right.rows
        if left is None or right is None:
            return
        for number, build in expand_in_chunks(pairing.low, pairing.high):
            probe = pairing.at[number]
            at_left, at_right = (build, probe) if pairing.probe else (probe, build)
            if self.condition is not None and len(probe):
                holds = self.condition.evaluate(self.columns, left, at_left, right, at_right)
                at_left, at_right = at_left[holds], at_right[holds]
            if len(at_left):
                later, at = (right, at_right) if pairing.probe else (left, at_left)
                rows = self.columns.join_rows(left, at_left, right, at_right)
                yield rows.insert_column(0, *gather_columns(later, [TIME], at))

    def describe(self) -> str:
        itself = " with itself" if self.ports == 1 else ""
        where = f" where {self.condition.text}" if self.condition else ""
        return (
            f"join{itself} on {describe_keys(self.keys, self.right_keys)} over the last {self.n} rows{where}"
        )


@dataclass(frozen=True)
class _SideRows:
    """The rows of a side, key after key, each key's in order: those stored, then this epoch's.

    `start` and `stored` say for each key where its rows start and how many were stored; `new_at` says where the new
    rows are.
    """

    rows: pl.DataFrame | None
    start: Ints
    stored: Ints
    new_at: Ints


@dataclass(frozen=True)
class _Pairing:
    """New rows of the `probe` side, at these positions, and for each its range of rows of the other side."""

    left: _SideRows
    right: _SideRows
    at: Ints
    low: Ints
    high: Ints
    probe: int


def _list_name(name: str) -> str:
    return f"_last.{name}"


def _plain_name(name: str) -> str:
    return name.removeprefix("_last.")

"""Joins over the last n rows: each row meets the last n rows of its key that came on the other side before it.

Receives the rows of both sides in strict order (event time, partition, offset; where all is equal, left before
right); hands a row for every pair whose condition holds. It happens when the later of the two does.
State: `left` and `right`, tables of the last n rows of every key, as lists. A join of a stream with itself has one
port and one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.operators.contract import (
    INPUT,
    ORDER,
    TIME,
    Inputs,
    Operator,
    Progress,
    Results,
    SliceState,
)
from penstock.operators.join_candidates import Ints, expand_in_chunks
from penstock.operators.join_columns import JoinColumns, JoinCondition, describe_keys, gather_columns
from penstock.operators.routing import ByKey, Route
from penstock.operators.strict import Ordered, add_position, group_by_key, take_due, total_order
from penstock.state.buckets import HASH
from penstock.state.table import Table

_NAMES = ("left", "right")
#: which side a row came on, and its number there
_PORT, _ROW = "_port", "_row"


@dataclass(frozen=True)
class CountJoin(Operator):
    """Pairs with the last `n` rows of the other side.

    `ports` is 1 for a join of a stream with itself by the same keys: a row comes left, then right. `distinct`:
    of such a join each row, as the right one, meets the n rows before it.
    """

    kind: ClassVar[str] = "count-window-join"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    columns: JoinColumns
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

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def route(self, port: int = 0) -> Route:
        return ByKey(self._keys(port))

    def needs(self, port: int = 0) -> set[str]:
        left = {*self.keys, *(name for name, _ in self.columns.left)}
        right = {*self.right_keys, *(name for name, _, _ in self.columns.right)}
        return left | right if self.ports == 1 else right if port else left

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        frame = frame.drop_nulls(list(self._keys(port)))
        return add_position(frame).select(*ORDER, *sorted(self.needs(port)))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        sides = [
            take_due(inputs[port], state.journal(f"waiting_{_NAMES[port]}", time=TIME), progress)
            for port in range(self.ports)
        ]
        tables = [state.table(_NAMES[port], keys=self._keys(port)) for port in range(self.ports)]
        for table in tables:
            table.compact()
        turns = self._turns(sides)
        if turns is None:
            return {}
        lines = [self._line(port, sides[port], turns, tables[port]) for port in range(self.ports)]
        asked = self._of_itself(lines[0], turns) if self.ports == 1 else self._of_two(lines, turns)
        made = [rows for pairing in asked for rows in self._pairs(pairing)]
        return {"": pl.concat(made) if made else None}

    def _turns(self, sides: list[pl.DataFrame | None]) -> Ordered | None:
        """The rows of both sides in one order, by what is needed to tell it: key, side, number."""
        parts = []
        several = any(INPUT in rows.columns for rows in sides if rows is not None)
        for port, rows in enumerate(sides):
            if rows is not None:
                inputs = [INPUT if INPUT in rows.columns else pl.lit(0, pl.UInt8).alias(INPUT)]
                keys = [
                    pl.col(theirs).alias(mine)
                    for mine, theirs in zip(self.keys, self._keys(port), strict=True)
                ]
                row = pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW)
                side = pl.lit(port, pl.UInt8).alias(_PORT)
                parts.append(rows.select(HASH, *ORDER, *(inputs if several else []), *keys, side, row))
        if not parts:
            return None
        turns = pl.concat(parts)
        return group_by_key(turns, self.keys, total_order(turns))

    def _line(self, port: int, rows: pl.DataFrame | None, turns: Ordered, table: Table) -> _Line:
        """A side's rows of the keys that have a turn, remembered ones first; what to remember goes to the table."""
        mine = turns.rows[_PORT].to_numpy() == port
        number = turns.number[mine]
        keys = dict(zip(self.keys, self._keys(port), strict=True))
        heads = turns.rows.select(HASH, *self.keys).filter(pl.Series(turns.first)).rename(keys)
        names = [TIME, *sorted(self.needs(port))]
        before = table.lookup(heads, [_listed(name) for name in names])
        sizes = np.zeros(heads.height, dtype=np.int64)
        parts, numbers = [], []
        if before.height and before.dtypes[0] != pl.Null:
            sizes = before[_listed(TIME)].list.len().fill_null(0).cast(pl.Int64).to_numpy()
            parts.append(before.filter(pl.Series(sizes > 0)).explode(before.columns).rename(_plain))
            numbers.append(np.repeat(np.arange(heads.height), sizes))
        if rows is not None:
            parts.append(rows.select(names)[turns.rows[_ROW].to_numpy()[mine]])
            numbers.append(number)
        if not parts:
            return _Line(None, sizes, sizes, number)
        of_key = np.concatenate(numbers)
        order = np.argsort(of_key, kind="stable")
        together, of_key = pl.concat(parts)[order], of_key[order]
        start = np.searchsorted(of_key, np.arange(heads.height))
        stood = np.empty(len(order), dtype=np.int64)
        stood[order] = np.arange(len(order))
        self._remember(table, together, of_key, heads, np.unique(number))
        return _Line(together, start, sizes, stood[len(order) - len(number) :])

    def _remember(
        self, table: Table, rows: pl.DataFrame, of_key: Ints, heads: pl.DataFrame, changed: Ints
    ) -> None:
        """Put the last n rows of the keys that have new ones in the table."""
        end = np.searchsorted(of_key, of_key, side="right")
        kept = (end - np.arange(len(of_key)) <= self.n) & np.isin(of_key, changed)
        lists = (
            rows.filter(pl.Series(kept))
            .rename(_listed)
            .group_by(pl.Series("_number", of_key[kept]), maintain_order=True)
            .agg(pl.all())
        )
        if lists.height:
            table.insert(pl.concat([heads[changed], lists.drop("_number")], how="horizontal"))

    # -- pairs -----------------------------------------------------------------------------------

    def _of_itself(self, line: _Line, turns: Ordered) -> list[_Pairing]:
        at, begin = line.at, line.start[turns.number]
        if self.distinct:
            return [_Pairing(line, line, at, np.maximum(begin, at - self.n), at, asks=1)]
        return [
            _Pairing(line, line, at, np.maximum(begin, at - self.n), at, asks=0),
            _Pairing(line, line, at, np.maximum(begin, at + 1 - self.n), at + 1, asks=1),
        ]

    def _of_two(self, lines: list[_Line], turns: Ordered) -> list[_Pairing]:
        came_on, number = turns.rows[_PORT].to_numpy(), turns.number
        pairings = []
        for asks, (mine, theirs) in enumerate(zip(lines, reversed(lines), strict=True)):
            others = np.cumsum(came_on != asks) - (came_on != asks)
            others -= others[np.flatnonzero(turns.first)][number]
            turn = came_on == asks
            begin = theirs.start[number[turn]]
            high = begin + theirs.remembered[number[turn]] + others[turn]
            low = np.maximum(begin, high - self.n)
            pairings.append(_Pairing(lines[0], lines[1], mine.at, low, high, asks))
        return pairings

    def _pairs(self, pairing: _Pairing) -> list[pl.DataFrame]:
        left, right, made = pairing.left.rows, pairing.right.rows, []
        if left is None or right is None:
            return []
        for asks, theirs in expand_in_chunks(pairing.low, pairing.high):
            mine = pairing.at[asks]
            at_left, at_right = (theirs, mine) if pairing.asks else (mine, theirs)
            if self.condition is not None and len(mine):
                met = self.condition.evaluate(self.columns, left, at_left, right, at_right)
                at_left, at_right = at_left[met], at_right[met]
            if len(at_left):
                rows = self.columns.join_rows(left, at_left, right, at_right)
                (when,) = (
                    gather_columns(right, [TIME], at_right)
                    if pairing.asks
                    else gather_columns(left, [TIME], at_left)
                )
                made.append(rows.insert_column(0, when))
        return made

    def _keys(self, port: int) -> tuple[str, ...]:
        return self.right_keys if port else self.keys

    def describe(self) -> str:
        with_whom = " with itself" if self.ports == 1 else ""
        where = f" where {self.condition.text}" if self.condition else ""
        return f"join{with_whom} on {describe_keys(self.keys, self.right_keys)} over the last {self.n} rows{where}"


@dataclass(frozen=True)
class _Line:
    """The rows of a side, key after key, each key's in order: those remembered, then this epoch's.

    `start` and `remembered` say for each key where it begins and how many are old, `at` where each new row stands.
    """

    rows: pl.DataFrame | None
    start: Ints
    remembered: Ints
    at: Ints


@dataclass(frozen=True)
class _Pairing:
    """New rows of the side that `asks`, at these places of its line, and the range each meets of the other line."""

    left: _Line
    right: _Line
    at: Ints
    low: Ints
    high: Ints
    asks: int


def _listed(name: str) -> str:
    return f"_last.{name}"


def _plain(name: str) -> str:
    return name.removeprefix("_last.")

"""Lookups: each event meets the row that its key has in a table at the event's time.

Receives events and a table's changes, both in strict order; hands every event with the columns of its key's latest
row, at the event's own time and place. Of one instant, changes count before events.
State: `latest`, a table of the latest row of every key; `waiting` and `changes`, journals of what is not yet due.

With `broadcast` every slice gets the whole table and keeps one copy of it together with the others, so events
need not lie by the table's key.
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
from penstock.operators.join_candidates import Ints
from penstock.operators.join_columns import JoinColumns, describe_keys
from penstock.operators.routing import Broadcast, ByKey, RoundRobin, Route
from penstock.operators.strict import (
    Ordered,
    add_position,
    group_by_key,
    position_columns,
    take_due,
    total_order,
)
from penstock.state.buckets import HASH, with_hash
from penstock.state.table import Table

#: of a table's row: whether it removes its key
_GONE = "_gone"
_ROW = "_row"


@dataclass(frozen=True)
class Lookup(Operator):
    """Events with the latest row of a table; `how` is left or inner. Rows whose column `deleted` is true remove
    their key."""

    kind: ClassVar[str] = "lookup-join"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    columns: JoinColumns
    how: str = "left"
    deleted: str | None = None
    broadcast: bool = False
    ports: int = 2

    @property
    def order(self) -> str:
        return "strict"

    @property
    def partitioning(self) -> tuple[str, ...] | None:
        return None if self.broadcast else self.keys

    def route(self, port: int = 0) -> Route:
        if self.broadcast:
            return Broadcast() if port else RoundRobin()
        return ByKey(self.right_keys if port else self.keys)

    def needs(self, port: int = 0) -> set[str]:
        if not port:
            return {*self.keys, *(name for name, _ in self.columns.left)}
        flag = {self.deleted} if self.deleted else set()
        return {*self.right_keys, *(name for name, _, _ in self.columns.right), *flag}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        frame = add_position(frame)
        if not port:
            return frame.select(*ORDER, *sorted(self.needs()))
        gone = pl.col(self.deleted).fill_null(False) if self.deleted else pl.lit(False)
        named = dict.fromkeys((*self.right_keys, *(name for name, _, _ in self.columns.right)))
        return frame.drop_nulls(list(self.right_keys)).select(*ORDER, *named, gone.alias(_GONE))

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        if self.broadcast:
            table = state.shared_table("latest", keys=self.right_keys, gone=_GONE)
            waiting = state.shared_journal("changes", time=TIME)
        else:
            table = state.table("latest", keys=self.right_keys, gone=_GONE)
            waiting = state.journal("changes", time=TIME)
        events = take_due(inputs[0], state.journal("waiting", time=TIME), progress)
        changes = take_due(inputs[1], waiting, progress)
        table.compact()
        if self.broadcast:  # so far their hashes only said where they lie
            events = None if events is None else with_hash(events, self.keys)
            changes = None if changes is None else with_hash(changes, self.right_keys)
        if changes is not None:
            order = total_order(changes)
            changes = changes if order is None else changes[order]
        turns = self._turns(changes, events)
        if turns is None:
            return {}
        made = None if events is None else self._met(turns, changes, events, table)
        if changes is not None:
            table.insert(changes[_latest(turns, changes.height)].drop(ORDER[1:]).drop(INPUT, strict=False))
        return {"": made}

    def _turns(self, changes: pl.DataFrame | None, events: pl.DataFrame | None) -> Ordered | None:
        """Changes and events in one order, by what is needed to tell it: key, time, number; changes first."""
        parts, count = [], 0
        for rows, keys in ((changes, self.right_keys), (events, self.keys)):
            if rows is not None:
                named = [pl.col(key).alias(name) for key, name in zip(keys, self.right_keys, strict=True)]
                row = pl.int_range(count, count + pl.len(), dtype=pl.Int64).alias(_ROW)
                parts.append(rows.select(HASH, TIME, *named, row))
                count += rows.height
        if not parts:
            return None
        turns = pl.concat(parts)
        order = np.argsort(turns[TIME].to_numpy(), kind="stable")
        return group_by_key(turns, self.right_keys, pl.Series(order))

    def _met(
        self, turns: Ordered, changes: pl.DataFrame | None, events: pl.DataFrame, table: Table
    ) -> pl.DataFrame:
        """The events with what they find."""
        names = [TIME, *(name for name, _, _ in self.columns.right), _GONE]
        count = 0 if changes is None else changes.height
        row, seen = turns.rows[_ROW].to_numpy(), _seen(turns, count)
        is_event = row >= count
        # whoever finds no change of this epoch before it asks the table, once a key
        asking = np.unique(turns.number[is_event & (seen < 0)])
        heads = turns.rows.select(HASH, *self.right_keys).filter(pl.Series(turns.first))[asking]
        pool = [] if changes is None else [changes.select(names)]
        types = {name: dtype for name, _, dtype in self.columns.right} | {
            TIME: pl.Int64(),
            _GONE: pl.Boolean(),
        }
        pool.append(table.lookup(heads, names).cast({name: types[name] for name in names}))
        at = np.where(seen >= 0, row[seen], count + np.searchsorted(asking, turns.number))[is_event]
        found = pl.concat(pool)[at]
        there = found[TIME].is_not_null() & ~found[_GONE].fill_null(True)
        met = events.select(*position_columns(events), *(name for name, _ in self.columns.left))[
            row[is_event] - count
        ]
        if self.how == "inner":
            met, found = met.filter(there), found.filter(there)
            return met.hstack([found[name].alias(named) for name, named, _ in self.columns.right])
        mine = pl.lit(there)
        return met.hstack(
            found.select(pl.when(mine).then(name).alias(named) for name, named, _ in self.columns.right)
        )

    def describe(self) -> str:
        how = ", broadcast" if self.broadcast else ""
        return f"{self.how} lookup on {describe_keys(self.keys, self.right_keys)}{how}"


def _seen(turns: Ordered, changes: int) -> Ints:
    """For each turn where the last change of its key up to it stands; -1 where there is none."""
    place = np.arange(turns.rows.height)
    is_change = turns.rows[_ROW].to_numpy() < changes
    last = np.maximum.accumulate(np.where(is_change, place, -1))
    return np.where(last >= np.flatnonzero(turns.first)[turns.number], last, -1)


def _latest(turns: Ordered, changes: int) -> Ints:
    """The numbers of each key's last change."""
    last = _seen(turns, changes)[turns.last]
    return turns.rows[_ROW].to_numpy()[last[last >= 0]]

"""Look up events in a table: join each event with the row that its key has in the table at the event's time.

Both inputs are read in strict order; of one instant, changes of the table count before events. The operator emits every
event with the columns of the latest row of its key, at the time and position of the event.
State: `latest`, a table of the latest row of every key; `waiting` and `changes`, journals of rows that are not yet due.

With `broadcast` every slice receives the whole table, and the slices share one copy of it. Then events need not be
partitioned by the key of the table.
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
from penstock.operators.routes import Broadcast, ByKey, RoundRobin, Route
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

#: of a row of the table: whether it deletes its key
_GONE = "_gone"
_ROW = "_row"


@dataclass(frozen=True)
class Lookup(Operator):
    """Events with the latest row of a table; `how` is left or inner.

    Rows of the table in which the column `deleted` is true delete their key.
    """

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
        if self.broadcast:  # until now their hashes were those of the exchange
            events = None if events is None else with_hash(events, self.keys)
            changes = None if changes is None else with_hash(changes, self.right_keys)
        if changes is not None:
            order = total_order(changes)
            changes = changes if order is None else changes[order]
        merged = self._merge_inputs(changes, events)
        if merged is None:
            return {}
        rows = None if events is None else self._look_up(merged, changes, events, table)
        if changes is not None:
            latest = changes[_latest_changes(merged, changes.height)]
            table.insert(latest.drop(ORDER[1:]).drop(INPUT, strict=False))
        return {"": rows}

    def _merge_inputs(self, changes: pl.DataFrame | None, events: pl.DataFrame | None) -> Ordered | None:
        """Changes and events in one order, as rows of key, time and number; changes first."""
        parts, count = [], 0
        for rows, keys in ((changes, self.right_keys), (events, self.keys)):
            if rows is not None:
                named = [pl.col(key).alias(name) for key, name in zip(keys, self.right_keys, strict=True)]
                row = pl.int_range(count, count + pl.len(), dtype=pl.Int64).alias(_ROW)
                parts.append(rows.select(HASH, TIME, *named, row))
                count += rows.height
        if not parts:
            return None
        merged = pl.concat(parts)
        order = np.argsort(merged[TIME].to_numpy(), kind="stable")
        return group_by_key(merged, self.right_keys, pl.Series(order))

    def _look_up(
        self, merged: Ordered, changes: pl.DataFrame | None, events: pl.DataFrame, table: Table
    ) -> pl.DataFrame:
        """The events with the rows of the table that they match."""
        names = [TIME, *(name for name, _, _ in self.columns.right), _GONE]
        count = 0 if changes is None else changes.height
        row, last_change = merged.rows[_ROW].to_numpy(), _last_change(merged, count)
        is_event = row >= count
        # events with no change of this epoch before them need the stored row, once for each key
        stored_keys = np.unique(merged.number[is_event & (last_change < 0)])
        heads = merged.rows.select(HASH, *self.right_keys).filter(pl.Series(merged.first))[stored_keys]
        types = {name: dtype for name, _, dtype in self.columns.right} | {
            TIME: pl.Int64(),
            _GONE: pl.Boolean(),
        }
        pool = [] if changes is None else [changes.select(names)]
        pool.append(table.lookup(heads, names).cast({name: types[name] for name in names}))
        stored_at = count + np.searchsorted(stored_keys, merged.number)
        matches = pl.concat(pool)[np.where(last_change >= 0, row[last_change], stored_at)[is_event]]
        matched = matches[TIME].is_not_null() & ~matches[_GONE].fill_null(True)
        columns = (*position_columns(events), *(name for name, _ in self.columns.left))
        left = events.select(columns)[row[is_event] - count]
        if self.how == "inner":
            left, matches = left.filter(matched), matches.filter(matched)
            return left.hstack([matches[name].alias(named) for name, named, _ in self.columns.right])
        has_match = pl.lit(matched)
        return left.hstack(
            matches.select(
                pl.when(has_match).then(name).alias(named) for name, named, _ in self.columns.right
            )
        )

    def describe(self) -> str:
        how = ", broadcast" if self.broadcast else ""
        return f"{self.how} lookup on {describe_keys(self.keys, self.right_keys)}{how}"


def _last_change(merged: Ordered, changes: int) -> Ints:
    """For each row the position of the last change of its key up to it; -1 if there is none."""
    position = np.arange(merged.rows.height)
    is_change = merged.rows[_ROW].to_numpy() < changes
    last = np.maximum.accumulate(np.where(is_change, position, -1))
    return np.where(last >= np.flatnonzero(merged.first)[merged.number], last, -1)


def _latest_changes(merged: Ordered, changes: int) -> Ints:
    """The number of each key's last change."""
    last = _last_change(merged, changes)[merged.last]
    return merged.rows[_ROW].to_numpy()[last[last >= 0]]

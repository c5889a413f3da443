"""Call a user's function for every row of each key in strict order, with a state per key.

The output is the rows that the function emits. This is the one operator that processes events one by one in Python:
convenient, and slow.
State: `states`, each key's state as bytes and the time of its last event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.errors import UserError
from penstock.operators.contract import TIME, Progress, SliceState
from penstock.operators.custom import not_serializable_error, user_code_error
from penstock.operators.identity import NOT_STATE
from penstock.operators.strict import Ordered, StrictOperator, number_siblings, position_columns, take_ordered
from penstock.state import plain
from penstock.state.buckets import HASH

_STATE, _SEEN = "_state", "_seen"

#: from a state, a row, and a function that emits a row, to the next state
RowFunction = Callable[[Any, dict[str, Any], Callable[[Mapping[str, Any]], None]], Any]


@dataclass(frozen=True)
class RowFold(StrictOperator):
    """Calls `function` for every event with its key's state. The state is `initial` at first, and again after the key
    had no event for longer than `forget_after` microseconds."""

    kind: ClassVar[str] = "row-fold"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    function: RowFunction = field(repr=False, metadata=NOT_STATE)
    name: str
    initial: Any
    columns: tuple[str, ...]
    outgoing: Mapping[str, pl.DataType]
    forget_after: int | None = None

    @property
    def partitioning(self) -> None:
        return None  # the user's rows need not name their key

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        states = state.table("states", keys=self.keys, time=_SEEN)
        expired = None if self.forget_after is None else progress.before - self.forget_after
        if expired is not None:
            states.expire(expired)
        states.compact(expired)
        ordered = take_ordered(frame, self.keys, state, progress)
        if ordered is None:
            return None
        heads = ordered.rows.select(HASH, *self.keys).filter(pl.Series(ordered.first))
        before = states.lookup(heads, [_STATE, _SEEN])
        emitted, at, after = self._fold(ordered, before)
        last = pl.col(TIME).alias(_SEEN)
        states.insert(
            ordered.rows.filter(pl.Series(ordered.last))
            .select(HASH, *self.keys, last)
            .with_columns(pl.Series(_STATE, after, dtype=pl.Binary))
        )
        if not emitted:
            return None
        # rows emitted at one event follow one another
        positions = ordered.rows.select(position_columns(ordered.rows))[np.array(at)]
        return number_siblings(positions.hstack(self._frame(emitted)))

    def _fold(
        self, ordered: Ordered, before: pl.DataFrame
    ) -> tuple[list[Mapping[str, Any]], list[int], list[bytes]]:
        """The rows emitted, the event of each, and the states of all keys afterwards."""
        emitted: list[Mapping[str, Any]] = []
        at: list[int] = []
        after: list[bytes] = []
        stored, seen = before[_STATE].to_list(), before[_SEEN].to_list()
        times = ordered.rows[TIME].to_list()
        rows = ordered.rows.select(*dict.fromkeys((*self.keys, *self.columns))).iter_rows(named=True)
        fresh, state, key = self._to_bytes(self.initial), None, -1

        def emit(row: Mapping[str, Any]) -> None:
            emitted.append(dict(row))

        try:
            for number, (row, first) in enumerate(zip(rows, ordered.first.tolist(), strict=True)):
                if first:
                    if key >= 0:
                        after.append(self._to_bytes(state))
                    key += 1
                    data, last = stored[key], seen[key]
                    state = plain.from_bytes(fresh if data is None else data)
                else:
                    last = times[number - 1]
                if (
                    self.forget_after is not None
                    and last is not None
                    and times[number] - last > self.forget_after
                ):
                    state = plain.from_bytes(fresh)
                state = self.function(state, row, emit)
                if len(emitted) > len(at):
                    at.extend([number] * (len(emitted) - len(at)))
        except Exception as failure:
            code = getattr(self.function, "__code__", None)
            raise user_code_error(failure, () if code is None else (code,), self.name) from failure
        after.append(self._to_bytes(state))
        return emitted, at, after

    def _to_bytes(self, state: Any) -> bytes:
        try:
            return plain.to_bytes(state)
        except TypeError as failure:
            raise not_serializable_error(self.name, state, str(failure)) from failure

    def _frame(self, emitted: list[Mapping[str, Any]]) -> pl.DataFrame:
        if missing := sorted({name for row in emitted for name in self.outgoing if name not in row}):
            raise UserError(
                "EMITTED_WRONG_COLUMNS",
                f"{self.name} emitted rows without the columns {', '.join(missing)}",
                hint="Emit all columns of the schema; a value may be None.",
            )
        try:
            return pl.DataFrame(
                {name: [row[name] for row in emitted] for name in self.outgoing}, schema=dict(self.outgoing)
            )
        except (TypeError, pl.exceptions.PolarsError) as failure:
            raise UserError(
                "EMITTED_WRONG_COLUMNS",
                f"{self.name} emitted values that do not fit the schema",
                detail=str(failure),
                hint="The schema declares "
                + ", ".join(f"{name} {dtype}" for name, dtype in self.outgoing.items())
                + ": convert the values, or declare other types in apply_rows.",
            ) from failure

    def describe(self) -> str:
        return f"{self.name} for every row per {', '.join(self.keys) or 'everything'}"

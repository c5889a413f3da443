"""Make aggregate functions of users' Python functions: add, merge, result, and optionally subtract.

They work on a state of the user's choice. `add` gets a whole group's values at once as a Polars Series, so Python runs
once per group, not once per event.

`merge` must give the same result in any order. The state must be plain JSON data (None, booleans, numbers, texts,
lists, dicts with text keys) or bytes, unless the user provides functions that turn it into bytes and back. Nothing is
pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.errors import PenstockError, UserError
from penstock.operators.functions.columns import BytesPiece, Numbers
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.identity import NOT_STATE

State = Any
_JSON, _BYTES = b"j", b"b"


def _serialized(state: State) -> bytes:
    if isinstance(state, bytes):
        return _BYTES + state
    return _JSON + json.dumps(state, separators=(",", ":"), sort_keys=True).encode()


def _deserialized(data: bytes) -> State:
    return data[1:] if data[:1] == _BYTES else json.loads(data[1:])


@dataclass(frozen=True)
class UserFunction:
    """A user's function. Calling it with a column makes an aggregate of that column.

    State is identified by the name, so a function whose state changes its shape needs another name.
    """

    kind: ClassVar[str] = "user-function"
    state_version: ClassVar[int] = 1

    name: str
    add: Callable[[pl.Series], State] = field(repr=False, metadata=NOT_STATE)
    merge: Callable[[State, State], State] = field(repr=False, metadata=NOT_STATE)
    result: Callable[[State], Any] = field(repr=False, metadata=NOT_STATE)
    subtract: Callable[[State, State], State] | None = field(repr=False, metadata=NOT_STATE)
    dtype: pl.DataType
    serialize: Callable[[State], bytes] = field(default=_serialized, repr=False, metadata=NOT_STATE)
    deserialize: Callable[[bytes], State] = field(default=_deserialized, repr=False, metadata=NOT_STATE)

    def __call__(self, column: str, alias: str | None = None) -> AggregateFunction:
        return User(alias or f"{self.name}_{column}", column, function=self)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that the user wrote."""
        given = (self.add, self.merge, self.result, self.subtract, self.serialize, self.deserialize)
        return tuple(one for one in given if one is not None)

    def call(self, what: str, *given: Any) -> Any:
        """Call one of the functions. On failure: `UserError` USER_FUNCTION_FAILED, which names it."""
        try:
            return getattr(self, what)(*given)
        except PenstockError:
            raise
        except Exception as failure:
            raise UserError(
                "USER_FUNCTION_FAILED",
                f"{what} of the aggregate function {self.name!r} raised {type(failure).__name__}: {failure}",
                hint="Nothing is lost: fix it and start again with the same state directory; "
                "the epoch is repeated.",
            ) from failure

    def serialize_state(self, state: State) -> bytes:
        data = self.call("serialize", state)
        if not isinstance(data, bytes):
            raise UserError(
                "BAD_STATE",
                f"serialize of the aggregate function {self.name!r} returned {type(data).__name__}, not bytes",
            )
        return data


@dataclass(frozen=True)
class States(BytesPiece):
    """One column of the user's states as bytes; null without values."""

    value: pl.Expr
    function: UserFunction

    @property
    def subtracts(self) -> bool:  # type: ignore[override]
        return self.function.subtract is not None

    def values(self) -> pl.Expr:
        return self.value

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        states: list[bytes | None] = [None] * count
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        for group, start, length in zip(
            number[starts].tolist(),
            starts.tolist(),
            np.diff(starts, append=len(number)).tolist(),
            strict=True,
        ):
            states[group] = self.function.serialize_state(
                self.function.call("add", values.slice(start, length))
            )
        return pl.Series(states, dtype=pl.Binary)

    def merge_bytes(self, parts: list[bytes]) -> bytes:
        state = self.function.call("deserialize", parts[0])
        for part in parts[1:]:
            state = self.function.call("merge", state, self.function.call("deserialize", part))
        return self.function.serialize_state(state)

    def merge_rows(self, rows: pl.Series, low: np.ndarray, high: np.ndarray) -> pl.Series:
        there = np.flatnonzero(rows.is_not_null().to_numpy())
        starts, ends = np.searchsorted(there, low), np.searchsorted(there, high)
        # subtracting pays where ranges overlap
        if not self.subtracts or (ends - starts).sum() <= 2 * (len(there) + len(low)):
            return super().merge_rows(rows, low, high)
        parts = rows.drop_nulls().to_list()
        prefix = [parts[0]]
        for part in parts[1:]:
            prefix.append(self.merge_bytes([prefix[-1], part]))
        states = [
            None
            if start == end
            else prefix[end - 1]
            if start == 0
            else self._subtract(prefix[end - 1], prefix[start - 1])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return pl.Series(states, dtype=pl.Binary)

    def _subtract(self, whole: bytes, part: bytes) -> bytes:
        states = (self.function.call("deserialize", data) for data in (whole, part))
        return self.function.serialize_state(self.function.call("subtract", *states))


@dataclass(frozen=True)
class User(AggregateFunction):
    """A user's function of a column. Nulls are ignored; without values the result is null."""

    kind: ClassVar[str] = "user-aggregate"
    state_version: ClassVar[int] = 1

    function: UserFunction = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.function.name

    def result_type(self, given: pl.DataType) -> pl.DataType:
        return self.function.dtype

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        return (States(self.part("u"), pl.col(self.column), self.function),)

    def result(self) -> pl.Expr:
        def each(parts: pl.Series) -> pl.Series:
            results = [
                None
                if part is None
                else self.function.call("result", self.function.call("deserialize", part))
                for part in parts.to_list()
            ]
            try:
                return pl.Series(results, dtype=self.function.dtype, strict=True)
            except Exception as failure:
                raise UserError(
                    "TYPE_MISMATCH",
                    f"result of the aggregate function {self.name!r} does not fit {self.function.dtype}",
                    detail=str(failure),
                ) from failure

        part = pl.col(self.part("u"))
        return part.map_batches(each, return_dtype=self.function.dtype, is_elementwise=True).alias(self.alias)


def aggregate_function(
    name: str,
    *,
    add: Callable[[pl.Series], State],
    merge: Callable[[State, State], State],
    result: Callable[[State], Any],
    dtype: pl.DataType | type[pl.DataType],
    subtract: Callable[[State, State], State] | None = None,
    serialize: Callable[[State], bytes] | None = None,
    deserialize: Callable[[bytes], State] | None = None,
) -> UserFunction:
    """An aggregate function of your own; call it with a column, as `count` or `sum_`.

    `add` makes a state from some values of the column (a Series without nulls, never empty, in any order). `merge`
    makes one state of two, in any order. `result` returns the result, of type `dtype`. `subtract(whole, part)` undoes a
    merge; with it a sliding window costs the same however long it is.
    """
    if (serialize is None) != (deserialize is None):
        raise UserError(
            "BAD_FUNCTION",
            f"the aggregate function {name!r} has only one of serialize and deserialize",
            hint="Pass both, or neither and use a state of plain JSON data or bytes.",
        )
    if not name.isidentifier():
        raise UserError("BAD_NAME", f"{name!r} cannot name a function", hint="Use letters, digits and _.")
    return UserFunction(
        name,
        add,
        merge,
        result,
        subtract,
        dtype if isinstance(dtype, pl.DataType) else dtype(),
        serialize or _serialized,
        deserialize or _deserialized,
    )

"""Base class of a user's own operators, with state that Penstock stores, moves and restores.

An operator receives batches of one bucket and the state of the bucket. It emits rows through `out` and returns the new
state.

Guarantees: what the state of a bucket has seen when `process` or `on_watermark` is called depends on the events alone,
if the operator keeps the promises below; not on where epochs or slices were cut, nor on crashes.
Does not guarantee: how events are cut into batches, nor which keys share a bucket.
On failure: an exception names its line; nothing is lost, and the epoch is repeated with the state before it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import polars as pl

from penstock.duration import Duration
from penstock.errors import PenstockError, UserError
from penstock.operators.contract import TIME
from penstock.origin import innermost_line
from penstock.state import plain

Schema = Mapping[str, pl.DataType]
#: attributes of these types are parameters, which are part of the identity of the operator's state
PLAIN = (str, int, float, bool, type(None), list, tuple, dict, timedelta)


class CustomOperator:
    """A user's own operator. The attributes of the object are its parameters; they must not change.

    There is one state for each *bucket*. Many keys share it, so store what belongs to a key under the key, as in a
    dictionary or a frame. Which keys share a bucket must not matter to the results.

    Where a batch ends must not matter either: `process` must be a fold over rows, so that two consecutive batches give
    what one batch of both would. A batch is in strict order (event time, partition, offset) over all keys of the
    bucket. With `commutative` it is in any order; then neither order nor cut may matter.

    With `every`, `on_watermark` is called at multiples of `every` in event time, between batches: all events before
    that instant have been in `process`, and none after it. So where a tick falls depends on the events alone, not on
    when the watermark moved. A tick is skipped unless the bucket has had events since the tick before, or
    `wants_ticks` asked for it. Events of another key may cause a tick, so a tick that a key did not need must have no
    effect; and while anything waits for a later tick, `wants_ticks` must return it.

    With `commutative`, `every` and `merge` an epoch reads and writes only what it adds: `process` receives fresh
    states, which are merged into that of the bucket at the next tick. Then only `on_watermark` emits rows.
    """

    #: the name of its state, whatever the class is called; without it, the name of the class
    kind: ClassVar[str | None] = None
    #: the form of its state: state of another version is refused, except of those in `reads_versions`
    state_version: ClassVar[int] = 1
    reads_versions: ClassVar[frozenset[int]] = frozenset()
    #: neither the order of events nor where batches are cut matters
    commutative: bool = False
    #: the time between two calls of `on_watermark`
    every: Duration | None = None

    def init_state(self) -> Any:
        """The state of a bucket without events."""
        raise NotImplementedError("a custom operator needs init_state")

    def process(self, batch: pl.DataFrame, state: Any, out: Out, context: Context) -> Any:
        """Process events: their columns, and `_time`, the event time in microseconds since 1970.

        Change the state in place, or return another one. Rows emitted with `out.emit` have the `_time` of the event at
        which they are emitted.
        """
        raise NotImplementedError("a custom operator needs process")

    def on_watermark(self, state: Any, out: Out, context: Context) -> Any:
        """Event time is `context.watermark`: every event before it has been processed.

        Change the state in place, or return another one. The time of rows emitted here is just before that instant.
        """

    def wants_ticks(self, state: Any) -> bool | int | datetime:
        """Whether to call the next tick although there may be no events until then.

        Or an instant (in microseconds since 1970, or with a time zone): that of the first tick to call.
        """
        return False

    def merge(self, one: Any, other: Any) -> Any:
        """Merge two states. `one` may be changed in place and returned."""
        raise NotImplementedError("this operator has no merge")

    def serialize(self, state: Any) -> bytes:
        """The state as bytes. Override it only for other things than plain values, Polars frames and NumPy arrays."""
        return plain.to_bytes(state)

    def deserialize(self, data: bytes) -> Any:
        """The state of these bytes."""
        return plain.from_bytes(data)

    def __repr__(self) -> str:
        """The class and its plain parameters."""
        parameters = (f"{n}={v!r}" if isinstance(v, PLAIN) else n for n, v in sorted(vars(self).items()))
        return f"{type(self).__qualname__}({', '.join(parameters)})"


@dataclass(frozen=True)
class Context:
    """What an operator knows besides its rows and state: nothing of epochs, slices or clocks."""

    keys: tuple[str, ...]
    parameters: Mapping[str, Any]
    #: the last tick: every event before it has been processed (microseconds since 1970); None without `every`
    watermark: int | None = None

    @property
    def time(self) -> datetime | None:
        """The last tick as a date and time."""
        if self.watermark is None:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.watermark)


@dataclass
class Out:
    """Where an operator emits its rows."""

    schemas: Mapping[str, Schema]
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    #: the time of rows emitted now; None: they have a `_time` of their own, not before `earliest`
    instant: int | None = None
    earliest: int = 0
    #: why no rows can be emitted now
    refusal: str | None = None

    def emit(self, rows: pl.DataFrame | Sequence[Mapping[str, Any]], to: str = "") -> None:
        """Emit rows with the declared columns (and, in `process`, `_time`) to the main output or another."""
        if self.refusal is not None:
            raise UserError(
                "EMITTED_TOO_EARLY", self.refusal, hint="Emit it in on_watermark, or leave out merge."
            )
        if to not in self.schemas:
            raise UserError(
                "UNKNOWN_OUTPUT",
                f"there is no output {to!r}",
                hint="Declare it: .apply(operator, schema, outputs={'name': {...}}).",
            )
        schema = self.schemas[to]
        frame = rows if isinstance(rows, pl.DataFrame) else _frame(rows, schema, self.instant is None)
        if not frame.height:
            return
        wanted = [*([TIME] if self.instant is None else []), *schema]
        if missing := [name for name in wanted if name not in frame.columns]:
            raise _missing_columns(missing)
        when = pl.col(TIME) if self.instant is None else pl.lit(self.instant, pl.Int64).alias(TIME)
        emitted = frame.select(
            when.cast(pl.Int64), *(pl.col(name).cast(dtype) for name, dtype in schema.items())
        )
        if self.instant is None and not (emitted[TIME] >= self.earliest).fill_null(False).all():
            raise UserError(
                "EMITTED_IN_THE_PAST",
                "rows were emitted with a _time before that of the events in the batch",
                hint="The time of a row is that of the event at which it is emitted: use its _time.",
            )
        self.frames.setdefault(to, []).append(emitted)

    def results(self) -> dict[str, pl.DataFrame]:
        """The emitted rows by output."""
        return {name: pl.concat(frames) for name, frames in self.frames.items()}


def _frame(rows: Sequence[Mapping[str, Any]], schema: Schema, timed: bool) -> pl.DataFrame:
    types = ({TIME: pl.Int64()} if timed else {}) | dict(schema)
    if missing := sorted({name for row in rows for name in types if name not in row}):
        raise _missing_columns(missing)
    return pl.DataFrame({name: [row[name] for row in rows] for name in types}, schema=types)


def _missing_columns(missing: Sequence[str]) -> UserError:
    return UserError(
        "EMITTED_WRONG_COLUMNS",
        f"rows were emitted without the columns {', '.join(missing)}",
        hint="Emit all columns of the schema (a value may be None) and, in process, the _time of the event at which "
        "rows are emitted.",
    )


def user_code_error(failure: Exception, code: Sequence[CodeType], what: str) -> PenstockError:
    """The error to raise when the user's code, or what it called, has failed: with the user's line."""
    line = innermost_line(failure, {one.co_filename for one in code})
    at = None if line is None else str(line)
    if isinstance(failure, PenstockError):
        where = failure.where or at
        return type(failure)(
            failure.condition, failure.primary, detail=failure.detail, hint=failure.hint, where=where
        )
    return UserError(
        "USER_FUNCTION_FAILED",
        f"{type(failure).__name__}: {failure}",
        where=at,
        detail=f"in {what}",
        hint="Nothing is lost: fix it and start again with the same state directory; the epoch is repeated.",
    )


def not_serializable_error(owner: str, state: Any, why: str) -> UserError:
    return UserError(
        "STATE_NOT_SERIALIZABLE",
        f"the state of {owner}, a {type(state).__qualname__}, cannot be stored",
        detail=why,
        hint="Make it of numbers, texts, times, lists, tuples, dictionaries, sets, Polars frames and NumPy arrays; "
        "or write serialize and deserialize.",
    )


def code_of(operator: CustomOperator) -> list[CodeType]:
    """The user's own methods."""
    module = str(Path(sys.modules[CustomOperator.__module__].__file__ or "").resolve())
    methods = (getattr(getattr(type(operator), name, None), "__code__", None) for name in dir(type(operator)))
    return [code for code in methods if isinstance(code, CodeType) and code.co_filename != module]

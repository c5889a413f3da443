"""What a user derives from to write an operator of their own, with state that Penstock keeps, moves and restores.

Receives batches of one bucket and the bucket's state; hands rows through `out`, and the state after.

Guarantees: what a bucket's state has seen when `process` or `on_watermark` is called depends on the events alone, if
the operator keeps what it promises below; not on where epochs or slices were cut, nor on crashes.
Does not guarantee: how the events are cut into batches, nor which keys share a bucket.
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
#: attributes of these types are parameters that tell one operator's state from another's
PLAIN = (str, int, float, bool, type(None), list, tuple, dict, timedelta)


class CustomOperator:
    """An operator of the user's own. Attributes of the object are its parameters; they must not change.

    There is one state a *bucket*: many keys share it, so what is remembered per key is kept under the key, as in a
    dictionary or a frame. Which keys share a bucket may not matter to what is told.

    Where a batch ends may not matter either: `process` must be a fold over rows, so that two batches one after the
    other give what one batch of both would. A batch is in strict order (event time, partition, offset), over
    all keys of the bucket. If `commutative`, it is as it comes: neither order nor cut may matter then.

    With `every`, `on_watermark` is called at multiples of `every` in event time, between batches: all events
    before that instant have been in `process`, none after it has. So it depends on the events where a tick
    falls, never on when the watermark was noticed to move. A tick is skipped unless the bucket had events since
    the tick before, or `wants_ticks` asked for it: another key's events may cause a tick, so at a tick that one
    did not need, nothing must happen; and while anything waits for a later tick, `wants_ticks` must say so.

    With `commutative`, `every` and `merge` an epoch reads and writes only what it adds: `process` is given fresh
    states, which are merged into the bucket's at the next tick. It then tells nothing; `on_watermark` does.
    """

    #: what its state is known by, whatever the class is called; without it, by the class's name
    kind: ClassVar[str | None] = None
    #: the form of its state: a state of another version is refused, but for those in `reads_versions`
    state_version: ClassVar[int] = 1
    reads_versions: ClassVar[frozenset[int]] = frozenset()
    #: neither the order of events nor where batches are cut matters
    commutative: bool = False
    #: the time between two calls of `on_watermark`
    every: Duration | None = None

    def init_state(self) -> Any:
        """The state of a bucket that has seen nothing."""
        raise NotImplementedError("a custom operator needs init_state")

    def process(self, batch: pl.DataFrame, state: Any, out: Out, context: Context) -> Any:
        """Take in events: their columns, and `_time`, the event time in microseconds since 1970.

        Change the state in place, or return another one. Rows told with `out.emit` carry the `_time` of the
        event that they are told at.
        """
        raise NotImplementedError("a custom operator needs process")

    def on_watermark(self, state: Any, out: Out, context: Context) -> Any:
        """It is `context.watermark`: every event before it has been taken in. As `process` for the state.

        Rows told here happen just before that instant.
        """

    def wants_ticks(self, state: Any) -> bool | int | datetime:
        """Whether the next tick is wanted although there may be no events until then; or, as an instant (in
        microseconds since 1970 or with a time zone), which is the first that is."""
        return False

    def merge(self, one: Any, other: Any) -> Any:
        """One state of two. `one` may be changed in place and returned."""
        raise NotImplementedError("this operator has no merge")

    def serialize(self, state: Any) -> bytes:
        """The state as bytes. Plain values, Polars frames and NumPy arrays need no method of the user's own."""
        return plain.to_bytes(state)

    def deserialize(self, data: bytes) -> Any:
        """The state that became these bytes."""
        return plain.from_bytes(data)

    def __repr__(self) -> str:
        """The class and its plain parameters."""
        told = (f"{n}={v!r}" if isinstance(v, PLAIN) else n for n, v in sorted(vars(self).items()))
        return f"{type(self).__qualname__}({', '.join(told)})"


@dataclass(frozen=True)
class Context:
    """What an operator may know besides its rows and state: nothing of epochs, slices or clocks."""

    keys: tuple[str, ...]
    parameters: Mapping[str, Any]
    #: the last tick: every event before it has been taken in (microseconds since 1970); None without `every`
    watermark: int | None = None

    @property
    def time(self) -> datetime | None:
        """The last tick as a date and time."""
        if self.watermark is None:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.watermark)


@dataclass
class Out:
    """Where an operator puts its rows."""

    schemas: Mapping[str, Schema]
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    #: when rows told now happen: at this instant; None: as they say, not before `earliest`
    instant: int | None = None
    earliest: int = 0
    #: why nothing can be told now
    shut: str | None = None

    def emit(self, rows: pl.DataFrame | Sequence[Mapping[str, Any]], to: str = "") -> None:
        """Tell rows with the declared columns (and, in `process`, `_time`), by the main output or another."""
        if self.shut is not None:
            raise UserError(
                "EMITTED_TOO_EARLY", self.shut, hint="Tell it in on_watermark, or leave out merge."
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
        if lost := [name for name in wanted if name not in frame.columns]:
            raise UserError(
                "EMITTED_WRONG_COLUMNS",
                f"rows were told without the columns {', '.join(lost)}",
                hint="Tell all columns of the schema and, in process, the _time of the event that rows are told at.",
            )
        when = pl.col(TIME) if self.instant is None else pl.lit(self.instant, pl.Int64).alias(TIME)
        made = frame.select(
            when.cast(pl.Int64), *(pl.col(name).cast(dtype) for name, dtype in schema.items())
        )
        if self.instant is None and not (made[TIME] >= self.earliest).fill_null(False).all():
            raise UserError(
                "EMITTED_IN_THE_PAST",
                "rows were told with a _time before the events at hand",
                hint="A row happens when the event happens that it is told at: take that one's _time.",
            )
        self.frames.setdefault(to, []).append(made)

    def results(self) -> dict[str, pl.DataFrame]:
        """The rows told, by output."""
        return {name: pl.concat(frames) for name, frames in self.frames.items()}


def _frame(rows: Sequence[Mapping[str, Any]], schema: Schema, timed: bool) -> pl.DataFrame:
    types = ({TIME: pl.Int64()} if timed else {}) | dict(schema)
    if lost := sorted({name for row in rows for name in types if name not in row}):
        raise UserError(
            "EMITTED_WRONG_COLUMNS",
            f"rows were told without the columns {', '.join(lost)}",
            hint="Tell all columns of the schema (a value may be None) and, in process, the _time of the event that "
            "rows are told at.",
        )
    return pl.DataFrame({name: [row[name] for row in rows] for name in types}, schema=types)


def user_code_error(failure: Exception, code: Sequence[CodeType], what: str) -> PenstockError:
    """What to tell when the user's code, or what it called, raised: with the user's line."""
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
        hint="Nothing is lost: mend it and start again with the same state directory; the epoch is repeated.",
    )


def not_serializable_error(owner: str, state: Any, why: str) -> UserError:
    return UserError(
        "STATE_NOT_SERIALIZABLE",
        f"the state of {owner}, a {type(state).__qualname__}, cannot be kept",
        detail=why,
        hint="Make it of numbers, texts, times, lists, tuples, dictionaries, sets, Polars frames and NumPy arrays; "
        "or write serialize and deserialize.",
    )


def code_of(operator: CustomOperator) -> list[CodeType]:
    """The user's own methods."""
    mine = str(Path(sys.modules[CustomOperator.__module__].__file__ or "").resolve())
    found = (getattr(getattr(type(operator), name, None), "__code__", None) for name in dir(type(operator)))
    return [code for code in found if isinstance(code, CodeType) and code.co_filename != mine]

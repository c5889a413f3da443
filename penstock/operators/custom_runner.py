"""Execute a user's own operator: load the state of each bucket, feed it batches and ticks in order of time, store it.

State: `states`, a table of one row per bucket, its state as bytes and its next tick; `waiting`, rows not yet due; and
for operators that merge `parts`, the states of new events, each due at a tick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.duration import microseconds, spelled
from penstock.errors import UserError
from penstock.operators.contract import FOREVER, ORDER, TIME, Inputs, Operator, Progress, Results, SliceState
from penstock.operators.custom import (
    Context,
    CustomOperator,
    Out,
    code_of,
    not_serializable_error,
    user_code_error,
)
from penstock.operators.strict import add_position, take_due, total_order
from penstock.state.buckets import HASH, buckets_of, first_hash_of

_BUCKET, _STATE, _TICK = "_bucket", "_state", "_tick"
_TYPES = {HASH: pl.UInt64, _BUCKET: pl.Int64, _TICK: pl.Int64, _STATE: pl.Binary}
#: ticks that may follow the last event of an ended log
MOST_TICKS = 1_000_000


@dataclass(frozen=True)
class CustomRunner(Operator):
    """The user's `operator` per bucket of these keys. `ordering` is the order in which it receives rows."""

    kind: ClassVar[str] = "custom-operator"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    operator: CustomOperator
    columns: tuple[str, ...]
    #: the columns of each output; the main one is ""
    outputs: Mapping[str, Mapping[str, pl.DataType]]
    ordering: str

    @property
    def order(self) -> str:
        return self.ordering

    @property
    def every(self) -> int | None:
        return None if self.operator.every is None else microseconds(self.operator.every)

    @property
    def merges(self) -> bool:
        """Whether an epoch stores only what it adds."""
        merges = type(self.operator).merge is not CustomOperator.merge
        return merges and self.operator.commutative and self.every is not None and self.ordering == "epoch"

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        columns = dict.fromkeys((*self.keys, *self.columns))
        if self.ordering == "strict":
            return add_position(frame).select(*ORDER, *columns)
        return frame.select(TIME, *columns)

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        states = state.table("states", keys=(_BUCKET,))
        states.compact()
        before = states.all()
        work = _Work(self, progress)
        if self.merges:
            feeds = self._take_parts(inputs[0], state, progress, work)
        else:
            feeds = {}
            for bucket, pane, batch in self._batches(self._due_rows(inputs[0], state, progress), state):
                feeds.setdefault(bucket, []).append((pane, batch))
        stored: dict[int, tuple[bytes, int | None]] = {}
        if before is not None:
            needed = pl.col(_BUCKET).is_in(list(feeds)) | (pl.col(_TICK) <= progress.after)
            stored = {row[_BUCKET]: (row[_STATE], row[_TICK]) for row in _to_dicts(before.filter(needed))}
        after = []
        for bucket in sorted(feeds.keys() | stored.keys()):
            data, tick = stored.get(bucket, (None, None))
            data, tick = work.process_bucket(data, tick, feeds.get(bucket, []))
            after.append(_state_row(bucket, tick, data, state))
        if after:
            states.insert(pl.DataFrame(after, schema=_TYPES, orient="row"))
        return work.out.results()

    # -- rows ------------------------------------------------------------------------------------

    def _due_rows(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The rows to process now, in strict order if the operator needs it."""
        if self.ordering == "strict":
            rows = take_due(frame, state.journal("waiting", time=TIME), progress)
            order = None if rows is None else total_order(rows)
            return rows if rows is None or order is None else rows[order]
        if self.ordering == "none" or self.every is None:
            return frame
        # rows after a tick must not be processed before it
        reach = [(instant // self.every + 1) * self.every for instant in (progress.before, progress.after)]
        return take_due(frame, state.journal("waiting", time=TIME), Progress(reach[0], reach[1]))

    def _batches(
        self, rows: pl.DataFrame | None, state: SliceState
    ) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """(bucket, pane, batch), by bucket and pane: a pane is the time from one tick to the next."""
        if rows is None or not rows.height:
            return
        buckets = buckets_of(rows[HASH].to_numpy(), state.bucket_count).astype(np.int64)
        panes = (
            np.zeros(rows.height, dtype=np.int64)
            if self.every is None
            else rows[TIME].to_numpy() // self.every
        )
        order = np.lexsort((panes, buckets))
        buckets, panes = buckets[order], panes[order]
        cuts = np.flatnonzero((buckets[1:] != buckets[:-1]) | (panes[1:] != panes[:-1])) + 1
        rows = rows.select(TIME, *dict.fromkeys((*self.keys, *self.columns)))[order]
        for start, end in zip((0, *cuts), (*cuts, rows.height), strict=True):
            yield int(buckets[start]), int(panes[start]), rows[int(start) : int(end)]

    # -- operators that merge --------------------------------------------------------------------

    def _take_parts(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress, work: _Work
    ) -> dict[int, list[tuple[int, Any]]]:
        """The states to merge now, by bucket and pane; stores those of later ticks."""
        assert self.every is not None
        journal = state.journal("parts", time=_TICK)
        due: dict[int, list[tuple[int, Any]]] = {}
        for row in _to_dicts(journal.flush(progress.before + 1, progress.after + 1)):
            pane = row[_TICK] // self.every - 1
            due.setdefault(row[_BUCKET], []).append((pane, work.deserialize(row[_STATE])))
        later = []
        for bucket, pane, batch in self._batches(frame, state):
            part, tick = work.new_part(batch, pane), (pane + 1) * self.every
            if tick <= progress.after:
                due.setdefault(bucket, []).append((pane, part))
            else:
                later.append(_state_row(bucket, tick, work.serialize(part), state))
        if later:
            journal.insert(pl.DataFrame(later, schema=_TYPES, orient="row"))
        journal.compact(progress.after + 1)
        return {bucket: sorted(parts, key=lambda part: part[0]) for bucket, parts in due.items()}

    def describe(self) -> str:
        ticks = "" if self.every is None else f", a tick every {spelled(self.every)}"
        return f"{type(self.operator).__qualname__} per {', '.join(self.keys) or 'everything'}{ticks}"


class _Work:
    """Calls of the user's operator in one epoch on one slice."""

    def __init__(self, runner: CustomRunner, progress: Progress) -> None:
        self._operator, self._every, self._merges = runner.operator, runner.every, runner.merges
        self._progress = progress
        self._context = Context(runner.keys, dict(vars(runner.operator)))
        self._code = code_of(runner.operator)
        self.out = Out(runner.outputs)

    def process_bucket(
        self, data: bytes | None, tick: int | None, feeds: list[tuple[int, Any]]
    ) -> tuple[bytes, int | None]:
        """The state and next tick of a bucket after these batches (or parts) and the ticks that are due."""
        state = self._call(self._operator.init_state) if data is None else self.deserialize(data)
        for pane, feed in feeds:
            if self._every is not None:
                state, tick = self._call_ticks(state, tick, min(pane * self._every, self._progress.after))
                tick = (pane + 1) * self._every if tick is None else min(tick, (pane + 1) * self._every)
            if self._merges:
                state = _or(self._call(self._operator.merge, state, feed), state)
            else:
                state = self._process(feed, state, pane)
        if self._every is not None:
            state, tick = self._call_ticks(state, tick, self._progress.after)
        return self.serialize(state), tick

    def _call_ticks(self, state: Any, tick: int | None, last: int) -> tuple[Any, int | None]:
        """Call the ticks that are due up to the instant `last`."""
        assert self._every is not None
        called = 0
        while tick is not None and tick <= last:
            called += 1
            if last == FOREVER and called > MOST_TICKS:
                raise self._ticks_without_end()
            self.out.instant, self.out.refusal = tick - 1, None
            context = Context(self._context.keys, self._context.parameters, tick)
            state = _or(self._call(self._operator.on_watermark, state, self.out, context), state)
            tick = self._next_tick(self._call(self._operator.wants_ticks, state), tick)
        return state, tick

    def _next_tick(self, wanted: Any, tick: int) -> int | None:
        assert self._every is not None
        if wanted is False or wanted is None:
            return None
        if wanted is True:
            return tick + self._every
        if isinstance(wanted, datetime):
            wanted = round(
                (wanted - datetime.fromisoformat("1970-01-01T00:00:00Z")) / timedelta(microseconds=1)
            )
        return max(tick + self._every, -(-int(wanted) // self._every) * self._every)

    def _process(self, batch: pl.DataFrame, state: Any, pane: int) -> Any:
        self.out.instant, self.out.refusal = None, None
        self.out.earliest = int(batch[TIME].min())  # type: ignore[arg-type]
        tick = None if self._every is None else pane * self._every
        context = Context(self._context.keys, self._context.parameters, tick)
        return _or(self._call(self._operator.process, batch, state, self.out, context), state)

    def new_part(self, batch: pl.DataFrame, pane: int) -> Any:
        """A new state with these rows only."""
        self.out.refusal = "an operator that merges has only part of a state when it processes events"
        context = Context(self._context.keys, self._context.parameters, pane * (self._every or 0))
        state = self._call(self._operator.init_state)
        return _or(self._call(self._operator.process, batch, state, self.out, context), state)

    def deserialize(self, data: bytes) -> Any:
        return self._call(self._operator.deserialize, data)

    def serialize(self, state: Any) -> bytes:
        owner = type(self._operator).__qualname__
        try:
            data = self._operator.serialize(state)
        except TypeError as failure:
            if type(self._operator).serialize is CustomOperator.serialize:
                raise not_serializable_error(owner, state, str(failure)) from failure
            raise user_code_error(failure, self._code, f"{owner}.serialize") from failure
        except Exception as failure:
            raise user_code_error(failure, self._code, f"{owner}.serialize") from failure
        if not isinstance(data, bytes):
            raise not_serializable_error(
                owner, state, f"serialize returned a {type(data).__qualname__}, not bytes"
            )
        return data

    def _call(self, method: Callable[..., Any], *given: Any) -> Any:
        try:
            return method(*given)
        except Exception as failure:
            name = getattr(method, "__qualname__", str(method))
            raise user_code_error(failure, self._code, name) from failure

    def _ticks_without_end(self) -> UserError:
        operator = type(self._operator)
        where = inspect.getsourcefile(operator)
        return UserError(
            "TICKS_WITHOUT_END",
            f"{operator.__qualname__} still wants ticks after {MOST_TICKS:,} of them, and the log has ended",
            where=where and where.rsplit("/", 1)[-1],
            hint="wants_ticks must return False once nothing waits for time to pass, or the instant that it waits for.",
        )


def _or(returned: Any, state: Any) -> Any:
    """The returned state, or the given one if it was changed in place."""
    return state if returned is None else returned


def _to_dicts(frame: pl.DataFrame | None) -> list[dict[str, Any]]:
    return [] if frame is None else frame.to_dicts()


def _state_row(
    bucket: int, tick: int | None, data: bytes, state: SliceState
) -> tuple[int, int, int | None, bytes]:
    """A row of the state; its hash is the first one of the bucket."""
    return first_hash_of(bucket, state.bucket_count), bucket, tick, data

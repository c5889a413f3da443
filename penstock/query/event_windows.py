"""Windows over events in strict order: what they are called and which operator computes them. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.duration import Duration
from penstock.errors import UserError
from penstock.operators.contract import Operator
from penstock.operators.count_windows import CountWindows
from penstock.operators.functions import AggregateFunction
from penstock.operators.landmark_windows import CLOSES, OPENS, LandmarkWindows
from penstock.operators.session_windows import SessionWindows
from penstock.operators.time_windows import INSTANT
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.rows import KeyedRows
from penstock.query.window import Window
from penstock.query.windowed import Windowed


@dataclass(frozen=True)
class ByCount(Window):
    """Windows of `size` events, one every `every`; or, `growing`, at every event the last `size` there are."""

    size: int
    every: int
    growing: bool = False
    partial: bool = False
    forget_after: int | None = None

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"window_start": INSTANT, "window_end": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return CountWindows(
            keys, aggregates, self.size, self.every, self.growing, self.partial, self.forget_after
        )


@dataclass(frozen=True)
class InSessions(Window):
    """Sessions that end with a silence of `gap` microseconds, or `longest` after they began."""

    gap: int
    longest: int | None

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"window_start": INSTANT, "window_end": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return SessionWindows(keys, aggregates, self.gap, self.longest)


@dataclass(frozen=True)
class BetweenLandmarks(Window):
    """Windows from an opening event to a closing one, at the latest to `longest` after."""

    longest: int | None

    @property
    def columns(self) -> dict[str, pl.DataType]:
        closed = {} if self.longest is None else {"closed": pl.Boolean()}
        return {"window_start": INSTANT, "window_end": INSTANT, **closed}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return LandmarkWindows(keys, aggregates, self.longest)


@dataclass(frozen=True, eq=False)
class KeyedEventWindows(KeyedRows):
    """A keyed stream cut into windows by its events, taken in strict order: by (time, partition, offset)."""

    def count_window(
        self,
        size: int,
        every: int | None = None,
        *,
        partial: bool = False,
        forget_after: Duration | None = None,
    ) -> Windowed:
        """In windows of `size` events of a key, one beginning every `every` of them (`size` if not given).

        Window i holds the key's events from number i * every on, counted from 0. A window is told when it is
        full, at its last event; one that never is, is not told, unless `partial`: then when the log has ended for
        good. `window_start` and `window_end` are the times of its first and last event. What is kept of a key is
        kept for ever, unless `forget_after`: a key that has been silent as long begins anew.
        """
        origin = here()
        every = size if every is None else every
        if size < 1 or every < 1:
            raise _bad(
                "a count window needs a size and an advance of at least 1", origin, "count_window(100, 10)"
            )
        if partial and forget_after is not None:
            raise _bad(
                "a window that was forgotten cannot be told at the end",
                origin,
                'count_window(100, partial=True) or count_window(100, forget_after="1d")',
            )
        window = ByCount(
            size,
            every,
            partial=partial,
            forget_after=_long(forget_after, "a key cannot be forgotten after", origin),
        )
        return Windowed(self.node, self.keys, window)

    def last_window(self, n: int, *, whole: bool = False, forget_after: Duration | None = None) -> Windowed:
        """At every event over the last `n` events of its key, itself included.

        A key's first n - 1 events have fewer; with `whole` they give no row. `forget_after`: see `count_window`.
        """
        origin = here()
        if n < 1:
            raise _bad(f"the last {n} events are none", origin, "last_window(10)")
        forgetting = _long(forget_after, "a key cannot be forgotten after", origin)
        return Windowed(self.node, self.keys, ByCount(n, 1, growing=not whole, forget_after=forgetting))

    def session(self, gap: Duration, *, longest: Duration | None = None) -> Windowed:
        """In sessions: an event less than `gap` after the key's last one belongs to the same session.

        `window_start` is the time of the first event, `window_end` that of the last plus `gap`: a session is told
        when event time has come there. With `longest` it ends that long after it began at the latest, and the
        next event begins another.
        """
        origin = here()
        silence = check.duration(gap, origin, "BAD_WINDOW", "a session cannot end after a silence of")
        limit = _long(longest, "a session cannot be as long as", origin)
        return Windowed(self.node, self.keys, InSessions(silence, limit))

    def landmark(
        self,
        open: pl.Expr,
        close: pl.Expr,
        *,
        longest: Duration | None = None,
        keep_open: bool = False,
    ) -> Windowed:
        """In windows from an event for which `open` holds to the next for which `close` does, both included.

        One event can do both. Events of a key while none of its windows is open belong to nothing; an event that
        would open one while one is open is in that one. A window is told at its closing event; `window_start` and
        `window_end` are the times of its first and last event. With `longest` it ends that long after it began at
        the latest, and the column `closed` says whether it was closed. Without, a window that is never closed is
        never told and kept for ever: say `keep_open=True` if that is meant.
        """
        origin = here()
        if longest is None and not keep_open:
            raise UserError(
                "WINDOW_UNBOUNDED",
                "a landmark window that is never closed would be kept for ever",
                where=str(origin),
                hint='Say how long one may be, as in longest="1h", or keep_open=True if every window is closed.',
            )
        limit = _long(longest, "a landmark window cannot be as long as", origin)
        for name, predicate in (("open", open), ("close", close)):
            check.condition(self.node.schema, predicate, origin, f"{name!r}")
        marks = ((OPENS, open), (CLOSES, close))
        schema = {**self.node.schema, OPENS: pl.Boolean(), CLOSES: pl.Boolean()}
        node = logical.Map(origin, schema, self.node, marks, only=False)
        return Windowed(node, self.keys, BetweenLandmarks(limit))


def _long(given: Duration | None, what: str, origin: Origin) -> int | None:
    """A duration of at least a microsecond, if one is given."""
    return None if given is None else check.duration(given, origin, "BAD_WINDOW", what)


def _bad(what: str, origin: Origin, right: str) -> UserError:
    return UserError("BAD_WINDOW", what, where=str(origin), hint=f"As in {right}.")

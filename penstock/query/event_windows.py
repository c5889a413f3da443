"""The methods `count_window`, `last_window`, `session` and `landmark`: windows over events in strict order."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.duration import Duration
from penstock.errors import UserError
from penstock.operators.landmark_windows import CLOSES, OPENS
from penstock.origin import Origin, here
from penstock.query import check, logical
from penstock.query.rows import KeyedRows
from penstock.query.windowed import Windowed
from penstock.query.windows import BetweenLandmarks, ByCount, InSessions


@dataclass(frozen=True, eq=False)
class KeyedEventWindows(KeyedRows):
    """A keyed stream that can be cut into windows by its events, in strict order: by (time, partition, offset)."""

    def count_window(
        self,
        size: int,
        every: int | None = None,
        *,
        partial: bool = False,
        forget_after: Duration | None = None,
    ) -> Windowed:
        """Windows of `size` events of a key, one starting every `every` of them (`size` if not given).

        Window i holds the key's events from number i * every on, counted from 0. A window is emitted when it is full,
        at its last event. One that never fills up is not emitted, unless `partial`: then when the log has ended for
        good. `window_start` and `window_end` are the times of its first and last event. The state of a key is kept for
        ever, unless `forget_after`: then it is reset after a silence of that length.
        """
        origin = here()
        every = size if every is None else every
        if size < 1 or every < 1:
            raise _bad(
                "a count window needs a size and an advance of at least 1", origin, "count_window(100, 10)"
            )
        if partial and forget_after is not None:
            raise _bad(
                "a window that was forgotten cannot be emitted at the end",
                origin,
                'count_window(100, partial=True) or count_window(100, forget_after="1d")',
            )
        window = ByCount(
            size,
            every,
            partial=partial,
            forget_after=_check_duration(forget_after, "a key cannot be forgotten after", origin),
        )
        return Windowed(self.node, self.keys, window)

    def last_window(self, n: int, *, whole: bool = False, forget_after: Duration | None = None) -> Windowed:
        """At every event, a window of the last `n` events of its key, itself included.

        A key's first n - 1 events have fewer; with `whole` they give no row. `forget_after`: see `count_window`.
        """
        origin = here()
        if n < 1:
            raise _bad(f"the last {n} events are none", origin, "last_window(10)")
        idle_time = _check_duration(forget_after, "a key cannot be forgotten after", origin)
        return Windowed(self.node, self.keys, ByCount(n, 1, growing=not whole, forget_after=idle_time))

    def session(self, gap: Duration, *, longest: Duration | None = None) -> Windowed:
        """Sessions: an event less than `gap` after the key's last one belongs to the same session.

        `window_start` is the time of the first event, `window_end` that of the last plus `gap`. A session is emitted
        when the watermark passes its end. With `longest` it ends at the latest that long after its start, and the next
        event starts another.
        """
        origin = here()
        silence = check.duration(gap, origin, "BAD_WINDOW", "a session cannot end after a silence of")
        limit = _check_duration(longest, "a session cannot be as long as", origin)
        return Windowed(self.node, self.keys, InSessions(silence, limit))

    def landmark(
        self,
        open: pl.Expr,
        close: pl.Expr,
        *,
        longest: Duration | None = None,
        keep_open: bool = False,
    ) -> Windowed:
        """Windows from an event for which `open` holds to the next for which `close` does, both included.

        One event can do both. Events of a key with no open window are ignored; an event that would open a window while
        one is open is in that one. A window is emitted at its closing event; `window_start` and `window_end` are the
        times of its first and last event. With `longest` it ends at the latest that long after its start, and the
        column `closed` tells whether it was closed. Without, a window that is never closed is never emitted and its
        state is kept for ever: pass `keep_open=True` if that is intended.
        """
        origin = here()
        if longest is None and not keep_open:
            raise UserError(
                "WINDOW_UNBOUNDED",
                "a landmark window that is never closed would be kept for ever",
                where=str(origin),
                hint='Bound its length, as in longest="1h", or pass keep_open=True if every window is closed.',
            )
        limit = _check_duration(longest, "a landmark window cannot be as long as", origin)
        for name, predicate in (("open", open), ("close", close)):
            check.condition(self.node.schema, predicate, origin, f"{name!r}")
        marks = ((OPENS, open), (CLOSES, close))
        schema = {**self.node.schema, OPENS: pl.Boolean(), CLOSES: pl.Boolean()}
        node = logical.Map(origin, schema, self.node, marks, only=False)
        return Windowed(node, self.keys, BetweenLandmarks(limit))


def _check_duration(value: Duration | None, what: str, origin: Origin) -> int | None:
    """In microseconds, at least one; None stays None."""
    return None if value is None else check.duration(value, origin, "BAD_WINDOW", what)


def _bad(what: str, origin: Origin, right: str) -> UserError:
    return UserError("BAD_WINDOW", what, where=str(origin), hint=f"As in {right}.")

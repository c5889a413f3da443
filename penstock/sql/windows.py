"""Windows of a query: WINDOWING, and the functions TUMBLE, HOP and SESSION in GROUP BY or FROM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.duration import microseconds, spelled
from penstock.errors import UserError
from penstock.query.keyed import Keyed
from penstock.query.windowed import Windowed
from penstock.sql.dialect import Span, Windowing
from penstock.sql.errors import errors_at, query_error
from penstock.sql.statements import Scalar

#: returns the value of a literal or a parameter
LiteralValue = Callable[[exp.Expr], Scalar]

_EXAMPLES = {
    "tumble": "TUMBLE(ts, INTERVAL '30' SECOND)",
    "hop": "HOP(ts, INTERVAL '10' SECOND, INTERVAL '60' SECOND)",
    "session": "SESSION(ts, INTERVAL '30' MINUTE)",
}
#: functions that return an edge of the window, and the column that has it
EDGES = {
    f"{kind}_{edge}": column
    for kind in _EXAMPLES
    for edge, column in (("start", "window_start"), ("end", "window_end"))
}
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class WindowSpec:
    """A kind of window: sizes are microseconds, or events for "count"; "running" is totals without windows."""

    kind: Literal["time", "count", "session", "running"]
    size: int
    every: int | None = None
    offset: int = 0

    def apply(self, keyed: Keyed) -> Windowed:
        """The stream in these windows."""
        if self.kind == "count":
            return keyed.count_window(self.size, self.every)
        size = spelled(self.size)
        if self.kind == "session":
            return keyed.session(size)
        if self.kind == "running":
            return keyed.running(size)
        every = None if self.every is None else spelled(self.every)
        return keyed.window(size, every, spelled(self.offset))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns with the time of a result."""
        return ("as_of",) if self.kind == "running" else WINDOW_COLUMNS


RUNNING = WindowSpec("running", 1_000_000)


def read_windowing(node: Windowing, value_of: LiteralValue) -> WindowSpec:
    """The window of a `WINDOWING ...` clause."""
    size, in_events = _size(node.this, value_of)
    every: int | None = None
    if (advance := node.args.get("every")) is not None:
        every, also_in_events = _size(advance, value_of)
        if in_events != also_in_events:
            raise query_error(
                advance,
                "BAD_WINDOW",
                "a window has one unit",
                "Give both in events, or both in units of time.",
            )
    if node.args.get("session"):
        if in_events or every is not None:
            raise query_error(
                node, "BAD_WINDOW", "a session ends with a silence", "As in WINDOWING SESSION 30 MINUTES."
            )
        return WindowSpec("session", size)
    if in_events and min(size, every or size) < 1:
        raise query_error(node, "BAD_WINDOW", "a window needs events", "As in WINDOWING 100 EVENTS.")
    return WindowSpec("count" if in_events else "time", size, every)


def is_window(node: exp.Expr) -> bool:
    """Whether this is a call of TUMBLE, HOP or SESSION."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _EXAMPLES


def window_of_call(node: exp.Expr, lengths: Sequence[exp.Expr], value_of: LiteralValue) -> WindowSpec:
    """The window of TUMBLE, HOP or SESSION with these arguments after the time."""
    kind = node.name.lower()
    least, most = {"tumble": (1, 2), "hop": (2, 3), "session": (1, 1)}[kind]
    if not least <= len(lengths) <= most:
        raise query_error(
            node, "BAD_WINDOW", f"{kind} has another number of arguments", f"As in {_EXAMPLES[kind]}."
        )
    first, *rest = (interval_microseconds(length, value_of) for length in lengths)
    if kind == "session":
        return WindowSpec("session", first)
    size, every = (first, None) if kind == "tumble" else (rest.pop(0), first)
    return WindowSpec("time", size, every, *rest)


def read_within(node: Span, value_of: LiteralValue) -> tuple[int | None, int | None]:
    """The microseconds, or the number of events, of a bound of WITHIN."""
    size, in_events = _size(node, value_of)
    return (None, size) if in_events else (size, None)


def interval_microseconds(node: exp.Expr, value_of: LiteralValue) -> int:
    """The length of an INTERVAL, or of a text such as '30 seconds'."""
    number, unit = (node.this, node.args.get("unit")) if isinstance(node, exp.Interval) else (node, None)
    value = value_of(number) if number is not None else None
    text = f"{value} {unit.name}" if unit is not None else value
    if not isinstance(text, str):
        raise query_error(node, "BAD_DURATION", "this is no length of time", "As in INTERVAL '30' SECOND.")
    if unit is not None and unit.name.upper().rstrip("S") == "WEEK":
        return 7 * _microseconds(node, f"{value} day")
    return _microseconds(node, text)


def _size(node: Span, value_of: LiteralValue) -> tuple[int, bool]:
    """A size, and whether it counts events."""
    value, unit = value_of(node.this), node.args.get("unit")
    if unit is not None and unit.name in ("EVENT", "EVENTS"):
        if not isinstance(value, int) or isinstance(value, bool):
            raise query_error(node, "BAD_WINDOW", f"{value!r} is no number of events", "As in 100 EVENTS.")
        return value, True
    return _microseconds(node, f"{value} {unit.name}" if unit is not None else str(value)), False


def _microseconds(node: exp.Expr, text: str) -> int:
    with errors_at(node):
        try:
            return microseconds(text.lower())
        except UserError as error:
            hint = "Lengths are in MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS."
            raise UserError(error.condition, error.primary, hint=hint) from None

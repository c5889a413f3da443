"""Windows as queries say them: WINDOWING, group functions and table functions.

Receives the parts of a tree that speak of windows; hands a `Cut`, which cuts a keyed stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.duration import microseconds, spelled
from penstock.errors import UserError
from penstock.query import logical
from penstock.query.keyed import Keyed
from penstock.query.windowed import Windowed
from penstock.sql.dialect import Span, Windowing
from penstock.sql.places import located, refused
from penstock.sql.statements import Scalar

#: the value of a literal or a parameter
Value = Callable[[exp.Expr], Scalar]

_AS_IN = {
    "tumble": "TUMBLE(ts, INTERVAL '30' SECOND)",
    "hop": "HOP(ts, INTERVAL '10' SECOND, INTERVAL '60' SECOND)",
    "session": "SESSION(ts, INTERVAL '30' MINUTE)",
}
#: what of its window a function asks for
EDGES = {
    f"{kind}_{edge}": column
    for kind in _AS_IN
    for edge, column in (("start", "window_start"), ("end", "window_end"))
}
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class Cut:
    """How a stream is cut: sizes are microseconds, or events for "count"; "running" is not at all."""

    kind: Literal["time", "count", "session", "running"]
    size: int
    every: int | None = None
    offset: int = 0

    def windowed(self, keyed: Keyed) -> Windowed:
        """The stream, cut."""
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
        """The columns that say of when an answer is."""
        return ("as_of",) if self.kind == "running" else WINDOW_COLUMNS


RUNNING = Cut("running", 1_000_000)


def cut_of(node: Windowing, value: Value) -> Cut:
    """What `WINDOWING ...` says."""
    size, counted = _length(node.this, value)
    every: int | None = None
    if (advance := node.args.get("every")) is not None:
        every, also = _length(advance, value)
        if counted != also:
            raise refused(
                advance,
                "BAD_WINDOW",
                "a window has one unit",
                "Give both in events, or both in units of time.",
            )
    if node.args.get("session"):
        if counted or every is not None:
            raise refused(
                node, "BAD_WINDOW", "a session ends with a silence", "As in WINDOWING SESSION 30 MINUTES."
            )
        return Cut("session", size)
    if counted and min(size, every or size) < 1:
        raise refused(node, "BAD_WINDOW", "a window needs events", "As in WINDOWING 100 EVENTS.")
    return Cut("count" if counted else "time", size, every)


def is_window(node: exp.Expr) -> bool:
    """Whether this is a call of TUMBLE, HOP or SESSION."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _AS_IN


def cut_of_call(node: exp.Expr, lengths: Sequence[exp.Expr], value: Value) -> Cut:
    """What a call of a window function says by the arguments after the time."""
    kind = node.name.lower()
    if not (2 if kind == "hop" else 1) <= len(lengths) <= {"tumble": 2, "hop": 3, "session": 1}[kind]:
        raise refused(node, "BAD_WINDOW", f"{kind} has another number of arguments", f"As in {_AS_IN[kind]}.")
    told = [interval(length, value) for length in lengths]
    if kind == "tumble":
        return Cut("time", told[0], None, told[1] if len(told) > 1 else 0)
    if kind == "hop":
        return Cut("time", told[1], told[0], told[2] if len(told) > 2 else 0)
    return Cut("session", told[0])


def within(node: Span, value: Value) -> tuple[int | None, int | None]:
    """A length of time in microseconds, or a number of events."""
    size, counted = _length(node, value)
    return (None, size) if counted else (size, None)


def interval(node: exp.Expr, value: Value) -> int:
    """The microseconds of an INTERVAL, or of a text that names a length."""
    number, unit = (node.this, node.args.get("unit")) if isinstance(node, exp.Interval) else (node, None)
    told = value(number) if number is not None else None
    text = f"{told} {unit.name}" if unit is not None else told
    if not isinstance(text, str):
        raise refused(node, "BAD_DURATION", "this is no length of time", "As in INTERVAL '30' SECOND.")
    if unit is not None and unit.name.upper().rstrip("S") == "WEEK":
        text = f"{7 * float(str(told))} day"
    return _microseconds(node, text)


def _length(node: Span, value: Value) -> tuple[int, bool]:
    """How long, and whether that counts events."""
    told, unit = value(node.this), node.args.get("unit")
    if unit is not None and unit.name in ("EVENT", "EVENTS"):
        if not isinstance(told, int) or isinstance(told, bool):
            raise refused(node, "BAD_WINDOW", f"{told!r} is no number of events", "As in 100 EVENTS.")
        return told, True
    return _microseconds(node, f"{told} {unit.name}" if unit is not None else str(told)), False


def _microseconds(node: exp.Expr, text: str) -> int:
    with located(node):
        try:
            return microseconds(text.lower())
        except UserError as error:
            hint = "Lengths are in MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS."
            raise UserError(error.condition, error.primary, hint=hint) from None


def event_times(node: logical.Node) -> set[str]:
    """The columns that hold the time by which rows are put in windows."""
    if isinstance(node, logical.Source):
        return {node.stream.time} if node.stream.time is not None else set()
    below = [event_times(part) for part in node.inputs]
    if isinstance(node, logical.Map):
        kept = {name for name in below[0] if not node.only and name not in dict(node.columns)}
        return kept | {name for name, expr in node.columns if _column(expr) in below[0]}
    if isinstance(node, logical.Union):
        return set.intersection(*below)
    ends = {"window_end", "as_of"} if isinstance(node, logical.Stateful) else set()
    return (set().union(*below) | ends) & set(node.schema)


def _column(expr: object) -> str | None:
    """The name of the column that an expression is, if it is no more than that."""
    meta = getattr(expr, "meta", None)
    if meta is None or not meta.is_column():
        return None
    return str(meta.root_names()[0])

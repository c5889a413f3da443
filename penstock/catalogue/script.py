"""Read a text of statements, and locate errors in it.

Errors name the line and column in the whole text, and the job or stream where there are several.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.sql.errors import format_position, line_and_column
from penstock.sql.parse import parse
from penstock.sql.statements import AlterJob, CreateJob, CreateStream, Explain, Select, Statement

_POSITION = re.compile(r"line (\d+), column (\d+)")
_SINK = re.compile(r"sink (\d+)")


@dataclass(frozen=True)
class Script:
    """A text and its statements. `name` is what errors call it: that of its file, where it has one."""

    text: str
    statements: Sequence[Statement]
    name: str | None = None

    def start(self, statement: Statement) -> int:
        """Where a statement starts in the text, which may contain it more than once."""
        at = end = 0
        for one in self.statements:
            at = max(self.text.find(one.text, end), end)
            end = at + len(one.text)
            if one is statement:
                break
        return at


def read_script(text: str, name: str | None = None) -> Script:
    """Parse a text; an error names its position in it."""
    try:
        return Script(text, parse(text), name)
    except PenstockError as error:
        raise _with_position(error, _within(name, error.where)) from error


@contextlib.contextmanager
def locate_errors(script: Script | None, statement: Statement) -> Iterator[None]:
    """Let errors of a statement name their position in the whole text. An error of a single statement without a
    position of its own gets none."""
    try:
        yield
    except PenstockError as error:
        alone = script is None or (script.name is None and len(script.statements) == 1)
        if script is None or (alone and error.where is None):
            raise
        position = _position(script, statement, error.where or "")
        about = "" if alone else _about(statement)
        raise _with_position(error, _within(script.name, f"{position}{about}")) from error


def _position(script: Script, statement: Statement, where: str) -> str:
    if isinstance(statement, CreateJob) and (sink := _SINK.fullmatch(where)):
        return format_position(*statement.sinks[int(sink[1]) - 1].at)
    start = script.start(statement)
    inner, query = _POSITION.fullmatch(where), _query(statement)
    if inner is None or (isinstance(statement, AlterJob) and query is None):
        return format_position(*line_and_column(script.text, start))
    if query is not None:  # an error in a query names its position in the query
        start = max(script.text.find(query.text, start), start)
    line, column = line_and_column(script.text, start)
    inner_line, inner_column = int(inner[1]), int(inner[2])
    return format_position(line + inner_line - 1, inner_column + (column - 1 if inner_line == 1 else 0))


def _query(statement: Statement) -> Select | None:
    match statement:
        case CreateJob(select=select) | AlterJob(select=select):
            return select
        case Explain(what=Select() as select):
            return select
    return None


def _about(statement: Statement) -> str:
    match statement:
        case CreateJob(name=name) | AlterJob(name=name):
            return f", in job {name}"
        case CreateStream(name=name):
            return f", in stream {name}"
    return ""


def _within(name: str | None, position: str | None) -> str | None:
    return position if name is None else name if position is None else f"{name}, {position}"


def _with_position(error: PenstockError, where: str | None) -> PenstockError:
    return type(error)(error.condition, error.primary, detail=error.detail, hint=error.hint, where=where)

"""A text of statements as a whole: where in it something is wrong.

Receives a text, and the name of its file where it has one; hands its statements, and errors that name the line and the
column of the whole text, and the job or stream that is spoken of where there are several.
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

_PLACE = re.compile(r"line (\d+), column (\d+)")
_SINK = re.compile(r"sink (\d+)")


@dataclass(frozen=True)
class Script:
    """A text and its statements. `name` is what errors call it: that of its file, where it has one."""

    text: str
    statements: Sequence[Statement]
    name: str | None = None

    def start(self, statement: Statement) -> int:
        """Where a statement begins, which may stand there more than once."""
        at = end = 0
        for one in self.statements:
            at = max(self.text.find(one.text, end), end)
            end = at + len(one.text)
            if one is statement:
                break
        return at


def script(text: str, name: str | None = None) -> Script:
    """A text, read; what cannot be read is told by its place in it."""
    try:
        return Script(text, parse(text), name)
    except PenstockError as error:
        raise _moved(error, _within(name, error.where)) from error


@contextlib.contextmanager
def placed(script: Script | None, statement: Statement) -> Iterator[None]:
    """Let what a statement raises name its place in the whole text; a statement by itself that has nothing wrong at
    any place of it names none."""
    try:
        yield
    except PenstockError as error:
        alone = script is None or (script.name is None and len(script.statements) == 1)
        if script is None or (alone and error.where is None):
            raise
        place = _place(script, statement, error.where or "")
        about = "" if alone else _about(statement)
        raise _moved(error, _within(script.name, f"{place}{about}")) from error


def _place(script: Script, statement: Statement, where: str) -> str:
    if isinstance(statement, CreateJob) and (sink := _SINK.fullmatch(where)):
        return format_position(*statement.sinks[int(sink[1]) - 1].at)
    start = script.start(statement)
    found, query = _PLACE.fullmatch(where), _query(statement)
    if found is None or (isinstance(statement, AlterJob) and query is None):
        return format_position(*line_and_column(script.text, start))
    if query is not None:  # what is wrong in a query is told by its place in the query
        start = max(script.text.find(query.text, start), start)
    line, column = line_and_column(script.text, start)
    inner = int(found[1]), int(found[2])
    return format_position(line + inner[0] - 1, inner[1] + (column - 1 if inner[0] == 1 else 0))


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


def _within(name: str | None, place: str | None) -> str | None:
    return place if name is None else name if place is None else f"{name}, {place}"


def _moved(error: PenstockError, where: str | None) -> PenstockError:
    return type(error)(error.condition, error.primary, detail=error.detail, hint=error.hint, where=where)

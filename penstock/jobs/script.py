"""Texts of statements as a whole: where in them something is wrong, and the plans of their jobs. Nothing is run.

Receives the texts and what Python gives; hands what EXPLAIN says of every job in them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.jobs.catalogue import Catalogue
from penstock.jobs.commands import Answered, Desk
from penstock.jobs.workshop import Given, Workshop
from penstock.sql.parse import parse
from penstock.sql.statements import CreateJob, Explain, Statement
from penstock.words.errors import PenstockError

_PLACE = re.compile(r"line (\d+), column (\d+)")


@dataclass(frozen=True)
class Script:
    """A text and its statements. `name` is what errors call it, where there are several."""

    text: str
    statements: Sequence[Statement]
    name: str | None = None


def script(text: str, name: str | None = None) -> Script:
    """A text, read; what cannot be read is told by its place in it."""
    try:
        return Script(text, parse(text), name)
    except PenstockError as error:
        raise _moved(error, _within(name, error.where)) from error


def explained(scripts: Sequence[Script], given: Given, *, all_jobs: bool = True) -> list[Answered]:
    """What EXPLAIN says of the jobs of texts (or only of those they ask about themselves), each under its name."""
    workshop = Workshop(given)
    desk = Desk(workshop, given, sum(len(one.statements) for one in scripts) + len(given.queries))
    catalogue = desk.begun([], Catalogue(), first=True).catalogue
    told: list[Answered] = []
    for within, statement in [(one, statement) for one in scripts for statement in one.statements]:
        with placed(within, statement):
            accepted = desk.begun([statement], catalogue, first=True)
        catalogue = accepted.catalogue
        if isinstance(statement, Explain):
            told += [answer for answer in accepted.answers if answer.question]
    if all_jobs:
        asked = [Explain(name, "") for name in catalogue.jobs]
        told = desk.accepted(asked, catalogue).answers + told
    return told


@contextlib.contextmanager
def placed(script: Script, statement: Statement) -> Iterator[None]:
    """Let what a statement raises name the line and column of the whole text it is in."""
    text = script.text
    try:
        yield
    except PenstockError as error:
        start = max(text.find(statement.text), 0)
        found = _PLACE.fullmatch(error.where or "")
        line, column = (int(found[1]), int(found[2])) if found else (1, 1)
        if found and isinstance(statement, CreateJob):
            # what is wrong in a query is told by its place in the query
            start = max(text.find(statement.select.text, start), start)
        if found and isinstance(statement, Explain) and not isinstance(statement.what, str):
            start = max(text.find(statement.what.text, start), start)
        before = text[:start]
        if line == 1:
            column += start - (before.rfind("\n") + 1)
        line += before.count("\n")
        raise _moved(error, _within(script.name, f"line {line}, column {column}")) from error


def _within(name: str | None, place: str | None) -> str | None:
    return place if name is None else name if place is None else f"{name}, {place}"


def _moved(error: PenstockError, where: str | None) -> PenstockError:
    return type(error)(error.condition, error.primary, detail=error.detail, hint=error.hint, where=where)

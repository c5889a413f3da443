"""A text of statements as a whole: where in it something is wrong, and the plans of its jobs. Nothing is run or kept.

Receives the text and what Python gives; hands what EXPLAIN says of every job in it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from penstock.jobs.catalogue import Catalogue
from penstock.jobs.commands import Answered, Desk
from penstock.jobs.workshop import Given, Workshop
from penstock.sql.statements import CreateJob, Explain, Statement
from penstock.words.errors import PenstockError

_PLACE = re.compile(r"line (\d+), column (\d+)")


def explained(
    text: str, statements: Sequence[Statement], given: Given, *, all_jobs: bool = True
) -> list[Answered]:
    """What EXPLAIN says of the jobs of a text (or only of those it asks about itself), each under its name."""
    workshop = Workshop(given)
    desk = Desk(workshop, given, len(statements) + len(given.queries))
    catalogue = desk.begun([], Catalogue(), first=True).catalogue
    told: list[Answered] = []
    for statement in statements:
        with placed(text, statement):
            accepted = desk.begun([statement], catalogue, first=True)
        catalogue = accepted.catalogue
        if isinstance(statement, Explain):
            told += [answer for answer in accepted.answers if answer.question]
    if all_jobs:
        asked = [Explain(name, "") for name in catalogue.jobs]
        told = desk.accepted(asked, catalogue).answers + told
    return told


@contextlib.contextmanager
def placed(text: str, statement: Statement) -> Iterator[None]:
    """Let what a statement raises name the line and column of the whole text."""
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
        raise type(error)(
            error.condition,
            error.primary,
            detail=error.detail,
            hint=error.hint,
            where=f"line {line}, column {column}",
        ) from error

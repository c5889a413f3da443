"""Places in a query's text: what is wrong, and where.

Receives trees, tokens and offsets; hands `UserError`s that name line and column, both counted from 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlglot import exp

from penstock.errors import UserError

#: of a long line, how much is shown on either side of the fault
_SHOWN = 60


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Where an offset of a text is."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def bad_sql(text: str, offset: int, primary: str, hint: str) -> UserError:
    """A text that is no SQL of ours: with the line at fault, and a caret under the place."""
    line, column = line_and_column(text, offset)
    begin = offset - column + 1
    whole = text[begin:].split("\n", 1)[0].rstrip("\r").replace("\t", " ")
    first = max(0, column - 1 - _SHOWN)
    shown = whole[first : column - 1 + _SHOWN]
    caret = " " * (column - 1 - first) + "^"
    return UserError(
        "BAD_SQL", primary, where=said(line, column), detail=f"\n  {shown}\n  {caret}", hint=hint
    )


def said(line: int, column: int) -> str:
    """A place as errors name it."""
    return f"line {line}, column {column}"


def place_of(node: exp.Expr) -> str | None:
    """Where a part of a query stands: where its first word does; None if nothing in or around it knows."""
    around: exp.Expr | None = node
    while around is not None:
        places = [meta for part in around.walk() if (meta := part.meta).get("line") is not None]
        if places:
            first = min(places, key=lambda meta: int(meta["start"]))
            return said(first["line"], first["col"] - (first["end"] - first["start"]))
        around = around.parent
    return None


def refused(node: exp.Expr, condition: str, primary: str, hint: str | None = None) -> UserError:
    """The error for a part of a query."""
    return UserError(condition, primary, where=place_of(node), hint=hint)


@contextmanager
def located(node: exp.Expr) -> Iterator[None]:
    """What the stream API refuses in here is refused at this part of the query."""
    try:
        yield
    except UserError as error:
        if (error.where or "").startswith("line "):
            raise
        raise UserError(
            error.condition, error.primary, where=place_of(node), detail=error.detail, hint=error.hint
        ) from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint at the known name that is most like this one; None if none is."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[near[0]]!r}?" if near else None

"""Errors of a query with their position in its text: line and column, both counted from 1."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import overload

from sqlglot import exp

from penstock.errors import UserError
from penstock.secret_store import redact

#: how many characters of a long line are shown on either side of the fault
_SHOWN = 60
#: characters of a part of an error
_MOST_SHOWN = 1_000


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The position of an offset in a text."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def format_position(line: int, column: int) -> str:
    """A position as errors name it."""
    return f"line {line}, column {column}"


def syntax_error(text: str, offset: int, primary: str, hint: str) -> UserError:
    """The error for text that cannot be parsed: shows the line at fault, with a caret under the position."""
    line, column = line_and_column(text, offset)
    whole = text[offset - column + 1 :].split("\n", 1)[0].rstrip("\r").replace("\t", " ")
    first = max(0, column - 1 - _SHOWN)
    shown = whole[first : column - 1 + _SHOWN]
    caret = " " * (column - 1 - first) + "^"
    where, detail = format_position(line, column), f"\n  {shown}\n  {caret}"
    if redact(whole) != whole:  # whatever part of the line is shown, no password is
        detail = f"\n  {redact(whole)[: 2 * _SHOWN]}"
    return UserError("BAD_SQL", _shorten(redact(primary)), where=where, detail=detail, hint=_shorten(hint))


def position_of(node: exp.Expr) -> str | None:
    """The position of the first word of a part of a query; None if neither it nor what is around it has one."""
    around: exp.Expr | None = node
    while around is not None:
        places = [meta for part in around.walk() if (meta := part.meta).get("line") is not None]
        if places:
            first = min(places, key=lambda meta: int(meta["start"]))
            return format_position(first["line"], first["col"] - (first["end"] - first["start"]))
        around = around.parent
    return None


def query_error(node: exp.Expr, condition: str, primary: str, hint: str | None = None) -> UserError:
    """The error for a part of a query."""
    return UserError(condition, _shorten(primary), where=position_of(node), hint=_shorten(hint))


@contextmanager
def errors_at(node: exp.Expr) -> Iterator[None]:
    """Give errors of the stream API the position of this part of the query."""
    try:
        yield
    except UserError as error:
        if (error.where or "").startswith("line "):
            raise
        raise UserError(
            error.condition,
            _shorten(error.primary),
            where=position_of(node),
            detail=_shorten(error.detail),
            hint=_shorten(error.hint),
        ) from None


@overload
def _shorten(text: str) -> str: ...
@overload
def _shorten(text: str | None) -> str | None: ...
def _shorten(text: str | None) -> str | None:
    """A text of an error; what a statement repeats in it can be as long as the statement."""
    return text if text is None or len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def check_clauses(node: exp.Expr, known: Collection[str]) -> None:
    """Raise for a clause that nothing here reads: to ignore it would change what the query means."""
    for name, part in node.args.items():
        if part and name not in known:
            hint = "The best of every window: ORDER BY n DESC LIMIT 10." if name == "offset" else None
            clause = name.rstrip("_").upper()
            raise query_error(
                part if isinstance(part, exp.Expr) else node,
                "UNSUPPORTED_SQL",
                f"{clause} is not part of the language here",
                hint,
            )


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """A hint at the most similar known name; None if none is similar."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[near[0]]!r}?" if near else None

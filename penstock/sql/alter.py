"""A query with another filter or another limit: the user's text with one clause replaced, all else as it was.

Receives a query; hands another that has been read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from penstock.errors import UserError
from penstock.sql.queries import select_of, tokenized
from penstock.sql.statements import Select
from penstock.sql.words import Words, depths, is_word

#: the clauses of a query in an order that can be read, by their first words
_CLAUSES = (
    ("SELECT",),
    ("FROM",),
    ("WHERE",),
    ("GROUP BY", "GROUP"),
    ("HAVING",),
    ("ORDER BY", "SORT BY", "ORDER", "SORT"),
    ("LIMIT",),
    ("WINDOWING",),
)
_WHERE, _LIMIT = 2, 6


def altered(select: Select, where: str | None, limit: int | None) -> Select:
    """The query with another filter, another limit, or both; what is None stays."""
    if not isinstance(select.tree, exp.Select) or select.text.lstrip().startswith("("):
        raise UserError(
            "BAD_ALTER",
            "only a single SELECT has one filter and one limit",
            hint="Say the whole query anew: ALTER JOB name AS SELECT ....",
        )
    text = select.text
    if where is not None:
        text = _replaced(text, _WHERE, f"WHERE {where}")
    if limit is not None:
        text = _replaced(text, _LIMIT, f"LIMIT {limit}")
    return select_of(Words(text, tokenized(text)))


def _replaced(text: str, clause: int, said: str) -> str:
    tokens = tokenized(text)
    begins = _beginnings(tokens)
    begin = begins.get(clause)
    if begin is None:
        # before the first clause that comes after it
        before = min((at for other, at in begins.items() if other > clause), default=len(tokens))
        head, tail = text[: tokens[before - 1].end + 1], text[tokens[before - 1].end + 1 :]
        return f"{head} {said}{tail}"
    after = min((at for at in begins.values() if at > begin), default=len(tokens))
    return text[: tokens[begin].start] + said + text[tokens[after - 1].end + 1 :]


def _beginnings(tokens: Sequence[Token]) -> dict[int, int]:
    """The token each clause of the outermost SELECT begins with."""
    found: dict[int, int] = {}
    for at, (token, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
        for number, words in enumerate(_CLAUSES):
            if depth == 0 and is_word(token, *words):
                found.setdefault(number, at)
    return found

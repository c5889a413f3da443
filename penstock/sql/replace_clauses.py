"""Replace the filter or the limit in the text of a query; all else stays as it was written."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from penstock.errors import UserError
from penstock.sql.query_parser import read_select, read_tokens
from penstock.sql.statements import Select
from penstock.sql.token_reader import TokenReader, is_keyword, nesting_depths

#: the clauses of a query in an order that can be parsed, by their first words
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


def replace_clauses(select: Select, where: str | None, limit: int | None) -> Select:
    """Give a query another filter, another limit, or both; what is None stays."""
    if not isinstance(select.tree, exp.Select) or select.text.lstrip().startswith("("):
        raise UserError(
            "BAD_ALTER",
            "only a single SELECT has one filter and one limit",
            hint="Declare the whole query: ALTER JOB name AS SELECT ....",
        )
    text = select.text
    if where is not None:
        text = _replace(text, _WHERE, f"WHERE {where}")
    if limit is not None:
        text = _replace(text, _LIMIT, f"LIMIT {limit}")
    return read_select(TokenReader(text, read_tokens(text)))


def _replace(text: str, clause: int, replacement: str) -> str:
    tokens = read_tokens(text)
    starts = _clause_starts(tokens)
    if (start := starts.get(clause)) is None:
        # before the first clause that comes after it
        before = min((at for other, at in starts.items() if other > clause), default=len(tokens))
        head, tail = text[: tokens[before - 1].end + 1], text[tokens[before - 1].end + 1 :]
        return f"{head} {replacement}{tail}"
    after = min((at for at in starts.values() if at > start), default=len(tokens))
    return text[: tokens[start].start] + replacement + text[tokens[after - 1].end + 1 :]


def _clause_starts(tokens: Sequence[Token]) -> dict[int, int]:
    """The first token of each clause of the outermost SELECT."""
    starts: dict[int, int] = {}
    for at, (token, depth) in enumerate(zip(tokens, nesting_depths(tokens), strict=True)):
        for number, words in enumerate(_CLAUSES):
            if depth == 0 and is_keyword(token, *words):
                starts.setdefault(number, at)
    return starts

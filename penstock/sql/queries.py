"""The text of a query to its tree, through sqlglot.

Receives text or tokens; hands a `Select`, or raises `UserError` with BAD_SQL (and the place), QUERY_TOO_LONG or
QUERY_TOO_DEEP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from penstock.errors import UserError
from penstock.sql.dialect import Penstock, tokens_of
from penstock.sql.places import bad_sql
from penstock.sql.statements import Select
from penstock.sql.words import Words, depths, is_word

#: characters of a text
MOST_TEXT = 1_000_000
#: parentheses in one another, and steps of an expression
MOST_PARENTHESES, MOST_STEPS = 25, 100


def tokenized(text: str) -> list[Token]:
    """The tokens of a text that is not too long."""
    if len(text) > MOST_TEXT:
        raise UserError(
            "QUERY_TOO_LONG",
            f"the text has {len(text):,} characters",
            hint=f"At most {MOST_TEXT:,} are read at once.",
        )
    try:
        return tokens_of(text)
    except TokenError as error:
        found = re.search(r"Missing (.+) from \d+:(\d+)", str(error.__cause__))
        if found is None:
            raise bad_sql(text, 0, "the text cannot be read", "Look for a sign that is no SQL.") from None
        raise bad_sql(
            text,
            min(int(found[2]), len(text)),
            f"{found[1]} is missing",
            "What is opened here must be closed.",
        ) from None


def select_of(words: Words, end: int | None = None) -> Select:
    """Read a query, up to the token `end`."""
    first, end = words.at, len(words.tokens) if end is None else end
    tokens = words.tokens[first:end]
    if not tokens or not (is_word(tokens[0], "SELECT", "WITH", "(")):
        words.refuse("a query was expected here: SELECT ...")
    for token, depth in zip(tokens, depths(tokens), strict=True):
        if depth < 0:
            raise bad_sql(words.whole, token.start, "this parenthesis closes nothing", "Leave it out.")
        if depth > MOST_PARENTHESES:
            raise _too_deep(f"more than {MOST_PARENTHESES} parentheses are open at once")
    tree = _tree(words.whole, tokens, exp.Query)
    words.at = end
    return Select(words.slice(first, end), tree)


def check_condition(words: Words, end: int) -> None:
    """Raise unless the words up to the token `end` are a condition."""
    _tree(words.whole, words.tokens[words.at : end], exp.Condition)


def _tree(text: str, tokens: Sequence[Token], kind: type[exp.Expr]) -> exp.Expr:
    """What sqlglot makes of some tokens."""
    parser = Penstock().parser()
    try:
        whole = parser.parse if kind is exp.Query else lambda *given: parser.parse_into(kind, *given)
        tree = whole(list(tokens), text)[0]
    except ParseError as error:
        raise _unreadable(text, tokens, error) from None
    except RecursionError:
        raise _too_deep("it is nested too deeply") from None
    if tree is None or not isinstance(tree, kind):
        raise bad_sql(text, tokens[0].start, "this is no query", "Write SELECT ... FROM ....")
    _check_steps(tree)
    return tree


def _unreadable(text: str, tokens: Sequence[Token], error: ParseError) -> UserError:
    found = error.errors[0] if error.errors else {}
    place = (found.get("line"), found.get("col"))
    at = next((token for token in tokens if (token.line, token.col) == place), tokens[-1])
    written = text[at.start : at.end + 1].split("\n")[0]
    description = str(found.get("description") or "")
    hint = {
        "": "Look at what stands before it.",
        "Invalid expression / Unexpected token": "Another clause, an operator or the end was expected here; "
        "a name that is a word of the language must be quoted with backticks.",
    }.get(description, f"{description.split(' but got')[0]}.".replace("Expecting", "Expected"))
    return bad_sql(text, at.start, f"{written!r} cannot be read here", hint)


def _check_steps(tree: exp.Expr) -> None:
    """Raise for expressions of too many steps; a chain of ANDs, or of ORs, is one."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_STEPS:
            raise _too_deep(f"an expression has more than {MOST_STEPS} steps in one another")
        for child in node.iter_expressions():
            chained = isinstance(child, exp.And | exp.Or | exp.Union) and type(child) is type(node)
            waiting.append((child, depth + (not chained)))


def _too_deep(detail: str) -> UserError:
    return UserError(
        "QUERY_TOO_DEEP",
        "the query is nested too deeply",
        detail=detail,
        hint="Give parts of it names: WITH part AS (SELECT ...).",
    )

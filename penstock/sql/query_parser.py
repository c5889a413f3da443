"""Parse the text of a query to its tree with sqlglot.

Raises `UserError` BAD_SQL (with the position), QUERY_TOO_LONG or QUERY_TOO_DEEP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from penstock.errors import UserError
from penstock.sql.dialect import Penstock, tokenize
from penstock.sql.errors import syntax_error
from penstock.sql.parsed_texts import remember_parsed
from penstock.sql.statements import Select
from penstock.sql.token_reader import TokenReader, is_keyword, nesting_depths

#: characters of a text
MOST_CHARACTERS = 1_000_000
#: parentheses in one another, and levels of an expression
MOST_PARENTHESES, MOST_LEVELS = 25, 100


def read_tokens(text: str) -> list[Token]:
    """The tokens of a text."""
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            "QUERY_TOO_LONG",
            f"the text has {len(text):,} characters",
            hint=f"At most {MOST_CHARACTERS:,} are parsed at once.",
        )
    try:
        return tokenize(text)
    except TokenError as error:
        missing = re.search(r"Missing (.+) from \d+:(\d+)", str(error.__cause__))
        if missing is None:
            hint = "Look for a character that is no SQL."
            raise syntax_error(text, 0, "the text cannot be parsed", hint) from None
        offset = min(int(missing[2]), len(text))
        hint = "What is opened here must be closed."
        raise syntax_error(text, offset, f"{missing[1]} is missing", hint) from None


def read_select(reader: TokenReader, end: int | None = None) -> Select:
    """Read a query, up to the token `end`."""
    first, end = reader.at, len(reader.tokens) if end is None else end
    tokens = reader.tokens[first:end]
    if not tokens or not (is_keyword(tokens[0], "SELECT", "WITH", "(")):
        reader.fail("a query was expected here: SELECT ...")
    for token, depth in zip(tokens, nesting_depths(tokens), strict=True):
        if depth < 0:
            raise syntax_error(reader.source, token.start, "this parenthesis closes nothing", "Leave it out.")
        if depth > MOST_PARENTHESES:
            raise _too_deep(f"more than {MOST_PARENTHESES} parentheses are open at once")
    tree = _parse(reader.source, tokens, exp.Query)
    reader.at = end
    select = Select(reader.slice(first, end), tree)
    remember_parsed(select.text, (select,))
    return select


def check_condition(reader: TokenReader, end: int) -> None:
    """Raise unless the tokens up to `end` are a condition."""
    _parse(reader.source, reader.tokens[reader.at : end], exp.Condition)


def _parse(text: str, tokens: Sequence[Token], kind: type[exp.Expr]) -> exp.Expr:
    """The tree of some tokens. Positions in it count from the first one: it is that of their text alone."""
    parser, own = Penstock().parser(), _shift(tokens)
    own_text = text[tokens[0].start : tokens[-1].end + 1]
    try:
        if kind is exp.Query:
            tree = parser.parse(list(own), own_text)[0]
        else:
            tree = parser.parse_into(kind, list(own), own_text)[0]
    except ParseError as error:
        raise _parse_error(text, tokens, own, error) from None
    except RecursionError:
        raise _too_deep("it is nested too deeply") from None
    if tree is None or not isinstance(tree, kind):
        raise syntax_error(text, tokens[0].start, "this is no query", "Write SELECT ... FROM ....")
    _check_depth(tree)
    return tree


def _shift(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with positions as if their text started with the first one."""
    first = tokens[0]
    before, lines = first.start, first.line - 1
    columns = first.col - (first.end - first.start + 1)
    return [
        Token(
            one.token_type,
            one.text,
            one.line - lines,
            one.col - columns if one.line == first.line else one.col,
            one.start - before,
            one.end - before,
            one.comments,
        )
        for one in tokens
    ]


def _parse_error(text: str, tokens: Sequence[Token], own: Sequence[Token], error: ParseError) -> UserError:
    first = error.errors[0] if error.errors else {}
    position = (first.get("line"), first.get("col"))
    at = next(
        (
            token
            for token, shifted in zip(tokens, own, strict=True)
            if (shifted.line, shifted.col) == position
        ),
        tokens[-1],
    )
    written = text[at.start : at.end + 1].split("\n")[0]
    description = str(first.get("description") or "")
    hint = {
        "": "Look at what stands before it.",
        "Invalid expression / Unexpected token": "Another clause, an operator or the end was expected here; "
        "a name that is a word of the language must be quoted with backticks.",
    }.get(description, f"{description.split(' but got')[0]}.".replace("Expecting", "Expected"))
    return syntax_error(text, at.start, f"{written!r} cannot be parsed here", hint)


def _check_depth(tree: exp.Expr) -> None:
    """Raise for expressions of too many levels; a chain of ANDs, or of ORs, is one level."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_LEVELS:
            raise _too_deep(f"an expression has more than {MOST_LEVELS} levels")
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

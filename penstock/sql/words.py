"""A statement's words, one after the other: what is expected next, and an error at the place where it is not.

Receives tokens of one statement; hands the parser of statements names, values, lengths and calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.sql.places import bad_sql, line_and_column
from penstock.sql.statements import Call, Scalar

_NAME = re.compile(r"[^\W\d]\w*")
#: words that mean something in a query or a statement: as names they must be quoted
_RESERVED = """
    ALL ALTER AND AS ASC BETWEEN BY CASE CAST CREATE CROSS DESC DISTINCT DROP ELSE EMPTY END EVERY EXISTS
    EXPLAIN FALSE FLUSH FROM FULL GROUP HAVING IN INNER INTERVAL INTO IS JOB JOBS JOIN LATEST LEFT LIKE LIMIT NOT
    NULL OFFSET ON OR ORDER OUTER PAUSE REBUILD RESUME RIGHT SELECT SET SHOW SORT STREAM STREAMS TABLE THEN TRUE
    UNION USING VALUES WHEN WHERE WINDOWING WITH WITHIN
"""
RESERVED = frozenset(_RESERVED.split())
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def depths(tokens: Sequence[Token]) -> list[int]:
    """For each token how many parentheses are open around it."""
    found, depth = [], 0
    for token in tokens:
        depth -= token.token_type in _CLOSING
        found.append(depth)
        depth += token.token_type in _OPENING
    return found


def is_word(token: Token, *words: str) -> bool:
    """Whether a token is one of these words, and no text or quoted name."""
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return not quoted and token.text.upper() in words


class Words:
    """The tokens of one statement, and how far they have been read."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.whole = text
        self.tokens = tokens
        self.at = 0

    # -- looking ---------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The statement as it was written."""
        return self.slice(0, len(self.tokens))

    def slice(self, first: int, end: int) -> str:
        """The text of some tokens as it was written."""
        return self.whole[self.tokens[first].start : self.tokens[end - 1].end + 1]

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def next_is(self, *words: str) -> bool:
        """Whether these words follow."""
        following = self.tokens[self.at : self.at + len(words)]
        return len(following) == len(words) and all(map(is_word, following, words))

    # -- reading ---------------------------------------------------------------------------------

    def accept(self, *words: str) -> bool:
        """Read these words if they follow."""
        found = self.next_is(*words)
        self.at += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        """Read these words."""
        if not self.accept(*words):
            self.refuse(f"{' '.join(words)} was expected here")

    def name(self, what: str, *, reserved: bool = False) -> str:
        """Read a name; words of the language are none, unless `reserved`."""
        if self.done:
            self.refuse(f"{what} was expected here")
        token = self.tokens[self.at]
        written = self.whole[token.start : token.end + 1]
        if token.token_type != TokenType.IDENTIFIER:
            if token.token_type == TokenType.STRING or not _NAME.fullmatch(written):
                self.refuse(f"{what} was expected here")
            if written.upper() in RESERVED and not reserved:
                self.refuse(
                    f"{written.upper()} is a word of the language; quote it, as in `{written}`, or choose "
                    "another name",
                    f"{written!r} cannot be a name as it stands",
                )
        self.at += 1
        return token.text if token.token_type == TokenType.IDENTIFIER else written

    def value(self) -> Scalar:
        """Read a text, a number, TRUE, FALSE or NULL."""
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.accept(word):
                return value
        minus = self.accept("-")
        token = None if self.done else self.tokens[self.at]
        if token is not None and token.token_type == TokenType.STRING and not minus:
            self.at += 1
            return token.text
        if token is None or token.token_type != TokenType.NUMBER:
            self.refuse("a value was expected here: a text, a number, TRUE, FALSE or NULL")
        self.at += 1
        number = int(token.text) if token.text.isdigit() else float(token.text)
        return -number if minus else number

    def length(self) -> int:
        """Read a length of time, in microseconds: `30 SECONDS` or `'30s'`."""
        first = self.at
        given = self.value()
        if isinstance(given, bool) or given is None:
            self.refuse("a length of time was expected here, such as 30 SECONDS", at=first)
        unit = "" if isinstance(given, str) else self.name("a unit of time, such as SECONDS,")
        try:
            return microseconds(f"{given} {unit}".lower())
        except UserError as error:
            self.refuse(error.hint or "as in 30 SECONDS", error.primary, at=first)

    def call(self, what: str, *, columns: bool = False) -> Call:
        """Read a name with arguments; `columns`: what is no value is taken as the text of a column's definition."""
        at = line_and_column(self.whole, self.tokens[self.at].start) if not self.done else (1, 1)
        name = self.name(what)
        arguments: list[Scalar] = []
        options: dict[str, Scalar] = {}
        if self.accept("("):
            while not self.accept(")"):
                if arguments or options:
                    self.expect(",")
                follows = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
                if follows is not None and follows.token_type == TokenType.FARROW:
                    option = self.name("the name of an option").lower()
                    self.at += 1
                    options[option] = self.value()
                elif columns:
                    arguments.append(self._definition())
                else:
                    arguments.append(self.value())
        return Call(name.lower(), tuple(arguments), options, at)

    def _definition(self) -> str:
        """Read up to the next comma, or the end of the call."""
        first, depth = self.at, 0
        while not self.done:
            token = self.tokens[self.at]
            if depth == 0 and (token.token_type == TokenType.COMMA or token.token_type in _CLOSING):
                break
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            if token.token_type in (TokenType.LT, TokenType.GT):
                depth += 1 if token.token_type == TokenType.LT else -1
            self.at += 1
        if first == self.at:
            self.refuse("a column and its type were expected here, as in clicks BIGINT")
        return self.slice(first, self.at)

    def end(self) -> None:
        """There must be nothing more."""
        if not self.done:
            self.refuse("the statement was expected to end here")

    def refuse(self, hint: str, primary: str | None = None, *, at: int | None = None) -> NoReturn:
        """Raise for the next word, or for the word at this place."""
        place = self.at if at is None else at
        if place < len(self.tokens):
            token = self.tokens[place]
            written = self.whole[token.start : token.end + 1].split("\n")[0]
            raise bad_sql(
                self.whole, token.start, primary or f"{written!r} does not belong here", _said(hint)
            )
        end = self.tokens[-1].end + 1 if self.tokens else 0
        raise bad_sql(self.whole, end, primary or "the statement ends too early", _said(hint))


def _said(hint: str) -> str:
    return f"{hint[0].upper()}{hint[1:]}."

"""Read the tokens of one statement in order; what is not expected raises BAD_SQL at its position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.secret_store import reference_to
from penstock.sql.errors import line_and_column, syntax_error
from penstock.sql.statements import Call, Scalar, parse_number

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


def nesting_depths(tokens: Sequence[Token]) -> list[int]:
    """For each token, how many parentheses are open around it."""
    depths, depth = [], 0
    for token in tokens:
        depth -= token.token_type in _CLOSING
        depths.append(depth)
        depth += token.token_type in _OPENING
    return depths


def is_keyword(token: Token, *words: str) -> bool:
    """Whether a token is one of these words, and no text or quoted name."""
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return not quoted and token.text.upper() in words


class TokenReader:
    """The tokens of one statement, and how far they have been read."""

    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0

    # -- look ------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The statement as it was written."""
        return self.slice(0, len(self.tokens))

    def slice(self, first: int, end: int) -> str:
        """The text of some tokens as it was written."""
        return self.source[self.tokens[first].start : self.tokens[end - 1].end + 1]

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.tokens)

    def next_is(self, *words: str) -> bool:
        """Whether these words follow."""
        following = self.tokens[self.at : self.at + len(words)]
        return len(following) == len(words) and all(map(is_keyword, following, words))

    # -- read ------------------------------------------------------------------------------------

    def accept(self, *words: str) -> bool:
        """Read these words if they follow."""
        follow = self.next_is(*words)
        self.at += len(words) if follow else 0
        return follow

    def expect(self, *words: str) -> None:
        """Read these words."""
        if not self.accept(*words):
            self.fail(f"{' '.join(words)} was expected here")

    def name(self, what: str, *, reserved: bool = False) -> str:
        """Read a name; words of the language are none, unless `reserved`."""
        if self.at_end:
            self.fail(f"{what} was expected here")
        token = self.tokens[self.at]
        written = self.slice(self.at, self.at + 1)
        if token.token_type != TokenType.IDENTIFIER:
            if token.token_type == TokenType.STRING or not _NAME.fullmatch(written):
                self.fail(f"{what} was expected here")
            if written.upper() in RESERVED and not reserved:
                self.fail(
                    f"{written.upper()} is a word of the language; quote it, as in `{written}`, or choose "
                    "another name",
                    f"{written!r} must be quoted to be a name",
                )
        self.at += 1
        return token.text if token.token_type == TokenType.IDENTIFIER else written

    def value(self) -> Scalar:
        """Read a text, a number, TRUE, FALSE or NULL."""
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self.accept(word):
                return value
        minus = self.accept("-")
        token = None if self.at_end else self.tokens[self.at]
        if token is not None and token.token_type == TokenType.STRING and not minus:
            self.at += 1
            return token.text
        if token is None or token.token_type != TokenType.NUMBER:
            self.fail("a value was expected here: a text, a number, TRUE, FALSE or NULL")
        self.at += 1
        number = parse_number(token.text)
        return -number if minus else number

    def duration(self) -> int:
        """Read a length of time, in microseconds: `30 SECONDS` or `'30s'`."""
        first = self.at
        size = self.value()
        if isinstance(size, bool) or size is None:
            self.fail("a length of time was expected here, such as 30 SECONDS", at=first)
        unit = "" if isinstance(size, str) else self.name("a unit of time, such as SECONDS,")
        try:
            return microseconds(f"{size} {unit}".lower())
        except UserError as error:
            self.fail(error.hint or "as in 30 SECONDS", error.primary, at=first)

    def call(self, what: str, *, columns: bool = False) -> Call:
        """Read a name with arguments; with `columns` these are the texts of column definitions."""
        at = line_and_column(self.source, self.tokens[self.at].start) if not self.at_end else (1, 1)
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
                    options[option] = self._argument()
                elif columns:
                    arguments.append(self._column_definition())
                else:
                    arguments.append(self._argument())
        return Call(name.lower(), tuple(arguments), options, at)

    def _argument(self) -> Scalar:
        """Read a value, or `SECRET name`, which stands for one that the statement does not have."""
        return reference_to(self.name("the name of a secret")) if self.accept("SECRET") else self.value()

    def _column_definition(self) -> str:
        """Read up to the next comma, or the end of the call."""
        first, depth = self.at, 0
        while not self.at_end:
            token = self.tokens[self.at]
            if depth == 0 and (token.token_type == TokenType.COMMA or token.token_type in _CLOSING):
                break
            depth += token.token_type in (*_OPENING, TokenType.LT)
            depth -= token.token_type in (*_CLOSING, TokenType.GT)
            self.at += 1
        if first == self.at:
            self.fail("a column and its type were expected here, as in clicks BIGINT")
        return self.slice(first, self.at)

    def end(self) -> None:
        """Check that nothing follows."""
        if not self.at_end:
            self.fail("the statement was expected to end here")

    def fail(self, hint: str, primary: str | None = None, *, at: int | None = None) -> NoReturn:
        """Raise at the next token, or at the given one."""
        position = self.at if at is None else at
        sentence = f"{hint[0].upper()}{hint[1:]}."
        if position < len(self.tokens):
            written = self.slice(position, position + 1).split("\n")[0]
            start = self.tokens[position].start
            raise syntax_error(self.source, start, primary or f"{written!r} does not belong here", sentence)
        end = self.tokens[-1].end + 1 if self.tokens else 0
        raise syntax_error(self.source, end, primary or "the statement ends too early", sentence)

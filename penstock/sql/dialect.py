"""The SQL dialect for sqlglot: Spark's, extended by

    SELECT ... FROM * ... WINDOWING 60 SECONDS EVERY 10 SECONDS
    ... a JOIN b ON a.k = b.k WITHIN 10 SECONDS BEFORE AND 60 SECONDS AFTER
    ... WHERE store == `video_games'

The parser knows no functions: every call but CAST and EXTRACT is an `exp.Anonymous` with the name as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

#: the token type of WINDOWING: one that Spark does not use
WINDOWING = TokenType.PREWHERE
#: the table of `FROM *`
ALL_STREAMS = "*"
#: units of lengths
UNITS = frozenset(
    f"{unit}{plural}"
    for unit in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "EVENT")
    for plural in ("", "S")
)
#: quoted text and comments, which stay as they are, or (group 1) a string with a backtick for its opening quote
#: What is not closed reaches to the end, and nothing is tried twice: else a text takes the square of its length.
_QUOTED = re.compile(
    r"'(?:[^'\\]++|\\.|'')*+'?"
    r'|"(?:[^"\\]++|\\.|"")*+"?'
    r"|--[^\n]*|/\*(?:.*?\*/|.*+)"
    r"|(`[^`'\n]*')"
    r"|`[^`]*`",
    re.DOTALL,
)


class Span(exp.Expression):
    """A length: `30 SECONDS`, `100 EVENTS`, `'1h 30m'`; `unit` is in upper case, absent for a text."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": False}


class Windowing(exp.Expression):
    """`WINDOWING [SESSION] size [EVERY advance]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "every": False, "session": False}


class Within(exp.Expression):
    """`WITHIN span`, or `WITHIN span BEFORE AND span AFTER` (one of them may be missing)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False, "before": False, "after": False}


class PenstockParser(SparkParser):
    """Spark's parser with windows, bounds of joins and all streams at once."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        WINDOWING: lambda self: ("windowing", self.parse_windowing()),
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = SparkParser.TABLE_ALIAS_TOKENS - {WINDOWING}

    def parse_windowing(self) -> Windowing:
        """Parse from WINDOWING on."""
        word = self._curr
        self._advance()
        session = self._match_text_seq("SESSION")
        size = self.parse_span()
        every = self.parse_span() if self._match_text_seq("EVERY") else None
        return self.expression(Windowing(this=size, every=every, session=session), word)

    def parse_span(self) -> Span:
        """Parse a number and a unit, or a text."""
        start = self._curr
        number = self._parse_string() or self._parse_number()  # either may be a parameter
        if number is None:
            self.raise_error("Expected a length, such as 30 SECONDS or 100 EVENTS")
        if isinstance(number, exp.Literal) and number.is_string:
            return self.expression(Span(this=number), start)
        unit = self._curr.text.upper()
        if unit in UNITS:
            self._advance()
        elif not isinstance(number, exp.Parameter):
            self.raise_error("Expected a unit, such as SECONDS or EVENTS")
        return self.expression(Span(this=number, unit=exp.var(unit) if unit in UNITS else None), start)

    def _parse_parameter(self) -> exp.Parameter:
        sign = self._prev
        this = self._parse_var(any_token=True)
        if this is None:
            self.raise_error("Expected the name of a parameter after $")
        return self.expression(exp.Parameter(this=this), sign)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        join = super()._parse_join(*args, **kwargs)
        if join is not None and self._match_text_seq("WITHIN"):
            join.set("within", self._parse_within())
        return join

    def _parse_within(self) -> Within:
        word = self._prev
        bounds: dict[str, exp.Expr] = {}
        while True:
            span = self.parse_span()
            side = "before" if self._match_text_seq("BEFORE") else None
            side = side or ("after" if self._match_text_seq("AFTER") else None)
            if (side or "this") in bounds or (bounds and side is None):
                self.raise_error("Expected WITHIN a BEFORE AND b AFTER")
            bounds[side or "this"] = span
            if side is None or not self._match(TokenType.AND):
                return self.expression(Within(**bounds), word)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if self._match_pair(TokenType.TABLE, TokenType.L_PAREN):
            table = self._parse_table_parts()
            if not isinstance(table, exp.Table):
                self.raise_error("Expected a function over a stream, such as TUMBLE")
            self._match_r_paren()
            return self._with_alias(table, kwargs)
        if not self._match(TokenType.STAR):
            return super()._parse_table(*args, **kwargs)
        everything = exp.Identifier(this=ALL_STREAMS, quoted=False).update_positions(self._prev)
        return self._with_alias(self.expression(exp.Table(this=everything)), kwargs)

    def _with_alias(self, table: exp.Expr | None, options: dict[str, Any]) -> exp.Expr:
        assert isinstance(table, exp.Table)
        if alias := self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS):
            table.set("alias", alias)
        if options.get("joins"):
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        if self._curr.token_type == TokenType.TABLE and self._next.token_type != TokenType.L_PAREN:
            self._advance()
            return self._parse_table_parts()
        return super()._parse_lambda(alias)


class Penstock(Spark):
    """The dialect of Penstock's queries."""

    NULL_ORDERING = "nulls_are_last"
    IDENTIFIERS_CAN_START_WITH_DIGIT = False

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **{word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "SESSION"},
            "WINDOWING": WINDOWING,
        }
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}

    Parser = PenstockParser


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, with offsets into the text as it was written."""
    return Penstock().tokenize(_QUOTED.sub(_fix_quote, text))


def _fix_quote(quoted: re.Match[str]) -> str:
    return f"'{quoted[0][1:]}" if quoted[1] else quoted[0]

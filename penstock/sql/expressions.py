"""Expressions of a query to expressions of Polars, typed, with SQL's three truth values.

Receives trees and the columns they may name; hands `Argument`s: an expression with its type. What fails for a value
(a division by zero, a cast) is null, as in Spark outside its ANSI mode. What cannot fit whatever the value is
refused with the place in the query.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.query.check import empty_frame
from penstock.sql import arithmetic, types
from penstock.sql.calls import FICKLE, called, check_known, fickle
from penstock.sql.functions import Argument
from penstock.sql.literals import alike, literal, pattern, plain_value
from penstock.sql.places import located, nearest, place_of, refused
from penstock.sql.relation import Relation, parts_of
from penstock.sql.scope import Scope
from penstock.sql.statements import Scalar
from penstock.sql.windows import interval

_COMPARED: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.EQ: lambda left, right: left == right,
    exp.NEQ: lambda left, right: left != right,
    exp.GT: lambda left, right: left > right,
    exp.GTE: lambda left, right: left >= right,
    exp.LT: lambda left, right: left < right,
    exp.LTE: lambda left, right: left <= right,
    exp.NullSafeEQ: lambda left, right: left.eq_missing(right),
    exp.NullSafeNEQ: lambda left, right: left.ne_missing(right),
}


class Expressions:
    """Turns expressions over the columns of a relation."""

    def __init__(
        self, relation: Relation, scope: Scope, schema: Mapping[str, pl.DataType] | None = None
    ) -> None:
        """`schema` if the relation's columns are not those of one stream."""
        self.relation = relation
        self.scope = scope
        self.schema = dict(relation.stream.node.schema if schema is None else schema)
        self._frame = empty_frame(self.schema).lazy()

    # -- what others ask for ---------------------------------------------------------------------

    def of(self, node: exp.Expr) -> Argument:
        """An expression with its type."""
        for kind in type(node).__mro__:
            if made := _MAKERS.get(kind):
                _check_nothing_else(node)
                answer = made(self, node)
                return Argument(~answer.expr, answer.dtype, None, False) if negated(node) else answer
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise refused(
                node,
                "UNSUPPORTED_SQL",
                "a query cannot stand inside an expression",
                "Join the other stream: JOIN LATEST(other) ON ..., or JOIN other ON ... WITHIN ....",
            )
        if isinstance(node, exp.Window):
            raise refused(
                node,
                "UNSUPPORTED_SQL",
                "OVER is not known",
                "Aggregate in windows: GROUP BY ... WINDOWING ....",
            )
        if isinstance(node, exp.Func) and node.sql_name().lower() in FICKLE:
            raise fickle(node, node.sql_name())
        raise refused(
            node, "UNSUPPORTED_SQL", f"{type(node).__name__.upper()} is not part of the language", None
        )

    def condition(self, node: exp.Expr) -> pl.Expr:
        """A condition."""
        made = self.of(node)
        if made.dtype == pl.Null:
            return pl.lit(None, dtype=pl.Boolean())
        if made.dtype != pl.Boolean:
            raise refused(
                node,
                "TYPE_MISMATCH",
                f"a condition is needed here, but this is {made.dtype}",
                "Compare it with something, as in status = 200.",
            )
        return made.expr

    def value(self, node: exp.Expr) -> Scalar:
        """The value of a literal or a parameter."""
        made = self.of(node)
        if not made.is_literal:
            raise refused(node, "BAD_ARGUMENT", "a literal or a $parameter is needed here")
        return made.literal

    def typed(self, node: exp.Expr, expr: pl.Expr) -> Argument:
        """An expression with the type it has over the columns here."""
        try:
            dtype = self._frame.select(expr.alias("made")).collect_schema()["made"]
        except pl.exceptions.PolarsError as failure:
            raise UserError(
                "TYPE_MISMATCH",
                "this does not fit its columns",
                where=place_of(node),
                detail=str(failure).split("\n")[0],
            ) from None
        return Argument(expr, dtype, None, False)

    # -- names and values ------------------------------------------------------------------------

    def column(self, node: exp.Expr) -> Argument:
        """A column, or a field of one."""
        column, path = self.relation.find(node)
        return self.fields(node, Argument(pl.col(column), self._dtype(column), None, False), path)

    def fields(self, node: exp.Expr, made: Argument, path: Sequence[str]) -> Argument:
        """A field of a field of a value."""
        for name in path:
            known = made.dtype.fields if isinstance(made.dtype, pl.Struct) else []
            names = [field.name for field in known]
            if name not in names:
                name = next((one for one in names if one.lower() == name.lower()), name)
            if name not in names:
                near = nearest(name, names)
                raise refused(
                    node,
                    "UNKNOWN_COLUMN",
                    f"there is no field {name!r} in {'.'.join(parts_of(node)[:-1]) or 'it'}",
                    near or (f"There are {', '.join(names)}." if names else f"It is {made.dtype}."),
                )
            made = self.typed(node, made.expr.struct.field(name))
        return made

    def _dtype(self, column: str) -> pl.DataType:
        return self.schema[column]

    def _dot(self, node: exp.Dot) -> Argument:
        inner: exp.Expr = node
        while isinstance(inner, exp.Dot):
            inner = inner.this
        if isinstance(inner, exp.Column):
            return self.column(node)
        return self.fields(node, self.of(node.this), [node.expression.name])

    def _parameter(self, node: exp.Parameter) -> Argument:
        name, known = node.this.name, self.scope.parameters
        if name not in known:
            hint = nearest(name, known) or f"Give it a value: WITH (${name} = ...)."
            raise refused(node, "UNKNOWN_PARAMETER", f"the parameter ${name} has no value", hint)
        return literal(known[name])

    def _interval(self, node: exp.Interval) -> Argument:
        return self.typed(node, pl.lit(timedelta(microseconds=interval(node, self.value))))

    def _call(self, node: exp.Anonymous) -> Argument:
        name = node.name.lower()
        if name in types.NAMES and name not in self.scope.functions and len(node.expressions) == 1:
            made = self.of(node.expressions[0])
            return self.typed(node, types.cast(made.expr, made.dtype, types.NAMES[name], node))
        check_known(node, name, self.scope.functions)
        arguments = [self.of(argument) for argument in node.expressions]
        with located(node):
            return self.typed(node, called(node, name, arguments, self.scope.functions))

    def _extract(self, node: exp.Extract) -> Argument:
        with located(node):
            made = called(node, node.this.name.lower(), [self.of(node.expression)], self.scope.functions)
        return self.typed(node, made)

    # -- truth -----------------------------------------------------------------------------------

    def _connected(self, node: exp.Connector) -> Argument:
        kind = type(node)
        parts = [self.condition(part) for part in node.flatten(unnest=False)]
        while len(parts) > 1:  # a tree, not a chain: thousands of conditions stay shallow
            pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
            parts = [
                pair[0] if len(pair) == 1 else (pair[0] & pair[1] if kind is exp.And else pair[0] | pair[1])
                for pair in pairs
            ]
        return Argument(parts[0], pl.Boolean(), None, False)

    def _not(self, node: exp.Not) -> Argument:
        return Argument(~self.condition(node.this), pl.Boolean(), None, False)

    def _compared(self, node: exp.Binary) -> Argument:
        (left, right), _ = alike(node, [self.of(node.this), self.of(node.expression)])
        return self.typed(node, _COMPARED[type(node)](left, right))

    def _is(self, node: exp.Is) -> Argument:
        asked = node.expression
        if isinstance(asked, exp.Null):
            return self.typed(node, self.of(node.this).expr.is_null())
        if isinstance(asked, exp.Boolean):
            return self.typed(node, self.condition(node.this).eq_missing(pl.lit(bool(asked.this))))
        raise refused(
            node, "UNSUPPORTED_SQL", "IS asks for NULL, TRUE or FALSE", "Use = or IS DISTINCT FROM."
        )

    def _between(self, node: exp.Between) -> Argument:
        bounds = [self.of(node.this), self.of(node.args["low"]), self.of(node.args["high"])]
        (value, low, high), _ = alike(node, bounds)
        return self.typed(node, (value >= low) & (value <= high))

    def _in(self, node: exp.In) -> Argument:
        if node.args.get("query") is not None or not node.expressions:
            raise refused(
                node,
                "UNSUPPORTED_SQL",
                "IN needs a list of values",
                "For the rows of another stream: JOIN LATEST(other) ON ....",
            )
        given = [self.of(node.this), *(self.of(one) for one in node.expressions)]
        made, dtype = alike(node, given)
        values = [plain_value(one, dtype) for one in given[1:] if one.is_literal]
        if len(values) < len(given) - 1 or dtype.is_temporal():
            equal = functools.reduce(lambda left, right: left | right, [made[0] == one for one in made[1:]])
            return self.typed(node, equal)
        known = [value for value in values if value is not None]
        found = made[0].is_in(pl.lit(known, dtype=pl.List(dtype)))
        if None in values:
            found = pl.when(found).then(pl.lit(True))
        return self.typed(node, found)

    def _like(self, node: exp.Binary) -> Argument:
        escape = "\\"
        if isinstance(node, exp.Escape):
            said = self.value(node.expression)
            if not isinstance(said, str) or len(said) != 1:
                raise refused(
                    node, "BAD_ARGUMENT", "ESCAPE needs one character", "As in LIKE '50!%' ESCAPE '!'."
                )
            escape, node = said, node.this
        text, asked = self.of(node.this), self.value(node.expression)
        if text.dtype not in (pl.String, pl.Null) or not isinstance(asked, str):
            raise refused(
                node, "TYPE_MISMATCH", "LIKE compares a text with a literal pattern", "CAST it first."
            )
        flags = "(?si)" if isinstance(node, exp.ILike) else "(?s)"
        made = text.expr.cast(pl.String).str.contains(f"{flags}^{pattern(node, asked, escape)}$")
        return self.typed(node, made)

    def _matches(self, node: exp.RegexpLike) -> Argument:
        text, asked = self.of(node.this), self.value(node.expression)
        if text.dtype not in (pl.String, pl.Null) or not isinstance(asked, str):
            raise refused(
                node, "TYPE_MISMATCH", "RLIKE compares a text with a literal pattern", "CAST it first."
            )
        try:
            pl.select(pl.lit("").str.contains(asked))
        except pl.exceptions.PolarsError:
            raise refused(node, "BAD_ARGUMENT", f"{asked!r} is no regular expression") from None
        return self.typed(node, text.expr.cast(pl.String).str.contains(asked))

    # -- the rest --------------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Argument:
        subject = node.this
        branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
        conditions = [asked for asked, _ in branches]
        if subject is not None:
            conditions = [exp.EQ(this=subject.copy(), expression=asked.copy()) for asked in conditions]
        return self._chosen(node, conditions, [then for _, then in branches], node.args.get("default"))

    def _if(self, node: exp.If) -> Argument:
        return self._chosen(node, [node.this], [node.args["true"]], node.args.get("false"))

    def _chosen(
        self,
        node: exp.Expr,
        conditions: Sequence[exp.Expr],
        thens: Sequence[exp.Expr],
        otherwise: exp.Expr | None,
    ) -> Argument:
        given = [self.of(then) for then in thens]
        given.append(literal(None) if otherwise is None else self.of(otherwise))
        made, _ = alike(node, given)
        chosen = made[-1]
        for condition, then in zip(reversed(conditions), reversed(made[:-1]), strict=True):
            chosen = pl.when(self.condition(condition)).then(then).otherwise(chosen)
        return self.typed(node, chosen)

    def _cast(self, node: exp.Cast) -> Argument:
        made, wanted = self.of(node.this), types.dtype_of(node.args["to"])
        return self.typed(node, types.cast(made.expr, made.dtype, wanted, node))

    def _joined(self, node: exp.DPipe) -> Argument:
        parts = [self.of(part) for part in (node.this, node.expression)]
        texts = [types.cast(part.expr, part.dtype, pl.String(), node) for part in parts]
        return self.typed(node, texts[0] + texts[1])

    def _element(self, node: exp.Bracket) -> Argument:
        made, at = self.of(node.this), [self.of(one) for one in node.expressions]
        if len(at) == 1 and isinstance(at[0].literal, str):
            return self.fields(node, made, [at[0].literal])
        if len(at) != 1 or not isinstance(made.dtype, pl.List) or not at[0].dtype.is_integer():
            raise refused(node, "TYPE_MISMATCH", f"{made.dtype} has no such element", "As in tags[0].")
        return self.typed(node, made.expr.list.get(at[0].expr, null_on_oob=True))

    def _literal(self, node: exp.Literal) -> Argument:
        if node.is_string:
            return literal(str(node.this))
        text = str(node.this)
        return literal(int(text) if text.isdigit() else float(text))


def negated(node: exp.Expr) -> bool:
    """Whether a comparison is one with NOT before its word, as in NOT LIKE."""
    return bool(node.args.get("negate")) or (isinstance(node, exp.Escape) and negated(node.this))


def _check_nothing_else(node: exp.Expr) -> None:
    """Raise for parts that nobody here would look at: they would change what it means."""
    for name, part in node.args.items():
        if part and name not in _READ and not (name == "safe" or name.startswith("_")):
            raise refused(
                node, "UNSUPPORTED_SQL", f"{name.upper()} is not part of {type(node).__name__.upper()} here"
            )


def split(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND joins, in order."""
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        while isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
            node = node.this
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            yield node


#: the parts of nodes that the makers read
_READ = frozenset(
    (
        *("this", "expression", "expressions", "negate", "is_string", "table", "db", "catalog", "unit", "to"),
        *("low", "high", "ifs", "default", "true", "false", "query", "typed", "offset", "quoted"),
    )
)
_E = Expressions
_MAKERS: dict[type, Callable[[Expressions, Any], Argument]] = {
    exp.Paren: lambda self, node: self.of(node.this),
    exp.Column: lambda self, node: self.column(node),
    exp.Dot: _E._dot,
    exp.Literal: _E._literal,
    exp.Boolean: lambda self, node: literal(bool(node.this)),
    exp.Null: lambda self, node: literal(None),
    exp.Parameter: _E._parameter,
    exp.Interval: _E._interval,
    exp.Anonymous: _E._call,
    exp.Extract: _E._extract,
    exp.And: _E._connected,
    exp.Or: _E._connected,
    exp.Not: _E._not,
    exp.Is: _E._is,
    exp.Between: _E._between,
    exp.In: _E._in,
    exp.Like: _E._like,
    exp.ILike: _E._like,
    exp.Escape: _E._like,
    exp.RegexpLike: _E._matches,
    exp.Div: arithmetic.divided,
    exp.IntDiv: arithmetic.whole_divided,
    exp.Mod: arithmetic.whole_divided,
    exp.Neg: arithmetic.negative,
    exp.Case: _E._case,
    exp.If: _E._if,
    exp.Cast: _E._cast,
    exp.DPipe: _E._joined,
    exp.Bracket: _E._element,
    **dict.fromkeys(_COMPARED, _E._compared),
    **dict.fromkeys(arithmetic.COUNTED, arithmetic.counted),
    **dict.fromkeys(arithmetic.BITS, arithmetic.bits),
}

"""Compile expressions of a query, with their calls of functions, to typed expressions of Polars; three truth values.

What cannot be computed for a value (a division by zero, a cast) is null, as in Spark outside its ANSI mode. What
cannot fit whatever the value raises `UserError` with its position in the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.query.check import empty_frame
from penstock.query.limits import check_expression_size
from penstock.query.trial import TrialEnded, current_process
from penstock.sql import scalar_operators as operators
from penstock.sql import types
from penstock.sql.aggregates import AGGREGATES
from penstock.sql.coercion import coerce, literal
from penstock.sql.errors import errors_at, position_of, query_error, suggest_name
from penstock.sql.functions import FUNCTIONS, TypedExpr
from penstock.sql.relation import Relation, name_parts
from penstock.sql.scope import Scope, UserFunction
from penstock.sql.statements import Scalar, parse_number
from penstock.sql.windows import EDGES, interval_microseconds, is_window

#: functions whose result depends on when or where they are called
_NON_DETERMINISTIC = """
    rand randn random uuid shuffle now curdate current_date current_time current_timestamp current_timezone
    current_user localtimestamp localtime sysdate monotonically_increasing_id input_file_name spark_partition_id
"""
NON_DETERMINISTIC = frozenset(_NON_DETERMINISTIC.split())
#: branches of a CASE that are made nested expressions
MOST_NESTED_BRANCHES = 50


class ExpressionCompiler:
    """Compiles expressions over the columns of a relation."""

    def __init__(
        self, relation: Relation, scope: Scope, schema: Mapping[str, pl.DataType] | None = None
    ) -> None:
        """`schema` if the relation's columns are not those of one stream."""
        self.relation = relation
        self.scope = scope
        self.schema = dict(relation.stream.node.schema if schema is None else schema)
        self._frame = empty_frame(self.schema).lazy()

    def compile(self, node: exp.Expr) -> TypedExpr:
        """An expression with its type."""
        for kind in type(node).__mro__:
            if rule := _RULES.get(kind):
                _check_parts(node)
                compiled = rule(self, node)
                typed = compiled if isinstance(compiled, TypedExpr) else self.with_type(node, compiled)
                return TypedExpr(~typed.expr, typed.dtype) if _is_negated(node) else typed
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise query_error(
                node,
                "UNSUPPORTED_SQL",
                "a query cannot stand inside an expression",
                "Join the other stream: JOIN LATEST(other) ON ..., or JOIN other ON ... WITHIN ....",
            )
        if isinstance(node, exp.Window):
            raise query_error(
                node,
                "UNSUPPORTED_SQL",
                "OVER is not known",
                "Aggregate in windows: GROUP BY ... WINDOWING ....",
            )
        if isinstance(node, exp.Func) and node.sql_name().lower() in NON_DETERMINISTIC:
            raise non_deterministic(node, node.sql_name())
        raise query_error(
            node, "UNSUPPORTED_SQL", f"{type(node).__name__.upper()} is not part of the language", None
        )

    def condition(self, node: exp.Expr) -> pl.Expr:
        """A condition."""
        compiled = self.compile(node)
        if compiled.dtype == pl.Null:
            return pl.lit(None, dtype=pl.Boolean())
        if compiled.dtype != pl.Boolean:
            raise query_error(
                node,
                "TYPE_MISMATCH",
                f"a condition is needed here, but this is {compiled.dtype}",
                "Compare it with something, as in status = 200.",
            )
        return compiled.expr

    def literal_value(self, node: exp.Expr) -> Scalar:
        """The value of a literal or a parameter."""
        compiled = self.compile(node)
        if not compiled.is_literal:
            raise query_error(node, "BAD_ARGUMENT", "a literal or a $parameter is needed here")
        return compiled.literal

    def with_type(self, node: exp.Expr, expr: pl.Expr) -> TypedExpr:
        """An expression with the type that it has over the columns here."""
        with errors_at(node):  # what comes now takes as long as it is large
            check_expression_size(len(str(expr)))
        try:
            dtype = self._frame.select(expr.alias("made")).collect_schema()["made"]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as failure:
            raise UserError(
                "TYPE_MISMATCH",
                "this does not fit its columns",
                where=position_of(node),
                detail=str(failure).split("\n")[0],
            ) from None
        return TypedExpr(expr, dtype)

    # -- names and values ------------------------------------------------------------------------

    def column(self, node: exp.Expr) -> TypedExpr:
        """A column, or a field of one."""
        column, path = self.relation.resolve(node)
        return self.field(node, TypedExpr(pl.col(column), self.schema[column]), path)

    def field(self, node: exp.Expr, value: TypedExpr, path: Sequence[str]) -> TypedExpr:
        """The field at a path into nested structs."""
        for name in path:
            fields = value.dtype.fields if isinstance(value.dtype, pl.Struct) else []
            names = [field.name for field in fields]
            if name not in names:
                name = next((one for one in names if one.lower() == name.lower()), name)
            if name not in names:
                raise query_error(
                    node,
                    "UNKNOWN_COLUMN",
                    f"there is no field {name!r} in {'.'.join(name_parts(node)[:-1]) or 'it'}",
                    suggest_name(name, names)
                    or (f"There are {', '.join(names)}." if names else f"It is {value.dtype}."),
                )
            value = self.with_type(node, value.expr.struct.field(name))
        return value

    def _dot(self, node: exp.Dot) -> TypedExpr:
        innermost: exp.Expr = node
        while isinstance(innermost, exp.Dot):
            innermost = innermost.this
        if isinstance(innermost, exp.Column):
            return self.column(node)
        return self.field(node, self.compile(node.this), [node.expression.name])

    def _element(self, node: exp.Bracket) -> pl.Expr | TypedExpr:
        value, keys = self.compile(node.this), [self.compile(key) for key in node.expressions]
        if len(keys) == 1 and isinstance(keys[0].literal, str):
            return self.field(node, value, [keys[0].literal])
        if len(keys) != 1 or not isinstance(value.dtype, pl.List) or not keys[0].dtype.is_integer():
            raise query_error(node, "TYPE_MISMATCH", f"{value.dtype} has no such element", "As in tags[0].")
        return value.expr.list.get(keys[0].expr, null_on_oob=True)

    def _literal(self, node: exp.Literal) -> TypedExpr:
        text = str(node.this)
        return literal(text if node.is_string else parse_number(text))

    def _parameter(self, node: exp.Parameter) -> TypedExpr:
        name, known = node.this.name, self.scope.parameters
        if name not in known:
            hint = suggest_name(name, known) or f"Give it a value: WITH (${name} = ...)."
            raise query_error(node, "UNKNOWN_PARAMETER", f"the parameter ${name} has no value", hint)
        return literal(known[name])

    def _interval(self, node: exp.Interval) -> pl.Expr:
        return pl.lit(timedelta(microseconds=interval_microseconds(node, self.literal_value)))

    # -- functions, CASE and casts ---------------------------------------------------------------

    def _call(self, node: exp.Anonymous) -> pl.Expr:
        name = node.name.lower()
        if name in types.NAMES and name not in self.scope.functions and len(node.expressions) == 1:
            return self._cast_to(node, node.expressions[0], types.NAMES[name])
        check_function(node, name, self.scope.functions)
        arguments = [self.compile(argument) for argument in node.expressions]
        with errors_at(node):
            return build_call(node, name, arguments, self.scope.functions)

    def _extract(self, node: exp.Extract) -> pl.Expr:
        with errors_at(node):
            arguments = [self.compile(node.expression)]
            return build_call(node, node.this.name.lower(), arguments, self.scope.functions)

    def _case(self, node: exp.Case | exp.If) -> pl.Expr | TypedExpr:
        """CASE with or without a subject, and IF, which is a CASE with one branch."""
        branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
        otherwise = node.args.get("default") or node.args.get("false")
        conditions = [branch.this for branch in branches]
        if isinstance(node, exp.Case) and node.this is not None:
            conditions = [exp.EQ(this=node.this.copy(), expression=one.copy()) for one in conditions]
        results = [self.compile(branch.args["true"]) for branch in branches]
        results.append(literal(None) if otherwise is None else self.compile(otherwise))
        (*thens, result), dtype = coerce(node, results)
        if len(branches) > MOST_NESTED_BRANCHES:
            return TypedExpr(_choose_first(list(map(self.condition, conditions)), [*thens, result]), dtype)
        for condition, then in zip(reversed(conditions), reversed(thens), strict=True):
            result = pl.when(self.condition(condition)).then(then).otherwise(result)
        return result

    def _cast(self, node: exp.Cast) -> pl.Expr:
        return self._cast_to(node, node.this, types.dtype_of(node.args["to"]))

    def _cast_to(self, node: exp.Expr, operand: exp.Expr, dtype: pl.DataType) -> pl.Expr:
        value = self.compile(operand)
        return types.cast(value.expr, value.dtype, dtype, node)

    def _concat(self, node: exp.DPipe) -> pl.Expr:
        left, right = (self._cast_to(node, part, pl.String()) for part in (node.this, node.expression))
        return left + right


def _choose_first(conditions: Sequence[pl.Expr], values: Sequence[pl.Expr]) -> pl.Expr:
    """The value of the first condition that is true, else the last one. Flat: what Polars takes for nested branches
    grows with the square of their number. In a struct, a value that is null is not passed over."""
    boxes = [pl.when(one).then(pl.struct(it=value)) for one, value in zip(conditions, values, strict=False)]
    return pl.coalesce(*boxes, pl.struct(it=values[-1])).struct.field("it")


def split_conjunction(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND joins, in order."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        for part in inner.flatten():
            yield from split_conjunction(part)
    else:
        yield condition


def _is_negated(node: exp.Expr) -> bool:
    """Whether a comparison has NOT before its word, as in NOT LIKE."""
    return bool(node.args.get("negate")) or (isinstance(node, exp.Escape) and _is_negated(node.this))


def _check_parts(node: exp.Expr) -> None:
    """Raise for a part that no rule reads: to ignore it would change what the expression means."""
    for name, part in node.args.items():
        if part and name not in _READ and not (name == "safe" or name.startswith("_")):
            raise query_error(
                node, "UNSUPPORTED_SQL", f"{name.upper()} is not part of {type(node).__name__.upper()} here"
            )


#: the parts of nodes that the rules read
_READ = frozenset(
    (
        *("this", "expression", "expressions", "negate", "is_string", "table", "db", "catalog", "unit", "to"),
        *("low", "high", "ifs", "default", "true", "false", "query", "typed", "offset", "quoted"),
    )
)
_C = ExpressionCompiler
#: by the class of a node or a base of it, what compiles it; an expression without a type gets the one it has
_RULES: dict[type, Callable[[ExpressionCompiler, Any], pl.Expr | TypedExpr]] = {
    exp.Paren: lambda self, node: self.compile(node.this),
    exp.Column: lambda self, node: self.column(node),
    exp.Dot: _C._dot,
    exp.Bracket: _C._element,
    exp.Literal: _C._literal,
    exp.Boolean: lambda self, node: literal(bool(node.this)),
    exp.Null: lambda self, node: literal(None),
    exp.Parameter: _C._parameter,
    exp.Interval: _C._interval,
    exp.Anonymous: _C._call,
    exp.Extract: _C._extract,
    exp.Case: _C._case,
    exp.If: _C._case,
    exp.Cast: _C._cast,
    exp.DPipe: _C._concat,
    exp.Not: lambda self, node: TypedExpr(~self.condition(node.this), pl.Boolean()),
    exp.And: operators.connect,
    exp.Or: operators.connect,
    exp.Is: operators.is_value,
    exp.Between: operators.between,
    exp.In: operators.is_in,
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape, exp.RegexpLike), operators.match_pattern),
    **dict.fromkeys(operators.COMPARISONS, operators.compare),
    **dict.fromkeys(operators.ARITHMETIC, operators.calculate),
    **dict.fromkeys(operators.BITWISE, operators.combine_bits),
    exp.Div: operators.divide,
    exp.IntDiv: operators.divide_integers,
    exp.Mod: operators.divide_integers,
    exp.Neg: operators.negate,
}


def check_function(node: exp.Expr, name: str, own: Mapping[str, UserFunction]) -> None:
    """Raise NON_DETERMINISTIC, or UNKNOWN_FUNCTION or what explains a misplaced name better."""
    if name in own or name in FUNCTIONS:
        return
    if name in NON_DETERMINISTIC:
        raise non_deterministic(node, name)
    if name in AGGREGATES:
        raise query_error(
            node,
            "MISPLACED_AGGREGATE",
            f"{name} is computed over several events and cannot stand here",
            "Aggregates stand in SELECT, HAVING and ORDER BY, not in WHERE, GROUP BY, ON or another aggregate.",
        )
    if name in EDGES or is_window(node):
        raise query_error(
            node,
            "BAD_WINDOW",
            f"{name} belongs in GROUP BY, or in FROM",
            "As in GROUP BY TUMBLE(ts, INTERVAL '30' SECOND); then select window_start and window_end.",
        )
    raise query_error(
        node,
        "UNKNOWN_FUNCTION",
        f"there is no function {name}",
        suggest_name(name, [*FUNCTIONS, *AGGREGATES, *own]),
    )


def build_call(
    node: exp.Expr, name: str, arguments: Sequence[TypedExpr], own: Mapping[str, UserFunction]
) -> pl.Expr:
    """The expression of a call; raises BAD_ARGUMENT, or USER_FUNCTION_FAILED for the user's own functions."""
    if name not in own:
        check_function(node, name, own)
        return FUNCTIONS[name].build(arguments)
    _try_call(node, name, own[name], [argument.expr for argument in arguments])
    try:
        return own[name](*(argument.expr for argument in arguments))
    except UserError:
        raise
    except Exception as failure:  # whatever the user's code raises
        raise query_error(
            node,
            "USER_FUNCTION_FAILED",
            f"the function {name} raised {type(failure).__name__}: {failure}",
            "It is called with Polars expressions and must return one.",
        ) from failure


def _try_call(node: exp.Expr, name: str, function: UserFunction, arguments: Sequence[pl.Expr]) -> None:
    """Call a function of the user's on trial, where a child process is there for that; raises if it does not return."""
    process = current_process()
    if process is None:
        return
    try:
        process.call(_call, function, arguments)
    except TrialEnded as ended:
        raise query_error(
            node,
            "USER_FUNCTION_FAILED",
            f"the function {name} takes too much {'time' if ended.timed_out else 'memory'}",
            "It is called with Polars expressions and must return one.",
        ) from None
    except Exception:  # it cannot be sent, or whatever the user's code raises, it raises here too
        return


def _call(function: UserFunction, arguments: Sequence[pl.Expr]) -> None:
    function(*arguments)


def non_deterministic(node: exp.Expr, name: str) -> UserError:
    """The error for a function whose result is another each time."""
    return query_error(
        node,
        "NON_DETERMINISTIC",
        f"{name.lower()} would return another result when the same events are computed again",
        "Use the event time of the events, or window_end.",
    )

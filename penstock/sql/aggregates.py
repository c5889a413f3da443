"""Aggregate functions of SQL, made of the aggregate functions of the library.

Nulls are ignored. Of nothing but nulls every aggregate is null, except the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from sqlglot import exp

from penstock.operators import functions
from penstock.operators.functions import AggregateFunction
from penstock.sql.errors import query_error
from penstock.sql.functions import TypedExpr


@dataclass
class AggregateSet:
    """The aggregates of a query, each computed once however often it is named, and the columns that they need.

    The names of the columns (`value 1`, `answer 1`) are in state on disk.
    """

    schema: Mapping[str, pl.DataType]
    columns: dict[str, pl.Expr] = field(default_factory=dict)
    functions: dict[tuple[object, ...], AggregateFunction] = field(default_factory=dict)
    #: the names of columns by the texts of their expressions
    _names: dict[str, list[str]] = field(default_factory=dict)

    def column(self, expr: pl.Expr, *, taken: Sequence[str] = ()) -> str:
        """A column with these values; a new one unless the expression is a column whose name is not `taken`."""
        if expr.meta.is_column() and (name := expr.meta.root_names()[0]) not in taken:
            return name
        same_text = self._names.setdefault(str(expr), [])  # there may be thousands of others
        for name in same_text:
            if self.columns[name].meta.eq(expr):
                return name
        name = f"value {len(self.columns) + 1}"
        while name in self.schema or name in self.columns:
            name += "'"
        self.columns[name] = expr
        same_text.append(name)
        return name

    def add(self, make: Callable[..., AggregateFunction], expr: pl.Expr | None, *more: float) -> pl.Expr:
        """The result of an aggregate of the library over an expression."""
        column = None if expr is None else self.column(expr)
        key = (make, column, *more)
        if key not in self.functions:
            alias = f"answer {len(self.functions) + 1}"
            arguments = (alias,) if column is None else (column, *more, alias)
            self.functions[key] = make(*arguments)
        return pl.col(self.functions[key].alias)

    def count_values(self, expr: pl.Expr) -> pl.Expr:
        """The number of values that are not null."""
        return self.add(functions.count_of, expr)


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate: of an expression, or (without one) of whole events; only where `condition` holds."""

    node: exp.Expr
    name: str
    arguments: Sequence[TypedExpr]
    distinct: bool
    condition: pl.Expr | None

    def value(self, *, numeric: bool = False) -> pl.Expr:
        """What is aggregated; null where it does not count."""
        value = self.arguments[0]
        if numeric and not (value.dtype.is_numeric() or isinstance(value.dtype, pl.Duration)):
            raise query_error(
                self.node,
                "TYPE_MISMATCH",
                f"{self.name} needs numbers, but this is {value.dtype}",
                "CAST it first, as in SUM(CAST(n AS BIGINT)).",
            )
        return value.expr if self.condition is None else pl.when(self.condition).then(value.expr)

    def boolean(self) -> pl.Expr:
        """What is aggregated, which must be a condition."""
        if self.arguments[0].dtype != pl.Boolean:
            hint = f"As in {self.name.upper()}(n > 0)."
            raise query_error(self.node, "TYPE_MISMATCH", f"{self.name} needs a condition", hint)
        return self.value()

    def fraction(self, at: int) -> float:
        """A literal argument from 0 to 1."""
        value = self.arguments[at].literal
        if not self.arguments[at].is_literal or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise query_error(
                self.node,
                "BAD_ARGUMENT",
                f"{self.name} needs a fraction from 0 to 1",
                "As in PERCENTILE(x, 0.99).",
            )
        return float(value)


Build = Callable[[AggregateSet, AggregateCall], pl.Expr]


def _count(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
    if call.distinct:
        return aggregates.add(functions.count_distinct, call.value())
    if not call.arguments or (call.arguments[0].is_literal and call.arguments[0].literal is not None):
        if call.condition is None:
            return aggregates.add(functions.count, None)
        return aggregates.add(functions.sum_, call.condition.fill_null(False).cast(pl.Int64))
    return aggregates.count_values(call.value())


def _sum(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
    value = call.value(numeric=True)
    return pl.when(aggregates.count_values(value) > 0).then(aggregates.add(functions.sum_, value))


def _simple(make: Callable[..., AggregateFunction], *, numeric: bool = False) -> Build:
    return lambda aggregates, call: aggregates.add(make, call.value(numeric=numeric))


def _population_variance(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
    value = call.value(numeric=True)
    count, sample = aggregates.count_values(value), aggregates.add(functions.variance, value)
    return pl.when(count == 1).then(0.0).otherwise(sample * (count - 1) / count)


def _first_or_last(make: Callable[..., AggregateFunction]) -> Build:
    def build(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
        if call.condition is not None:
            raise query_error(
                call.node,
                "UNSUPPORTED_SQL",
                f"{call.name} cannot be filtered",
                "Filter with WHERE instead.",
            )
        return aggregates.add(make, call.value())

    return build


def _boolean(make: Callable[..., AggregateFunction]) -> Build:
    return lambda aggregates, call: aggregates.add(make, call.boolean())


def _count_if(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
    return aggregates.add(functions.sum_, call.boolean().fill_null(False).cast(pl.Int64))


def _quantile(make: Callable[..., AggregateFunction]) -> Build:
    return lambda aggregates, call: aggregates.add(make, call.value(numeric=True), call.fraction(1))


def _list(aggregates: AggregateSet, call: AggregateCall) -> pl.Expr:
    return aggregates.add(functions.collect, call.value()).list.drop_nulls()


#: by names in lower case: the least and the greatest number of arguments, and the builder
AGGREGATES: Mapping[str, tuple[int, int, Build]] = {
    "count": (0, 1, _count),
    "sum": (1, 1, _sum),
    **dict.fromkeys(("avg", "mean"), (1, 1, _simple(functions.avg, numeric=True))),
    "min": (1, 1, _simple(functions.min_)),
    "max": (1, 1, _simple(functions.max_)),
    "first": (1, 1, _first_or_last(functions.first)),
    "last": (1, 1, _first_or_last(functions.last)),
    **dict.fromkeys(("stddev", "stddev_samp", "std"), (1, 1, _simple(functions.stddev, numeric=True))),
    "stddev_pop": (1, 1, lambda aggregates, call: _population_variance(aggregates, call).sqrt()),
    **dict.fromkeys(("variance", "var_samp"), (1, 1, _simple(functions.variance, numeric=True))),
    "var_pop": (1, 1, _population_variance),
    "median": (1, 1, _simple(functions.median, numeric=True)),
    "percentile": (2, 2, _quantile(functions.quantile)),
    "approx_percentile": (2, 3, _quantile(functions.approx_quantile)),
    "approx_count_distinct": (1, 1, _simple(functions.approx_count_distinct)),
    **dict.fromkeys(("collect_list", "array_agg"), (1, 1, _list)),
    "collect_set": (1, 1, lambda aggregates, call: _list(aggregates, call).list.unique().list.sort()),
    "count_if": (1, 1, _count_if),
    **dict.fromkeys(("bool_and", "every"), (1, 1, _boolean(functions.min_))),
    **dict.fromkeys(("bool_or", "some"), (1, 1, _boolean(functions.max_))),
}


def is_aggregate(node: exp.Expr) -> bool:
    """Whether this is a call of an aggregate function, with its FILTER if it has one."""
    call = node.this if isinstance(node, exp.Filter) else node
    return isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES


def read_aggregate(
    node: exp.Expr,
    compile_: Callable[[exp.Expr], TypedExpr],
    compile_condition: Callable[[exp.Expr], pl.Expr],
) -> AggregateCall:
    """A call of an aggregate function, with the number of its arguments checked."""
    filtered = isinstance(node, exp.Filter)
    call = node.this if filtered else node
    name, arguments = call.name.lower(), list(call.expressions)
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
        if name != "count" or len(arguments) != 1:
            raise query_error(
                node,
                "UNSUPPORTED_SQL",
                f"{name.upper()} of several different values is not known",
                "COUNT(DISTINCT x) takes one expression.",
            )
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    elif name == "count" and not arguments:
        raise query_error(node, "BAD_ARGUMENT", "count has nothing to count", "Write COUNT(*).")
    least, most, _ = AGGREGATES[name]
    if not least <= len(arguments) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise query_error(
            node, "BAD_ARGUMENT", f"{name} has {len(arguments)} arguments here", f"It takes {count}."
        )
    condition = compile_condition(node.expression.this) if filtered else None
    return AggregateCall(node, name, [compile_(one) for one in arguments], distinct, condition)

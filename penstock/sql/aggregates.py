"""Aggregate functions of the language, made of those of the library.

Receives typed arguments; hands an expression over aggregates that a `Collected` remembers, so that each is computed
once however often a query names it. Nulls count as in SQL: they are left out, and of nothing but nulls everything
is null, save the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from sqlglot import exp

from penstock.operators import functions
from penstock.operators.functions import AggregateFunction
from penstock.sql.functions import Argument
from penstock.sql.places import refused


@dataclass
class Collected:
    """The aggregates of a query, and the columns that must be computed for them and for the keys."""

    schema: Mapping[str, pl.DataType]
    columns: dict[str, pl.Expr] = field(default_factory=dict)
    functions: dict[tuple[object, ...], AggregateFunction] = field(default_factory=dict)

    def column(self, expr: pl.Expr, *, taken: Sequence[str] = ()) -> str:
        """A column with these values; a new one unless the expression is a column whose name is not `taken`."""
        if expr.meta.is_column() and (name := expr.meta.root_names()[0]) not in taken:
            return name
        for name, known in self.columns.items():
            if known.meta.eq(expr):
                return name
        name = f"value {len(self.columns) + 1}"
        while name in self.schema or name in self.columns:
            name += "'"
        self.columns[name] = expr
        return name

    def base(self, make: Callable[..., AggregateFunction], expr: pl.Expr | None, *more: float) -> pl.Expr:
        """An aggregate of the library over an expression."""
        column = None if expr is None else self.column(expr)
        key = (make, column, *more)
        if key not in self.functions:
            alias = f"answer {len(self.functions) + 1}"
            arguments = (alias,) if column is None else (column, *more, alias)
            self.functions[key] = make(*arguments)
        return pl.col(self.functions[key].alias)

    def values(self, expr: pl.Expr) -> pl.Expr:
        """How many values are not null."""
        return self.base(functions.count_of, expr)


@dataclass(frozen=True)
class Asked:
    """A call of an aggregate: over an expression, or (None) over whole events; only where `only` holds."""

    node: exp.Expr
    name: str
    arguments: Sequence[Argument]
    distinct: bool
    only: pl.Expr | None

    def value(self, numeric: bool = False) -> pl.Expr:
        """What is aggregated, null where it does not count."""
        given = self.arguments[0]
        if numeric and not (given.dtype.is_numeric() or isinstance(given.dtype, pl.Duration)):
            raise refused(
                self.node,
                "TYPE_MISMATCH",
                f"{self.name} needs numbers, but this is {given.dtype}",
                "CAST it first, as in SUM(CAST(n AS BIGINT)).",
            )
        return given.expr if self.only is None else pl.when(self.only).then(given.expr)

    def share(self, at: int) -> float:
        """An argument that says a share, from 0 to 1."""
        given = self.arguments[at].literal
        if not self.arguments[at].is_literal or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise refused(
                self.node,
                "BAD_ARGUMENT",
                f"{self.name} needs a share from 0 to 1",
                "As in PERCENTILE(x, 0.99).",
            )
        return float(given)


Build = Callable[[Collected, Asked], pl.Expr]


def _count(found: Collected, asked: Asked) -> pl.Expr:
    if asked.distinct:
        return found.base(functions.count_distinct, asked.value())
    if not asked.arguments or (asked.arguments[0].is_literal and asked.arguments[0].literal is not None):
        if asked.only is None:
            return found.base(functions.count, None)
        return found.base(functions.sum_, asked.only.fill_null(False).cast(pl.Int64))
    return found.values(asked.value())


def _sum(found: Collected, asked: Asked) -> pl.Expr:
    value = asked.value(numeric=True)
    return pl.when(found.values(value) > 0).then(found.base(functions.sum_, value))


def _plain(make: Callable[..., AggregateFunction], *, numeric: bool = False) -> Build:
    return lambda found, asked: found.base(make, asked.value(numeric))


def _population(root: bool) -> Build:
    def made(found: Collected, asked: Asked) -> pl.Expr:
        value = asked.value(numeric=True)
        count, sample = found.values(value), found.base(functions.variance, value)
        spread = pl.when(count == 1).then(0.0).otherwise(sample * (count - 1) / count)
        return spread.sqrt() if root else spread

    return made


def _edge(make: Callable[..., AggregateFunction]) -> Build:
    def made(found: Collected, asked: Asked) -> pl.Expr:
        if asked.only is not None:
            raise refused(
                asked.node,
                "UNSUPPORTED_SQL",
                f"{asked.name} cannot be filtered",
                "Filter with WHERE instead.",
            )
        return found.base(make, asked.value())

    return made


def _truth(make: Callable[..., AggregateFunction]) -> Build:
    def made(found: Collected, asked: Asked) -> pl.Expr:
        if asked.arguments[0].dtype != pl.Boolean:
            raise refused(asked.node, "TYPE_MISMATCH", f"{asked.name} needs a condition", "As in n > 0.")
        return found.base(make, asked.value())

    return made


def _count_if(found: Collected, asked: Asked) -> pl.Expr:
    if asked.arguments[0].dtype != pl.Boolean:
        raise refused(asked.node, "TYPE_MISMATCH", "count_if needs a condition", "As in COUNT_IF(n > 0).")
    return found.base(functions.sum_, asked.value().fill_null(False).cast(pl.Int64))


def _quantile(make: Callable[..., AggregateFunction]) -> Build:
    return lambda found, asked: found.base(make, asked.value(numeric=True), asked.share(1))


def _list(found: Collected, asked: Asked) -> pl.Expr:
    return found.base(functions.collect, asked.value()).list.drop_nulls()


def _set(found: Collected, asked: Asked) -> pl.Expr:
    return _list(found, asked).list.unique().list.sort()


#: by names in lower case: how many arguments at least and at most, and what they are made of
AGGREGATES: Mapping[str, tuple[int, int, Build]] = {
    "count": (0, 1, _count),
    "sum": (1, 1, _sum),
    "avg": (1, 1, _plain(functions.avg, numeric=True)),
    "mean": (1, 1, _plain(functions.avg, numeric=True)),
    "min": (1, 1, _plain(functions.min_)),
    "max": (1, 1, _plain(functions.max_)),
    "first": (1, 1, _edge(functions.first)),
    "last": (1, 1, _edge(functions.last)),
    "stddev": (1, 1, _plain(functions.stddev, numeric=True)),
    "stddev_samp": (1, 1, _plain(functions.stddev, numeric=True)),
    "std": (1, 1, _plain(functions.stddev, numeric=True)),
    "stddev_pop": (1, 1, _population(root=True)),
    "variance": (1, 1, _plain(functions.variance, numeric=True)),
    "var_samp": (1, 1, _plain(functions.variance, numeric=True)),
    "var_pop": (1, 1, _population(root=False)),
    "median": (1, 1, _plain(functions.median, numeric=True)),
    "percentile": (2, 2, _quantile(functions.quantile)),
    "approx_percentile": (2, 3, _quantile(functions.approx_quantile)),
    "approx_count_distinct": (1, 1, _plain(functions.approx_count_distinct)),
    "collect_list": (1, 1, _list),
    "array_agg": (1, 1, _list),
    "collect_set": (1, 1, _set),
    "count_if": (1, 1, _count_if),
    "bool_and": (1, 1, _truth(functions.min_)),
    "every": (1, 1, _truth(functions.min_)),
    "bool_or": (1, 1, _truth(functions.max_)),
    "some": (1, 1, _truth(functions.max_)),
}


def is_aggregate(node: exp.Expr) -> bool:
    """Whether this is a call of an aggregate function, with its FILTER if it has one."""
    call = node.this if isinstance(node, exp.Filter) else node
    return isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES


def asked_for(
    node: exp.Expr, of: Callable[[exp.Expr], Argument], condition: Callable[[exp.Expr], pl.Expr]
) -> Asked:
    """A call of an aggregate function, its arguments checked as far as every function wants it."""
    filtered = isinstance(node, exp.Filter)
    call = node.this if filtered else node
    name, given = call.name.lower(), list(call.expressions)
    distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
    if distinct:
        given = given[0].expressions
        if name != "count" or len(given) != 1:
            raise refused(
                node,
                "UNSUPPORTED_SQL",
                f"{name.upper()} of several different values is not known",
                "COUNT(DISTINCT x) takes one expression.",
            )
    if name == "count" and len(given) == 1 and isinstance(given[0], exp.Star):
        given = []
    elif name == "count" and not given:
        raise refused(node, "BAD_ARGUMENT", "count has nothing to count", "Write COUNT(*).")
    least, most, _ = AGGREGATES[name]
    if not least <= len(given) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise refused(node, "BAD_ARGUMENT", f"{name} has {len(given)} arguments here", f"It takes {wanted}.")
    only = condition(node.expression.this) if filtered else None
    return Asked(node, name, [of(one) for one in given], distinct, only)

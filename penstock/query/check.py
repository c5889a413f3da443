"""Checks of a query while it is written: columns exist, types fit, names are free.

On failure: a `UserError` that names the user's line and the nearest right name.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.operators.partitioners import ByRange
from penstock.operators.routes import Partitioner
from penstock.origin import Origin
from penstock.query.limits import check_time
from penstock.query.purity import calls_python, check_row_wise, run_trial
from penstock.state.buckets import can_be_key

#: the longest duration of a window, in microseconds
_LONGEST = 365_250 * 86_400_000_000

Schema = Mapping[str, pl.DataType]


def names(values: Iterable[object], origin: Origin, example: str) -> tuple[str, ...]:
    """The names of columns, one by one or in lists; raises for anything else."""
    columns: list[str] = []
    for one in values:
        if isinstance(one, str):
            columns.append(one)
        elif isinstance(one, list | tuple):
            columns += names(one, origin, example)
        else:
            raise UserError(
                "NOT_A_COLUMN_NAME",
                f"a column's name is needed here, but this is {_spell(one)}",
                where=str(origin),
                hint=_name_hint(one, example),
            )
    return tuple(columns)


def _spell(thing: object) -> str:
    return f"the expression {thing}" if isinstance(thing, pl.Expr) else f"{thing!r}"


def _name_hint(thing: object, example: str) -> str:
    if isinstance(thing, pl.Expr) and thing.meta.is_column():
        return f"Write its name: {thing.meta.output_name()!r}."
    if isinstance(thing, pl.Expr):
        return f"Make it a column first, with .map(name={thing}), and then pass its name."
    return f"As in {example}."


def columns_exist(names: Iterable[str], schema: Schema, origin: Origin, what: str) -> None:
    """Raise unless every name is a column."""
    for name in names:
        if name not in schema:
            near = difflib.get_close_matches(name, schema, n=1)
            raise UserError(
                "UNKNOWN_COLUMN",
                f"there is no column {name!r} for {what}",
                where=str(origin),
                detail=f"the columns here are {', '.join(c for c in schema if not c.startswith('_'))}",
                hint=f"Did you mean {near[0]!r}?" if near else None,
            )


def no_wildcard(expr: pl.Expr, origin: Origin) -> None:
    """Raise for expressions over all columns: batches carry columns of Penstock's own beside the user's."""
    if "cs." in re.sub(r'"[^"]*"', "", str(expr)):
        raise UserError(
            "WILDCARD",
            "an expression must name its columns",
            where=str(origin),
            detail=f"this one goes over whatever columns there are: {expr}",
            hint="Write the columns out, as in pl.sum_horizontal('a', 'b').",
        )


def names_free(names: Iterable[str], origin: Origin) -> None:
    """Raise for names that are reserved for Penstock."""
    for name in names:
        if name.startswith("_"):
            raise UserError(
                "RESERVED_NAME",
                f"the column name {name!r} is reserved",
                where=str(origin),
                hint="Names that start with an underscore are Penstock's own; choose another.",
            )


def names_differ(names: Iterable[str], origin: Origin) -> None:
    """Raise if a step would have two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(
                "NAME_TAKEN",
                f"two columns would be called {name!r}",
                where=str(origin),
                hint="Give one of them another name: an aggregate takes one as its last argument, "
                "as in count('clicks'); a column gets one with .map(...) or .select(...).",
            )
        seen.add(name)


def keys_fit(keys: Iterable[str], schema: Schema, origin: Origin) -> None:
    """Raise for columns that cannot be keys."""
    columns_exist(keys, schema, origin, "the key")
    for key in keys:
        if not can_be_key(schema[key]):
            raise UserError(
                "BAD_KEY_TYPE",
                f"the column {key!r} of type {schema[key]} cannot be a key",
                where=str(origin),
                hint="Key by text, numbers, booleans or times; map a list or struct to one of these first.",
            )


def duration(value: Duration, origin: Origin, condition: str, what: str, *, least: int | None = 1) -> int:
    """A duration in microseconds; raises if it is none, shorter than `least`, or longer than a thousand years."""
    try:
        backwards = least is None and isinstance(value, str) and value.startswith("-")
        micros = -microseconds(str(value)[1:]) if backwards else microseconds(value)
    except UserError as error:
        raise UserError(
            error.condition, error.primary, detail=error.detail, hint=error.hint, where=str(origin)
        ) from None
    if (least is not None and micros < least) or abs(micros) > _LONGEST:
        raise UserError(
            condition,
            f"{what} {value!r}",
            where=str(origin),
            hint='Write a duration of at least a microsecond and at most a thousand years, such as "30s".',
        )
    return micros


def partition_fits(partition: Partitioner, keys: Iterable[str], origin: Origin) -> None:
    """Raise for a partitioner by a column that is no key: it would separate rows of one key."""
    if isinstance(partition, ByRange) and partition.column not in keys:
        raise UserError(
            "BAD_PARTITION",
            f"the partitioner reads {partition.column!r}, which is no key",
            where=str(origin),
            hint=f"Partition by one of {', '.join(keys)}.",
        )


def mapped_schema(
    schema: Schema, columns: Mapping[str, pl.Expr], only: bool, origin: Origin
) -> dict[str, pl.DataType]:
    """The columns after a map or select."""
    names_free(columns, origin)
    for name, expr in columns.items():
        if not isinstance(expr, pl.Expr):
            raise UserError(
                "NOT_AN_EXPRESSION",
                f"the column {name!r} needs an expression, but this is {expr!r}",
                where=str(origin),
                hint=f"For the value itself write ps.lit({expr!r})"
                + (f", for the column of that name ps.col({expr!r})." if isinstance(expr, str) else "."),
            )
        no_wildcard(expr, origin)
        columns_exist(expr.meta.root_names(), schema, origin, f"{name!r}")
    resolved = _resolve_schema(
        schema, {f"the column {name!r}": expr.alias(name) for name, expr in columns.items()}, only, origin
    )
    for name, expr in columns.items():
        check_row_wise(expr, schema, f"the column {name!r}", origin)
    return resolved


def named_expressions(values: Iterable[object], origin: Origin) -> dict[str, pl.Expr]:
    """The expressions by their names, of names, expressions and lists of these."""
    columns: dict[str, pl.Expr] = {}
    for one in values:
        if isinstance(one, list | tuple):
            named = named_expressions(one, origin)
        elif isinstance(one, pl.Expr):
            no_wildcard(one, origin)
            named = {one.meta.output_name(): one}
        else:
            name = names([one], origin, '.select("user", pages=col("n") + 1)')[0]
            named = {name: pl.col(name)}
        for name, expr in named.items():
            if name in columns and str(columns[name]) != str(expr):
                names_differ([name, name], origin)
            columns[name] = expr
    return columns


def condition(schema: Schema, predicate: pl.Expr, origin: Origin, what: str) -> None:
    """Raise unless this is a condition over columns that exist."""
    expr = predicate if isinstance(predicate, pl.Expr) else pl.lit(predicate)
    no_wildcard(expr, origin)
    columns_exist(expr.meta.root_names(), schema, origin, what)
    result = _resolve_schema(schema, {what: expr.alias("condition")}, True, origin)
    if result["condition"] != pl.Boolean or expr is not predicate:
        raise UserError(
            "TYPE_MISMATCH",
            f"{what} needs a condition, but this is {result['condition']}",
            where=str(origin),
            hint='Compare something, as in col("status") == 200.',
        )
    check_row_wise(predicate, schema, what, origin)


def exploded_schema(schema: Schema, columns: Sequence[str], origin: Origin) -> dict[str, pl.DataType]:
    """The columns after an explode."""
    columns_exist(columns, schema, origin, "explode")
    inner: dict[str, pl.DataType] = {}
    for name in columns:
        dtype = schema[name]
        if not isinstance(dtype, pl.List | pl.Array):
            raise UserError(
                "TYPE_MISMATCH",
                f"explode needs lists, but {name!r} is {dtype}",
                where=str(origin),
                hint='Make a list first, as in .map(words=col("text").str.split(" ")).',
            )
        inner[name] = pl.Series(dtype=dtype).explode().dtype
    if not columns:
        raise UserError(
            "BAD_EXPLODE", "explode needs a column", where=str(origin), hint='As in .explode("words").'
        )
    return {**schema, **inner}


def union_schema(schemas: list[Schema], origin: Origin) -> dict[str, pl.DataType]:
    """The columns of a union; raises unless all parts have the same."""
    first = dict(schemas[0])
    for other in schemas[1:]:
        if dict(other) != first:
            differing = sorted({n for n in {**first, **other} if first.get(n) != other.get(n)})
            raise UserError(
                "SCHEMA_MISMATCH",
                "the parts of a union have different columns",
                where=str(origin),
                detail="; ".join(
                    f"{n}: {first.get(n, 'absent')} and {other.get(n, 'absent')}" for n in differing
                ),
                hint="Bring them to the same columns with .select(...) first.",
            )
    return first


def _resolve_schema(
    schema: Schema, columns: Mapping[str, pl.Expr], only: bool, origin: Origin
) -> dict[str, pl.DataType]:
    """The columns after these expressions, which are evaluated on no rows and on a row of nulls."""
    empty = empty_frame(schema)
    for name, expr in columns.items():
        check_time()
        failure = run_trial(expr, name, origin, functools.partial(_failure, empty, expr, calls_python(expr)))
        if failure is not None:
            raise UserError(
                "TYPE_MISMATCH",
                f"{name} does not fit its columns",
                where=str(origin),
                detail=str(failure).split("\n\n")[0],
                hint=_types_hint(expr, schema),
            ) from failure
    lazy = empty.lazy().select(columns.values()) if only else empty.lazy().with_columns(columns.values())
    return dict(lazy.collect_schema())


def empty_frame(schema: Schema) -> pl.DataFrame:
    """A frame of these columns without rows, to try expressions on; made once for each list of columns."""
    return _make_empty_frame(tuple(schema.items()))


@functools.lru_cache(maxsize=256)
def _make_empty_frame(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


def _types_hint(expr: pl.Expr, schema: Schema) -> str:
    types = ", ".join(f"{name!r} is {schema[name]}" for name in dict.fromkeys(expr.meta.root_names()))
    return f"Here {types}; .cast(...) makes one type of another." if types else f"The expression is {expr}."


def _failure(empty: pl.DataFrame, expr: pl.Expr, has_python: bool) -> pl.exceptions.PolarsError | None:
    """The error of an expression on no rows. A ComputeError may be the fault of the rows, unless any rows cause it."""
    try:
        empty.select(expr)
    except pl.exceptions.ComputeError as failure:
        if empty.height:
            return failure
        return None if has_python else _failure(empty.clear(1), expr, False)
    except pl.exceptions.PolarsError as failure:
        return failure
    except pl.exceptions.PanicException as failure:
        return pl.exceptions.ComputeError(str(failure))
    return None

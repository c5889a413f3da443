"""The jobs of the jobs benchmark: many small queries over one click stream, drawn from a seed.

From the words of the data it makes jobs as data, their SQL, and the form in which results are
compared. Pure: the same arguments give the same jobs everywhere.

- Family A, one template with a constant each: what one page had in every 10 seconds.
- Family B, arbitrary: filters of one to three conditions, one or two keys, windows of several lengths (every eighth
  overlaps), one to three aggregates; every tenth has the ten most frequent keys of each window only.

Rows of an answer: `window_start` (microseconds since 1970 or a moment), the keys, the aggregates by their names.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from penstock.state.buckets import key_hash

Family = Literal["template", "arbitrary"]
FAMILIES: tuple[Family, ...] = ("template", "arbitrary")
Comparison = Literal["==", "=", "<>", "<", ">", "BETWEEN", "IN", "LIKE"]
Function = Literal["COUNT", "SUM", "AVG", "MIN", "MAX"]
Value = str | int

STREAM = "clicks"
TOP = 10
SECONDS = (5, 10, 15, 30, 60)
HOPPING = (60, 10)
#: the columns of whole numbers; all others that a job names are texts
NUMBERS = ("status", "bytes")
#: columns to group by, the likelier the more often they stand here; those that are never null come first
_NEVER_NULL = ("path", "path", "path", "path", "status", "status", "method")
_KEYS = (*_NEVER_NULL, "agent", "agent", "referer", "referer")
_FUNCTIONS: tuple[Function, ...] = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@dataclass(frozen=True)
class Condition:
    """A column compared with values: two of BETWEEN, several of IN, a prefix for LIKE, else one."""

    column: str
    comparison: Comparison
    values: tuple[Value, ...]

    def sql(self) -> str:
        values = [_literal(value) for value in self.values]
        match self.comparison:
            case "BETWEEN":
                return f"{self.column} BETWEEN {values[0]} AND {values[1]}"
            case "IN":
                return f"{self.column} IN ({', '.join(values)})"
            case "LIKE":
                return f"{self.column} LIKE {_literal(f'{self.values[0]}%')}"
        return f"{self.column} {self.comparison} {values[0]}"


@dataclass(frozen=True)
class Aggregate:
    """A function of a column, or of all rows, and the name of its result."""

    function: Function
    column: str
    name: str

    def sql(self) -> str:
        return f"{self.function}({self.column}) AS {self.name}"


@dataclass(frozen=True)
class Job:
    """A query: aggregates by keys in windows of `seconds`, over the events that meet all conditions.

    A window starts every `every` seconds. With `top` only the groups with the greatest first aggregate are emitted.
    """

    number: int
    where: tuple[Condition, ...]
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    seconds: int
    every: int
    top: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the stream that it reads."""
        filtered = (condition.column for condition in self.where)
        counted = (aggregate.column for aggregate in self.aggregates if aggregate.column != "*")
        return tuple(dict.fromkeys((*self.keys, *filtered, *counted)))

    def where_sql(self) -> str:
        return " AND ".join(condition.sql() for condition in self.where)

    def sql(self) -> str:
        """The query in Penstock's SQL."""
        columns = ", ".join(("window_start", *self.keys, *(aggregate.sql() for aggregate in self.aggregates)))
        keys = ", ".join(self.keys)
        query = f"SELECT {columns} FROM {STREAM} WHERE {self.where_sql()} GROUP BY {keys}"
        if self.top is not None:
            query += f" ORDER BY {self.aggregates[0].name} DESC, {keys} LIMIT {self.top}"
        query += f" WINDOWING {self.seconds} SECONDS"
        return query if self.every == self.seconds else f"{query} EVERY {self.every} SECONDS"


@dataclass(frozen=True)
class Words:
    """The values that occur in the data, the most frequent first. Nulls are not among them."""

    path: tuple[str, ...]
    method: tuple[str, ...]
    status: tuple[int, ...]
    agent: tuple[str, ...]
    referer: tuple[str, ...]
    session: tuple[str, ...]


def jobs_of(family: Family, count: int, words: Words, seed: int = 1) -> list[Job]:
    """Return so many jobs of a family; fewer are the first of more."""
    if family == "template":
        return [_template(number, words.path[number % len(words.path)]) for number in range(count)]
    draw = random.Random(seed)
    return [_arbitrary(number, words, draw) for number in range(count)]


def answer(job: Job, rows: pl.DataFrame) -> list[Any]:
    """Summarise the rows of a job in any order: its number, their count, and a number that depends on all values.

    A sum of nothing may be null or 0. Means are compared to a thousandth.
    """
    named = {aggregate.name: aggregate.function for aggregate in job.aggregates}
    start = pl.col("window_start").to_physical().cast(pl.Int64)
    values = [_comparable(function, pl.col(name)) for name, function in named.items()]
    plain = rows.select(start, *(pl.col(key).cast(pl.String) for key in job.keys), *values)
    hashed = key_hash(plain, plain.columns)
    return [job.number, rows.height, int(np.add.reduce(hashed, dtype=np.uint64))]


def _comparable(function: Function, value: pl.Expr) -> pl.Expr:
    if function == "AVG":
        value = (value * 1_000).round()
    return (value.fill_null(0) if function == "SUM" else value).cast(pl.Int64)


def _template(number: int, page: str) -> Job:
    aggregates = (Aggregate("COUNT", "*", "n"), Aggregate("SUM", "bytes", "b"))
    return Job(number, (Condition("path", "==", (page,)),), ("path",), aggregates, 10, 10)


def _arbitrary(number: int, words: Words, draw: random.Random) -> Job:
    top = TOP if number % 10 == 9 else None
    columns = draw.sample(["path", "method", "status", "bytes", "agent", "referer", "session"], 3)
    where = tuple(_condition(column, words, draw) for column in columns[: draw.randint(1, 3)])
    keys = tuple(dict.fromkeys(draw.choices(_KEYS if top is None else _NEVER_NULL, k=draw.randint(1, 2))))
    seconds, every = HOPPING if number % 8 == 7 else (draw.choice(SECONDS),) * 2
    functions: list[Function] = list(draw.sample(_FUNCTIONS, draw.randint(1, 3)))
    if top is not None:  # what is ranked is never null
        others = [function for function in functions if function != "COUNT"]
        functions = ["COUNT", *others[:2]]
    aggregates = tuple(_aggregate(at, function, draw) for at, function in enumerate(functions))
    return Job(number, where, keys, aggregates, seconds, every, top)


def _aggregate(at: int, function: Function, draw: random.Random) -> Aggregate:
    column = "*" if function == "COUNT" else draw.choice(("bytes", "bytes", "status"))
    return Aggregate(function, column, f"a{at}")


def _condition(column: str, words: Words, draw: random.Random) -> Condition:
    """A condition that some events meet and some do not, mostly."""
    if column == "bytes":
        low = draw.randrange(300, 30_000)
        among: list[tuple[Comparison, tuple[Value, ...]]] = [
            ("<", (low + 2_000,)),
            (">", (low,)),
            ("BETWEEN", (low, low + draw.randrange(1_000, 20_000))),
            ("<>", (low,)),
        ]
        return Condition(column, *draw.choice(among))
    values: tuple[Value, ...] = getattr(words, column)
    one = _likely(values, draw)
    several = tuple(dict.fromkeys(_likely(values, draw) for _ in range(draw.randint(2, 5))))
    among = [("=", (one,)), ("<>", (one,)), ("IN", several)]
    if column == "status":
        among += [("<", (400,)), (">", (200,)), ("BETWEEN", (300, 404))]
    elif column == "session":  # one of a hundred thousand: rather many than one
        among = [("LIKE", (str(one)[: draw.randint(4, 6)],)), ("IN", several), ("<>", (one,))]
    elif column != "method":
        among += [("LIKE", (_prefix(str(one), draw),))]
    return Condition(column, *draw.choice(among))


def _likely(values: Sequence[Value], draw: random.Random) -> Value:
    """One of the values, the more likely the more frequent it is."""
    return values[int(len(values) * draw.random() ** 3)]


def _prefix(text: str, draw: random.Random) -> str:
    """Return a prefix of a text without wildcards of LIKE."""
    cut = text[: draw.randint(1, max(1, len(text) - 1))]
    return cut.split("_")[0].split("%")[0] or text[:1]


def _literal(value: Value) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

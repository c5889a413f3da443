"""The expected results of jobs, by plain batch code that shares nothing with the engines: Polars over the whole files.

Also the words of a data set that jobs are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from bench.dataset import Dataset
from bench.job_queries import NUMBERS, Aggregate, Condition, Job, Words, answer
from bench.outcome import AnswerRows
from bench.reference import FIELDS

_SECOND = 1_000_000


def answers(jobs: Sequence[Job], dataset: Dataset) -> AnswerRows:
    """Return the expected result of each job, in the form in which they are compared."""
    events = clicks(dataset)
    return [answer(job, rows(job, events)) for job in jobs]


def words_of(dataset: Dataset) -> Words:
    """Return the values that occur in a data set, the most frequent first, equally frequent ones in their own order."""
    events = clicks(dataset)

    def values(column: str) -> tuple[str | int, ...]:
        counted = events[column].drop_nulls().value_counts()
        return tuple(counted.sort("count", column, descending=[True, False])[column].to_list())

    return Words(**{name: values(name) for name in Words.__dataclass_fields__})  # type: ignore[arg-type]


def clicks(dataset: Dataset) -> pl.DataFrame:
    """All events with the columns that jobs can name; `time` in microseconds."""
    lines = pl.concat(
        [
            pl.scan_csv(path, separator=" ", has_header=False, schema=dict.fromkeys(FIELDS, pl.String))
            for path in dataset.files
        ]
    )
    request = pl.col("request").str.split(" ")
    columns = {
        "time": pl.col("stamp").str.to_datetime("[%d/%b/%Y:%H:%M:%S", time_unit="us").dt.epoch("us"),
        "method": request.list.get(0),
        "path": request.list.get(1),
        "session": pl.col("cookie").str.strip_prefix("session="),
        **{name: _unless_dash(name).cast(pl.Int64) for name in NUMBERS},
        **{name: _unless_dash(name) for name in ("agent", "referer")},
    }
    return lines.select(column.alias(name) for name, column in columns.items()).collect()


def rows(job: Job, events: pl.DataFrame) -> pl.DataFrame:
    """Return the result of a job, with each event once under every window that holds it."""
    every = job.every * _SECOND
    windows = range(job.seconds // job.every)
    matching = events.lazy().filter(_condition(condition) for condition in job.where)
    windowed = pl.concat(
        [
            matching.with_columns(((pl.col("time") // every - earlier) * every).alias("window_start"))
            for earlier in windows
        ]
    )
    grouped = windowed.group_by("window_start", *job.keys).agg(_aggregate(one) for one in job.aggregates)
    if job.top is not None:
        first = job.aggregates[0].name
        ordered = grouped.sort(
            "window_start", first, *job.keys, descending=[False, True, *(False for _ in job.keys)]
        )
        grouped = ordered.group_by("window_start", maintain_order=True).head(job.top)
    return grouped.select("window_start", *job.keys, *(one.name for one in job.aggregates)).collect()


def _condition(condition: Condition) -> pl.Expr:
    column, value = pl.col(condition.column), condition.values[0]
    match condition.comparison:
        case "==" | "=":
            return column == value
        case "<>":
            return column != value
        case "<":
            return column < value
        case ">":
            return column > value
        case "BETWEEN":
            return (column >= value) & (column <= condition.values[1])
        case "IN":
            return column.is_in(condition.values)
        case "LIKE":
            return column.str.starts_with(str(value))


def _aggregate(aggregate: Aggregate) -> pl.Expr:
    column = pl.col(aggregate.column) if aggregate.column != "*" else pl.lit(0)
    match aggregate.function:
        case "COUNT":
            expression = pl.len()
        case "SUM":
            expression = column.sum()
        case "AVG":
            expression = column.mean()
        case "MIN":
            expression = column.min()
        case "MAX":
            expression = column.max()
    return expression.alias(aggregate.name)


def _unless_dash(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != "-").then(pl.col(name))

"""The right answers of jobs, by plain batch code that shares nothing with the engines: Polars over the whole files.

Receives jobs and a data set; hands the rows that every engine must give, and the words that jobs are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from bench.dataset import Dataset
from bench.job_queries import NUMBERS, Aggregate, Condition, Job, Words, answer
from bench.outcome import Answer
from bench.reference import FIELDS

_SECOND = 1_000_000


def answers(jobs: Sequence[Job], dataset: Dataset) -> Answer:
    """The right answer of each job, in the form in which they are compared."""
    events = clicks(dataset)
    return [answer(job, rows(job, events)) for job in jobs]


def words_of(dataset: Dataset) -> Words:
    """The values that occur in a data set, the most frequent first, equally frequent ones by themselves."""
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
    """The rows that answer a job: each event once under every window that holds it."""
    every = job.every * _SECOND
    windows = range(job.seconds // job.every)
    met = events.lazy().filter(_met(condition) for condition in job.where)
    placed = pl.concat(
        [
            met.with_columns(((pl.col("time") // every - earlier) * every).alias("window_start"))
            for earlier in windows
        ]
    )
    told = placed.group_by("window_start", *job.keys).agg(_aggregated(one) for one in job.aggregates)
    if job.top is not None:
        first = job.aggregates[0].name
        ordered = told.sort(
            "window_start", first, *job.keys, descending=[False, True, *(False for _ in job.keys)]
        )
        told = ordered.group_by("window_start", maintain_order=True).head(job.top)
    return told.select("window_start", *job.keys, *(one.name for one in job.aggregates)).collect()


def _met(condition: Condition) -> pl.Expr:
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


def _aggregated(aggregate: Aggregate) -> pl.Expr:
    column = pl.col(aggregate.column) if aggregate.column != "*" else pl.lit(0)
    match aggregate.function:
        case "COUNT":
            made = pl.len()
        case "SUM":
            made = column.sum()
        case "AVG":
            made = column.mean()
        case "MIN":
            made = column.min()
        case "MAX":
            made = column.max()
    return made.alias(aggregate.name)


def _unless_dash(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != "-").then(pl.col(name))

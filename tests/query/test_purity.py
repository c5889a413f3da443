"""Expressions and functions whose answer depends on chance, the clock or other rows are refused at once."""

from __future__ import annotations

import datetime as dates
import random
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from random import random as chance

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.testing.list_log import ListLog

COLUMNS = {
    "time": pl.Datetime("us", "UTC"),
    "user": pl.String(),
    "n": pl.Int64(),
    "tags": pl.List(pl.String()),
}


def clicks() -> ps.Stream:
    return ps.stream("clicks", ListLog([]), ps.json_lines(COLUMNS), time="time")


@pytest.mark.parametrize(
    "expr",
    [
        col("n").shift(1),
        col("n").cum_sum(),
        col("n") - col("n").mean(),
        col("n").rank(),
        col("n").sum().over("user"),
        col("user").n_unique(),
        pl.int_range(pl.len()),
        col("n") == col("n").max(),
    ],
)
def test_what_depends_on_other_rows_is_refused(expr: pl.Expr) -> None:
    with pytest.raises(UserError) as caught:
        clicks().map(x=expr)
    assert caught.value.condition == "NOT_ROW_WISE"
    assert "test_purity.py" in (caught.value.where or "")


def test_what_depends_on_chance_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        clicks().filter(col("n").shuffle() > 50)
    assert caught.value.condition == "NON_DETERMINISTIC"


@pytest.mark.parametrize(
    "expr",
    [
        col("n") * 2 + 1,
        pl.lit(3),
        pl.when(col("n") > 3).then(col("user")).otherwise(pl.lit("x")),
        col("user").str.split("/").list.last(),
        col("tags").list.join(",") + col("user"),
        col("time").dt.truncate("1h"),
        col("n").is_in([1, 2, 3]),
        col("user").str.to_integer(strict=False),
        pl.concat_str("user", "n"),
        col("n").map_elements(lambda n: n + 1, return_dtype=pl.Int64),
    ],
)
def test_what_goes_row_by_row_is_taken(expr: pl.Expr) -> None:
    assert "x" in clicks().map(x=expr).columns


def by_module(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(random.random() < 0.5)


def by_name(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(chance() < 0.5)


def by_clock(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(at=pl.lit(time.time()))


def by_date(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(at=pl.lit(datetime.now()))


def by_inner_function(frame: pl.DataFrame) -> pl.DataFrame:
    def named() -> str:
        return str(uuid.uuid4())

    return frame.with_columns(id=pl.lit(named()))


@pytest.mark.parametrize("function", [by_module, by_name, by_clock, by_date, by_inner_function])
def test_a_function_that_asks_the_clock_or_chance_is_refused(
    function: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    with pytest.raises(UserError) as caught:
        clicks().map_batches(function)
    assert caught.value.condition == "NON_DETERMINISTIC"
    assert function.__name__ in caught.value.primary
    clicks().map_batches(function, deterministic=True)


def of_the_event(frame: pl.DataFrame) -> pl.DataFrame:
    later = dates.timedelta(seconds=3)
    return frame.filter(pl.col("time") < datetime(2026, 1, 1) + later)


def slowly(frame: pl.DataFrame) -> pl.DataFrame:
    time.sleep(0.001 * frame.height)
    return frame


@pytest.mark.parametrize("function", [of_the_event, slowly])
def test_a_function_that_only_handles_dates_or_waits_is_taken(
    function: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    clicks().map_batches(function)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 60])
def test_a_slow_function_is_called_once_and_not_waited_for(seconds: float) -> None:
    over, sizes = threading.Event(), []

    def waiting(values: pl.Series) -> pl.Series:
        sizes.append(len(values))
        over.wait(seconds)
        return values

    started = time.monotonic()
    assert "x" in clicks().map(x=col("n").map_batches(waiting, return_dtype=pl.Int64)).columns
    assert time.monotonic() - started < 20
    over.set()
    assert len([size for size in sizes if size]) <= 1


def test_a_quick_function_that_looks_at_other_rows_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        clicks().map(x=col("n").map_batches(lambda values: values.shift(1), return_dtype=pl.Int64))
    assert caught.value.condition == "NOT_ROW_WISE"


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: rows.window("1s").count(),
        lambda rows: rows.key_by("user").last(2, "n"),
        lambda rows: rows.filter(col("n") > 1).union(rows).key_by("user").running("1s").count(),
    ],
)
def test_what_goes_over_several_events_needs_an_event_time(build: Callable[[ps.Stream], ps.Stream]) -> None:
    timeless = ps.stream("clicks", ListLog([]), ps.json_lines(COLUMNS))
    with pytest.raises(UserError) as caught:
        build(timeless)
    assert caught.value.condition == "MISSING_EVENT_TIME"
    assert "test_purity.py" in (caught.value.where or "")

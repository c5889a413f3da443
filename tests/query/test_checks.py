"""What a user can get wrong while writing a query, and how it is reported: at once, by name, with the line."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.testing.list_log import ListLog

COLUMNS = {
    "time": pl.Datetime("us", "UTC"),
    "user": pl.String(),
    "page": pl.String(),
    "bytes": pl.Int64(),
    "tags": pl.List(pl.String()),
}


def clicks(
    name: str = "clicks", columns: dict[str, pl.DataType] | None = None, time: str = "time"
) -> ps.Stream:
    decoder = ps.json_lines(COLUMNS if columns is None else columns)
    return ps.stream(name, ListLog([]), decoder, time=time)


def counted() -> ps.Stream:
    return clicks().key_by("user").window("30s").count()


MISTAKES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "a filter over no column": ("UNKNOWN_COLUMN", "'user'", lambda: clicks().filter(col("usr") == "x")),
    "a map over no column": ("UNKNOWN_COLUMN", "'page'", lambda: clicks().map(x=col("pagee") + "!")),
    "a select of no column": ("UNKNOWN_COLUMN", "'bytes'", lambda: clicks().select("byte")),
    "a key that is no column": ("UNKNOWN_COLUMN", "'user'", lambda: clicks().key_by("users")),
    "a last of no column": ("UNKNOWN_COLUMN", "'page'", lambda: clicks().key_by("user").last(2, "pages")),
    "a sum of no column": ("UNKNOWN_COLUMN", "'bytes'", lambda: clicks().window("1s").sum("bites")),
    "a top by no column": ("UNKNOWN_COLUMN", "'count'", lambda: counted().top(3, by="counts")),
    "a top whose key is gone": ("UNKNOWN_COLUMN", "user", lambda: counted().select("count").top(3)),
    "a time that is no column": ("UNKNOWN_COLUMN", "'time'", lambda: clicks(time="tim")),
    "a time that is text": ("TYPE_MISMATCH", "Datetime", lambda: clicks(time="user")),
    "a filter that is no condition": (
        "TYPE_MISMATCH",
        "condition",
        lambda: clicks().filter(col("bytes") + 1),
    ),
    "a sum of text": ("TYPE_MISMATCH", "numbers", lambda: clicks().window("1s").sum("user")),
    "a mean of text": ("TYPE_MISMATCH", "numbers", lambda: clicks().window("1s").aggregate(ps.avg("user"))),
    "an expression that cannot be": (
        "TYPE_MISMATCH",
        "fit",
        lambda: clicks().map(x=col("bytes").str.to_uppercase()),
    ),
    "a reserved name in a map": ("RESERVED_NAME", "'_x'", lambda: clicks().map(_x=col("user"))),
    "a reserved name in an aggregate": ("RESERVED_NAME", "'_n'", lambda: clicks().window("1s").count("_n")),
    "a reserved name in a batch function": (
        "RESERVED_NAME",
        "'_y'",
        lambda: clicks().map_batches(lambda frame: frame, {"_y": pl.Int64}),
    ),
    "a reserved name in the stream": (
        "RESERVED_NAME",
        "'_z'",
        lambda: clicks(columns={"time": pl.Datetime("us"), "_z": pl.Int64()}),
    ),
    "a union of unlike parts": (
        "SCHEMA_MISMATCH",
        "bytes",
        lambda: clicks().union(clicks().map(bytes=col("bytes").cast(pl.String))),
    ),
    "a union with a column missing": (
        "SCHEMA_MISMATCH",
        "absent",
        lambda: clicks().union(clicks().select("time", "user")),
    ),
    "a top of plain events": ("TOP_WITHOUT_AGGREGATE", "aggregate", lambda: clicks().top(3)),
    "a top of filtered running totals": (
        "TOP_WITHOUT_AGGREGATE",
        "aggregate",
        lambda: clicks().key_by("user").running().count().filter(col("count") > 3).top(3),
    ),
    "a top of nothing": ("BAD_TOP", "top 0", lambda: counted().top(0)),
    "a last of none": ("BAD_LAST", "at least 1", lambda: clicks().key_by("user").last(0, "page")),
    "a last without a column": ("BAD_LAST", "column", lambda: clicks().key_by("user").last(2)),
    "a window without a length": ("BAD_WINDOW", "length", lambda: clicks().window(0)),
    "a window of nonsense": ("BAD_DURATION", "soon", lambda: clicks().window("soon")),
    "a window without a unit": ("BAD_DURATION", "'30'", lambda: clicks().window("30")),
    "a negative window": ("BAD_DURATION", "-5s", lambda: clicks().window("-5s")),
    "a window of no duration at all": ("BAD_DURATION", "None", lambda: clicks().window(None)),  # type: ignore[arg-type]
    "a window that never ends": ("BAD_DURATION", "inf", lambda: clicks().window(float("inf"))),
    "a window of a million years": ("BAD_DURATION", "thousand years", lambda: clicks().window("365000000d")),
    "windows that do not advance": ("BAD_WINDOW", "advance", lambda: clicks().window("1m", every=0)),
    "windows that go back": ("BAD_WINDOW", "advance", lambda: clicks().window("1m", every=-5)),
    "windows that advance by nonsense": ("BAD_DURATION", "often", lambda: clicks().window("1m", "often")),
    "windows shifted by nonsense": ("BAD_DURATION", "bit", lambda: clicks().window("1m", offset="a bit")),
    "too many windows at a time": (
        "BAD_WINDOW",
        "86,400,000 windows",
        lambda: clicks().key_by("user").window("1d", every="1ms"),
    ),
    "a running total without a step": ("BAD_WINDOW", "step", lambda: clicks().running(0)),
    "an emission at no time": ("BAD_EMIT", "when", lambda: clicks().window("1m").emit()),
    "an emission at two times": (
        "BAD_EMIT",
        "'change'",
        lambda: clicks().window("1m").emit("change", every="1s"),
    ),
    "an emission at some time": ("BAD_EMIT", "'sometimes'", lambda: clicks().window("1m").emit("sometimes")),
    "an emission all the time": ("BAD_EMIT", "0", lambda: clicks().window("1m").emit(every=0)),
    "an emission every nonsense": ("BAD_DURATION", "soon", lambda: clicks().window("1m").emit(every="soon")),
    "an emission at the end of all time": (
        "BAD_EMIT",
        "never close",
        lambda: clicks().running("1m").emit("close"),
    ),
    "a top of results emitted before the end": (
        "TOP_WITHOUT_AGGREGATE",
        "emit",
        lambda: clicks().key_by("user").window("1m").emit(every="1s").count().top(3),
    ),
    "a key named like the column of emit": (
        "NAME_TAKEN",
        "'as_of'",
        lambda: clicks().map(as_of=col("user")).key_by("as_of").window("1s").emit("change").count(),
    ),
    "an output with a bad name": ("BAD_NAME", "'a/b'", lambda: ps.output("a/b", clicks())),
    "an app without outputs": ("BAD_APP", "at least one", lambda: ps.app("x")),
    "two outputs of one name": (
        "BAD_APP",
        "called 'a'",
        lambda: ps.app("x", ps.output("a", clicks()), ps.output("a", clicks())),
    ),
    "a key of lists": ("BAD_KEY_TYPE", "tags", lambda: clicks().key_by("tags")),
    "two aggregates of one name": (
        "NAME_TAKEN",
        "'n'",
        lambda: clicks().window("1s").aggregate(ps.count("n"), ps.sum_("bytes", "n")),
    ),
    "an aggregate named like its key": (
        "NAME_TAKEN",
        "'user'",
        lambda: clicks().key_by("user").window("1s").count("user"),
    ),
    "an aggregate named like its window": (
        "NAME_TAKEN",
        "'window_end'",
        lambda: clicks().window("1s").count("window_end"),
    ),
    "a key named like the window": (
        "NAME_TAKEN",
        "'window_start'",
        lambda: clicks().map(window_start=col("user")).key_by("window_start").window("1s").count(),
    ),
    "an explode of no column": ("UNKNOWN_COLUMN", "'tags'", lambda: clicks().explode("tag")),
    "an explode of text": ("TYPE_MISMATCH", "'page'", lambda: clicks().explode("page")),
    "an explode of nothing": ("BAD_EXPLODE", "column", lambda: clicks().explode()),
    "a reserved name in a flat map": (
        "RESERVED_NAME",
        "'_y'",
        lambda: clicks().flat_map(lambda frame: frame, {"_y": pl.Int64}),
    ),
    "a distinct without a bound": ("WINDOW_UNBOUNDED", "how long", lambda: clicks().distinct("user")),
    "a distinct of no column": ("UNKNOWN_COLUMN", "'user'", lambda: clicks().distinct("usr", within="1s")),
    "a distinct of lists": ("BAD_KEY_TYPE", "tags", lambda: clicks().distinct(within="1s")),
    "a distinct within no time": ("BAD_WINDOW", "time", lambda: clicks().distinct("user", within=0)),
    "a distinct both bounded and not": (
        "BAD_DISTINCT",
        "forever",
        lambda: clicks().distinct("user", within="1s", forever=True),
    ),
    "a demux without a condition": ("BAD_DEMUX", "condition", lambda: clicks().demux()),
    "a demux by no column": ("UNKNOWN_COLUMN", "'page'", lambda: clicks().demux(a=col("pag") == "x")),
    "a demux by what is no condition": ("TYPE_MISMATCH", "condition", lambda: clicks().demux(a=col("bytes"))),
    "a demux with one name twice": (
        "NAME_TAKEN",
        "'rest'",
        lambda: clicks().demux(rest=col("bytes") > 1),
    ),
    "a top of rows that have a rank": (
        "NAME_TAKEN",
        "'rank'",
        lambda: clicks().key_by("user").window("1s").count("rank").top(3),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.condition == condition
    assert named in str(caught.value)
    assert "test_checks.py" in str(caught.value.where)


def test_two_streams_of_one_name_are_refused_when_the_query_is_compiled() -> None:
    from penstock.query.compile import compile_app

    with pytest.raises(UserError) as caught:
        compile_app(ps.app("x", ps.output("a", clicks()), ps.output("b", clicks())))
    assert caught.value.condition == "NAME_TAKEN"


def test_a_key_named_twice_counts_once() -> None:
    assert clicks().key_by("user", "user").window("1s").count().columns == [
        "window_start",
        "window_end",
        "user",
        "count",
    ]


def test_a_value_named_twice_counts_once() -> None:
    assert clicks().key_by("user").last(2, "page", "page").columns == ["user", "page"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30s", 30_000_000),
        ("5 minutes", 300_000_000),
        ("1h 30m", 5_400_000_000),
        ("500ms", 500_000),
        (1.5, 1_500_000),
        ("1d", 86_400_000_000),
        ("250 us", 250),
    ],
)
def test_durations_as_people_write_them(written: str | float, meant: int) -> None:
    assert microseconds(written) == meant

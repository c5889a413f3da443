"""Separated values: quoting, field counts, types, headers; agreement with Python's csv module."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import Delimited
from penstock.errors import UserError
from tests.decode.exactly_once import check_cuts, decode, reasons

THREE = Delimited({"a": pl.String, "b": pl.String, "c": pl.String}, null_values=())
ORDERS = Delimited(
    {"item": pl.String, "quantity": pl.Int64, "price": pl.Float64, "at": pl.Datetime("us", "UTC")},
    has_header=True,
    times={"at": "%Y-%m-%d %H:%M:%S"},
)

good_cell = st.sampled_from(
    ["", "x", "é", '""', "a b", '"q"', '"a,b"', '"a""b"', '""""', "\x00", "x^", '","']
)
any_cell = good_cell | st.sampled_from(['"', ",", '"""', 'a"b', '"a"b', 'a"b"', '"a" '])
line = st.one_of(
    st.lists(good_cell, min_size=3, max_size=3).map(",".join),
    st.lists(any_cell, min_size=1, max_size=5).map(",".join),
)


def parse_plainly(text: str) -> list[str] | None:
    """Parse one line by csv's strict dialect; None for a bad one. A quote inside an unquoted field is bad here."""
    try:
        fields = next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration):
        return None
    return None if len(fields) != 3 or _has_stray_quote(text, fields) else fields


def _has_stray_quote(text: str, fields: list[str]) -> bool:
    """Whether a field that is not quoted as a whole has a quote in it."""
    at = 0
    for field in fields:
        quoted = '"' + field.replace('"', '""') + '"'
        if text.startswith(quoted, at) and text[at + len(quoted) : at + len(quoted) + 1] in ("", ","):
            at += len(quoted) + 1
        elif '"' in field:
            return True
        else:
            at += len(field) + 1
    return False


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(line, max_size=8))
def test_agrees_with_the_csv_module(lines: list[str]) -> None:
    decoded = decode(THREE, "".join(text + "\n" for text in lines).encode())
    expected = {row: fields for row, text in enumerate(lines) if (fields := parse_plainly(text)) is not None}
    assert {row: list(fields) for row, *fields in decoded.good.rows()} == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(line, max_size=8), st.data())
def test_where_the_chunk_is_cut_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    check_cuts(THREE, [text.encode() for text in lines], data.draw(st.integers(0, len(lines))))


def test_an_open_quote_spoils_its_own_line_only() -> None:
    decoded = decode(THREE, b'1,2,3\n1,"2,3\n4,5,6\n7,8"x",9\n')
    assert decoded.good["a"].to_list() == ["1", "4"]
    assert reasons(decoded) == {1: "a quote is not closed", 3: "a quote inside a field is not doubled"}


def test_the_number_of_fields_is_reported() -> None:
    decoded = decode(THREE, b"1,2\n1,2,3,4\n\n")
    assert reasons(decoded) == {
        0: "expected 3 fields, found 2",
        1: "expected 3 fields, found 4",
        2: "empty line",
    }


def test_types_are_checked_only_where_requested() -> None:
    raw = b"item,quantity,price,at\nnail,abc,1.5,2024-01-02 03:04:05\nnut,4,,2024-01-02 25:00:00\n"
    assert reasons(decode(ORDERS, raw)) == {
        1: "column quantity: 'abc' is not Int64",
        2: "column at: '2024-01-02 25:00:00' is not Datetime(time_unit='us', time_zone='UTC')",
    }
    assert decode(ORDERS, raw, ["item", "price"]).good.rows() == [(1, "nail", 1.5), (2, "nut", None)]
    assert decode(ORDERS, raw, ["at"]).good.rows() == [(1, datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC))]


def test_the_header_is_skipped_at_the_start_of_a_partition_only() -> None:
    raw = b"item,quantity,price,at\n"
    assert decode(ORDERS, raw).bad.height == 0
    assert decode(ORDERS, raw, start=50).bad.height == 1


def test_a_header_may_have_another_number_of_fields() -> None:
    decoder = Delimited({"a": pl.Int64, "rest": pl.String}, has_header=True, separator="\t")
    assert decode(decoder, b"a\n1\tx\n").good.rows() == [(1, 1, "x")]


def test_null_values_are_null_and_by_default_the_empty_field_is() -> None:
    decoder = Delimited({"a": pl.Int64, "b": pl.String}, null_values=("NA",))
    decoded = decode(decoder, b'NA,"NA"\n,x\n')
    assert decoded.good.rows() == [(0, None, None)]
    assert reasons(decoded) == {1: "column a: '' is not Int64"}
    assert decode(Delimited({"a": pl.Int64, "b": pl.String}), b',""\n').good.rows() == [(0, None, None)]


def test_other_types_and_epoch_times() -> None:
    decoder = Delimited(
        {"day": pl.Date, "yes": pl.Boolean, "s": pl.Datetime("us", "UTC"), "ms": pl.Datetime("ms")},
        times={"s": "s", "ms": "ms"},
        quote=None,
    )
    decoded = decode(
        decoder, b"2024-02-29,True,1,1500\n2024-02-30,false,1,1\n2024-02-28,maybe,1,1\n,,9999999999999,\n"
    )
    at, later = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert decoded.good.rows() == [(0, date(2024, 2, 29), True, at, later)]
    assert [reason.split(":")[0] for reason in reasons(decoded).values()] == [
        "column day",
        "column yes",
        "column s",
    ]


def test_times_with_and_without_a_zone_are_read_in_the_columns_zone() -> None:
    decoder = Delimited({"at": pl.Datetime("us", "Europe/Berlin")})
    good = decode(decoder, b"2024-07-01T12:00:00\n2024-07-01 12:00:00.5+02:00\n2024-07-01T10:00:00Z\n").good
    hours = good["at"].dt.convert_time_zone("UTC").dt.hour().to_list()
    assert hours == [10, 10, 10]


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(UserError, match="BAD_SEPARATOR"):
        Delimited({"a": pl.String}, separator='"')
    with pytest.raises(UserError, match="BAD_TIME_FORMAT"):
        Delimited({"a": pl.String}, times={"a": "%Y"})
    with pytest.raises(UserError, match="BAD_SCHEMA"):
        Delimited({"a": pl.List(pl.String)})

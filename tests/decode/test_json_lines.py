"""JSON lines: one bad line never costs another, and a line's verdict does not depend on its neighbours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import JsonLines
from tests.decode.exactly_once import check_cuts, decode, reasons

DECODER = JsonLines({"n": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean})

value = st.sampled_from(
    [
        "1",
        "-0",
        "1.5",
        "1e3",
        "true",
        "null",
        '"x"',
        '"7"',
        "[1]",
        '{"n":1}',
        "9223372036854775808",
        "01",
        "NaN",
        "1e400",
        r'"\ud800"',
        r'"\u0000"',
        '"\x00"',
        '"é"',
        "",
        "x",
        "99999999999999999999999999999999999999999999",
    ]
)
member = st.tuples(st.sampled_from(["n", "f", "s", "b", "other"]), value).map(lambda m: f'"{m[0]}":{m[1]}')
members = st.lists(member, max_size=3).map(lambda m: "{" + ",".join(m) + "}")
line = st.one_of(
    members,
    st.just('{"n":1,"s":"fine"}'),
    st.sampled_from(
        ["[]", "5", "null", "  ", "{", "}", '{"n":1}{"n":2}', ' {"n":1} ', "\ufeff{}", "x^", "{'n':1}"]
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(line, max_size=10))
def test_the_verdict_on_a_line_is_the_same_alone_and_among_others(lines: list[str]) -> None:
    together = decode(DECODER, "".join(text + "\n" for text in lines).encode(), start=1)
    alone = [decode(DECODER, text.encode() + b"\n", start=1) for text in lines]
    assert together.good["_row"].to_list() == [row for row, one in enumerate(alone) if one.good.height]
    rows = [one.good.row(0)[1:] for one in alone if one.good.height]
    assert [row[1:] for row in together.good.rows()] == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(line, max_size=10), st.data())
def test_where_the_chunk_is_cut_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    check_cuts(DECODER, [text.encode() for text in lines], data.draw(st.integers(0, len(lines))))


def test_missing_fields_are_null_and_unknown_ones_ignored() -> None:
    good = decode(DECODER, b'{"n":1,"z":{"deep":[1]}}\n{}\n').good
    assert good.rows() == [(0, 1, None, None, None), (1, None, None, None, None)]


def test_bad_lines_are_named_with_their_reason() -> None:
    raw = b'{"n":1}\n{"n":"abc"}\nnot json\n[1]\n{"n":2}\n{"b":1}\n{"n":99999999999999999999}\n'
    decoded = decode(DECODER, raw)
    assert decoded.good["n"].to_list() == [1, 2]
    assert reasons(decoded) == {
        1: "column n: 'abc' is not Int64",
        2: "not JSON: Expecting value at character 0",
        3: "not a JSON object",
        5: "column b: 1 is not Boolean",
        6: "column n: 99999999999999999999 is not Int64",
    }


def test_a_wrong_type_matters_only_where_requested() -> None:
    assert decode(DECODER, b'{"n":"abc","s":"x"}\n', ["s"]).good.rows() == [(0, "x")]


def test_no_requested_column_still_finds_what_is_not_an_object() -> None:
    decoded = decode(DECODER, b'{"n":1}\n[\n{}\n', [])
    assert decoded.good.rows() == [(0,), (2,)]


def test_thousands_of_bad_lines_among_good_ones() -> None:
    lines = [b'{"n":"x"}' if i % 3 == 0 else b'{"n":%d}' % i for i in range(6_000)]
    decoded = decode(DECODER, b"\n".join(lines) + b"\n")
    assert decoded.good["n"].to_list() == [i for i in range(6_000) if i % 3]


def test_deep_nesting_is_refused_without_harm() -> None:
    decoded = decode(DECODER, b'{"n":1}\n' + b"[" * 200_000 + b'\n{"n":2}\n')
    assert decoded.good["n"].to_list() == [1, 2]


def test_times_come_as_iso_text_or_epoch_numbers() -> None:
    zone = pl.Datetime("us", "UTC")
    decoder = JsonLines({"iso": zone, "ms": zone, "s": zone}, times={"ms": "ms", "s": "s"})
    record = {"iso": "2015-09-12T00:46:58.771Z", "ms": 1442018818771, "s": 1442018818}
    decoded = decode(decoder, json.dumps(record).encode() + b'\n{"iso":"yesterday"}\n{"ms":"x"}\n{"s":1e3}\n')
    at = datetime(2015, 9, 12, 0, 46, 58, tzinfo=UTC)
    assert decoded.good.rows() == [(0, at.replace(microsecond=771_000), at.replace(microsecond=771_000), at)]
    assert list(reasons(decoded)) == [1, 2, 3]


def test_lists_and_structs_are_read_too() -> None:
    decoder = JsonLines({"tags": pl.List(pl.String), "at": pl.Struct({"x": pl.Int64})})
    assert decode(decoder, b'{"tags":["a"],"at":{"x":1}}\n').good.rows() == [(0, ["a"], {"x": 1})]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.UInt8, pl.UInt16])
def test_small_whole_numbers(dtype: type[pl.DataType], capfd: pytest.CaptureFixture[str]) -> None:
    decoder = JsonLines({"a": dtype, "b": pl.String})
    decoded = decode(
        decoder, b'{"a":7}\n{"a":70000}\n{"b":"x"}\n{"a":1.5}\n{"a":"7"}\n{"a":99999999999999999999}\n'
    )
    assert decoded.good.rows() == [(0, 7, None), (2, None, "x")]
    reasons_by_row = reasons(decoded)
    assert list(reasons_by_row) == [1, 3, 4, 5]
    assert all(reason.startswith("column a: ") for reason in reasons_by_row.values())
    assert "panicked" not in capfd.readouterr().err


def test_great_whole_numbers() -> None:
    decoded = decode(
        JsonLines({"a": pl.Int128}), b'{"a":170141183460469231731687303715884105727}\n{"a":-5}\n'
    )
    assert decoded.good["a"].to_list() == [2**127 - 1, -5]


def test_decimals_are_what_was_written() -> None:
    decoder = JsonLines({"a": pl.Decimal(30, 6)})
    texts = [
        "1.10",
        "-3",
        '"2.5"',
        "123456789012345678901234.123456",
        "1e2",
        "1.5e-5",
        "12345678901.123456",
        "null",
    ]
    wrong = [
        "0.0000001",
        "1e-400",
        '"x"',
        "true",
        "[1]",
        "1234567890123456789012345",
        "0.00000100000000000000001",
    ]
    lines = "".join('{"a":' + text + "}\n" for text in texts + wrong)
    decoded = decode(decoder, lines.encode())
    expected = [None if text == "null" else Decimal(text.strip('"')) for text in texts]
    assert decoded.good["a"].to_list() == expected
    reasons_by_row = reasons(decoded)
    assert list(reasons_by_row) == list(range(len(texts), len(texts) + len(wrong)))
    assert all(reason.startswith("column a: ") for reason in reasons_by_row.values())


def test_decimals_in_lists_and_structs() -> None:
    money = pl.Decimal(30, 10)
    decoder = JsonLines(
        {
            "l": pl.List(money),
            "s": pl.Struct({"p": money, "t": pl.String}),
            "d": pl.List(pl.Struct({"p": money})),
        }
    )
    lines = [
        '{"l":[1.10,null,1234567890.0123456789],"s":{"p":0.1234567891,"t":1.5}}',
        '{"l":[1,"x"]}',
        '{"s":{"p":1e-11}}',
        '{"d":[{"p":12345678901234567.25},{"p":null}]}',
        "{}",
    ]
    decoded = decode(decoder, "".join(line + "\n" for line in lines).encode())
    d = Decimal
    assert decoded.good.rows() == [
        (0, [d("1.1"), None, d("1234567890.0123456789")], {"p": d("0.1234567891"), "t": "1.5"}, None),
        (3, None, None, [{"p": d("12345678901234567.25")}, {"p": None}]),
        (4, None, None, None),
    ]
    assert [reason.split(":")[0] for reason in reasons(decoded).values()] == ["column l", "column s"]


number = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**20), max_value=10**20).map(
        str
    ),
    value,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(number.map(lambda one: '{"a":' + one + "}"), max_size=8))
def test_the_verdict_on_decimals_is_the_same_alone_and_among_others(lines: list[str]) -> None:
    decoder = JsonLines({"a": pl.Decimal(30, 4)})
    together = decode(decoder, "".join(text + "\n" for text in lines).encode(), start=1)
    alone = [decode(decoder, text.encode() + b"\n", start=1) for text in lines]
    assert together.good["a"].to_list() == [one.good["a"][0] for one in alone if one.good.height]
    assert list(reasons(together)) == [row for row, one in enumerate(alone) if one.bad.height]

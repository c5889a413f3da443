"""JSON lines: one bad line never costs another, and a line's verdict does not depend on its neighbours."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
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
    answer = decode(DECODER, raw)
    assert answer.good["n"].to_list() == [1, 2]
    assert reasons(answer) == {
        1: "column n: 'abc' is not Int64",
        2: "not JSON: Expecting value at character 0",
        3: "not a JSON object",
        5: "column b: 1 is not Boolean",
        6: "not readable as JSON with the asked columns",
    }


def test_a_wrong_type_matters_only_where_asked() -> None:
    assert decode(DECODER, b'{"n":"abc","s":"x"}\n', ["s"]).good.rows() == [(0, "x")]


def test_no_column_asked_for_still_finds_what_is_not_an_object() -> None:
    answer = decode(DECODER, b'{"n":1}\n[\n{}\n', [])
    assert answer.good.rows() == [(0,), (2,)]


def test_thousands_of_bad_lines_among_good_ones() -> None:
    lines = [b'{"n":"x"}' if i % 3 == 0 else b'{"n":%d}' % i for i in range(6_000)]
    answer = decode(DECODER, b"\n".join(lines) + b"\n")
    assert answer.good["n"].to_list() == [i for i in range(6_000) if i % 3]


def test_deep_nesting_is_refused_without_harm() -> None:
    answer = decode(DECODER, b'{"n":1}\n' + b"[" * 200_000 + b'\n{"n":2}\n')
    assert answer.good["n"].to_list() == [1, 2]


def test_times_come_as_iso_text_or_epoch_numbers() -> None:
    zone = pl.Datetime("us", "UTC")
    decoder = JsonLines({"iso": zone, "ms": zone, "s": zone}, times={"ms": "ms", "s": "s"})
    record = {"iso": "2015-09-12T00:46:58.771Z", "ms": 1442018818771, "s": 1442018818}
    answer = decode(decoder, json.dumps(record).encode() + b'\n{"iso":"yesterday"}\n{"ms":"x"}\n{"s":1e3}\n')
    at = datetime(2015, 9, 12, 0, 46, 58, tzinfo=UTC)
    assert answer.good.rows() == [(0, at.replace(microsecond=771_000), at.replace(microsecond=771_000), at)]
    assert list(reasons(answer)) == [1, 2, 3]


def test_lists_and_structs_are_read_too() -> None:
    decoder = JsonLines({"tags": pl.List(pl.String), "at": pl.Struct({"x": pl.Int64})})
    assert decode(decoder, b'{"tags":["a"],"at":{"x":1}}\n').good.rows() == [(0, ["a"], {"x": 1})]

"""Lines matched by a regular expression with named groups."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from penstock.decode import Pattern
from penstock.errors import UserError
from tests.decode.exactly_once import check_cuts, decode, reasons

APP = Pattern(
    r"(?P<at>\S+ \S+) (?P<level>[A-Z]+)(?: took (?P<ms>\S+))?( .*)?",
    {"at": pl.Datetime("us", "UTC"), "ms": pl.Int64},
    times={"at": "%Y-%m-%d %H:%M:%S"},
)
AT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_groups_become_typed_columns_and_absent_ones_null() -> None:
    good = decode(APP, b"2024-01-02 03:04:05 INFO took 12\n2024-01-02 03:04:05 WARN\n").good
    assert good.rows() == [(0, AT, "INFO", 12), (1, AT, "WARN", None)]


def test_the_whole_record_must_match() -> None:
    decoded = decode(Pattern("(?P<n>[0-9]+)"), b"12\n12x\nx12\n")
    assert decoded.good["n"].to_list() == ["12"]
    assert reasons(decoded) == {1: "does not match the pattern", 2: "does not match the pattern"}


def test_alternatives_are_matched_as_one_expression() -> None:
    assert decode(Pattern("(?P<a>x)|(?P<b>y)"), b"x\ny\nxy\n").good.rows() == [(0, "x", None), (1, None, "y")]


def test_a_type_matters_only_where_requested() -> None:
    raw = b"2024-01-02 03:04:05 INFO took long\n"
    assert decode(APP, raw, ["level"]).good.height == 1
    assert reasons(decode(APP, raw)) == {0: "column ms: 'long' is not Int64"}


def test_where_the_chunk_is_cut_changes_nothing() -> None:
    lines = [b"2024-01-02 03:04:05 INFO", b"", b"?", b"\xff", b"2024-13-02 03:04:05 INFO took 1", b"x^"]
    for cut in range(len(lines) + 1):
        check_cuts(APP, lines, cut)


@pytest.mark.parametrize("regex", ["(?P<a>", "(?P<a>x)(?=y)", "no groups", "(unnamed)"])
def test_patterns_that_cannot_work_are_refused(regex: str) -> None:
    with pytest.raises(UserError, match="BAD_PATTERN"):
        Pattern(regex)


def test_a_type_for_a_group_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="no group b"):
        Pattern("(?P<a>x)", {"b": pl.Int64})

"""Errors of streams that are made of streams, and of packages that are not there."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.extras import extra
from penstock.testing import ListLog, run_inline


def clicks() -> ps.Stream:
    decoder = ps.json_lines({"user": ps.String(), "n": ps.Int64()})
    return ps.stream("clicks", ListLog(['{"user": "a", "n": 1}']), decoder, time=None)


def test_only_a_stream_itself_has_late_events() -> None:
    with pytest.raises(UserError, match="LATE_OF_NO_STREAM"):
        clicks().filter(col("n") > 0).late()


def test_a_function_that_drops_columns_is_an_error(tmp_path: Path) -> None:
    def dropping(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.drop("user") if frame.height else frame

    rows = clicks().map_batches(dropping, {"user": pl.String, "n": pl.Int64})
    with pytest.raises(UserError, match=r"FUNCTION_LOST_COLUMNS.*user"):
        run_inline(ps.app("any", ps.output("out", rows)), tmp_path / "state")


def test_a_package_that_is_missing_is_named_with_what_installs_it() -> None:
    with pytest.raises(UserError, match=r"EXTRA_MISSING.*penstock\[kafka\]"):
        extra("no_such_package.at_all", "kafka", "a log in Kafka")

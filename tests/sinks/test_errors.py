"""Errors of sinks that are used in the wrong order."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.errors import InternalError


def test_a_table_is_not_written_to_before_it_is_opened(tmp_path: Path) -> None:
    sink = ps.sqlite(tmp_path / "out.db", "rows")
    with pytest.raises(InternalError, match="SINK_NOT_OPEN"):
        sink.write(0, pl.DataFrame({"n": [1]}))

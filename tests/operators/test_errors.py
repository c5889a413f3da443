"""Errors of aggregate functions of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.testing import run_inline
from tests.epoch.map_changes import epochs_of, new_history
from tests.operators.harness import events_stream

WAYS: dict[str, Any] = {
    "add": lambda values: int(values.sum()),
    "merge": lambda one, other: one + other,
    "result": lambda state: state,
    "dtype": pl.Int64,
}


def test_a_function_has_both_ways_of_writing_its_state_or_none() -> None:
    with pytest.raises(UserError, match="BAD_FUNCTION"):
        ps.aggregate_function("mine", **WAYS, serialize=lambda state: b"")


def test_what_it_writes_is_bytes(tmp_path: Path) -> None:
    mine = ps.aggregate_function("mine", **WAYS, serialize=str, deserialize=int)  # type: ignore[arg-type]
    rows = events_stream(new_history(8), epochs_of(2)).key_by("user").window("10s").aggregate(mine("n"))
    with pytest.raises(UserError, match=r"BAD_STATE.*'mine' returned str"):
        run_inline(ps.app("any", ps.output("out", rows)), tmp_path / "state")

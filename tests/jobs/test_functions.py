"""Functions of Python in jobs: a slow one holds nobody up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.jobs import kit
from tests.jobs.test_failures import STAY, life


def _as_sql(function: Any) -> Any:
    return lambda column: column.map_batches(function, return_dtype=pl.String)


@pytest.mark.parametrize(
    "select",
    [
        "SELECT waiting(user) AS u FROM clicks",
        "SELECT page FROM clicks WHERE waiting(user) = 'u1'",
        "SELECT waiting(user) AS u, COUNT(*) AS n FROM clicks GROUP BY waiting(user) WINDOWING 5 SECONDS",
    ],
)
def test_a_function_that_takes_long_does_not_hold_up_a_command(select: str, tmp_path: Path) -> None:
    def waiting(values: pl.Series) -> pl.Series:
        time.sleep(8)
        return values

    functions = {"waiting": _as_sql(waiting)}
    with kit.running(tmp_path, kit.clicks([]), STAY, functions=functions) as (jobs, _):
        began = time.monotonic()
        jobs.say(f"CREATE JOB slow AS {select}")
        assert time.monotonic() - began < 7.5
        assert life(jobs, "slow") == "running"

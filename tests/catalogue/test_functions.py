"""Python functions in jobs: one that cannot be sent to executors is refused, and a slow one delays no command."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.kit import STEADY_JOBS, life


def _upper(values: pl.Series) -> pl.Series:
    return values.str.to_uppercase()


def _as_sql(function: Any) -> Any:
    return lambda column: column.map_batches(function, return_dtype=pl.String)


def _with_a_lock() -> Any:
    lock = threading.Lock()

    def guarded(values: pl.Series) -> pl.Series:
        with lock:
            return values

    return guarded


FUNCTIONS = {"upper_": _as_sql(_upper), "guarded": _as_sql(_with_a_lock())}


def test_a_function_that_cannot_be_pickled_is_refused_and_other_jobs_continue(tmp_path: Path) -> None:
    events = kit.events(80)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    with kit.running(
        tmp_path / "s", kit.clicks(events), STEADY_JOBS, functions=FUNCTIONS, epoch_units=20
    ) as (
        jobs,
        engine,
    ):
        for verb in ("CREATE JOB bad AS", "EXPLAIN", "ALTER JOB big AS"):
            with pytest.raises(UserError) as caught:
                jobs.execute(f"{verb} SELECT Guarded(user) AS u FROM clicks")
            assert caught.value.condition == "NOT_SENDABLE"
            assert "lock" in (caught.value.detail or "")
        jobs.execute("CREATE JOB good AS SELECT UPPER_(user) AS u FROM clicks WHERE status = 500")
        emitted = kit.emitted_rows(list(engine.steps()))
    assert emitted.pop("good") == [(e["user"].upper(),) for e in events if e["status"] == 500]
    assert emitted == alone


def test_a_job_whose_function_cannot_be_pickled_after_a_restart_fails_alone(tmp_path: Path) -> None:
    events = kit.events(80)
    sql = f"{STEADY_JOBS}; CREATE JOB mine AS SELECT f(user) AS u FROM clicks"
    with kit.running(tmp_path, kit.clicks(events), sql, functions={"f": FUNCTIONS["upper_"]}) as (jobs, _):
        assert life(jobs, "mine") == "running"
    with kit.running(tmp_path, kit.clicks(events), sql, functions={"f": FUNCTIONS["guarded"]}) as (
        jobs,
        engine,
    ):
        assert life(jobs, "mine") == "failed"
        assert life(jobs, "per_page") == "running"
        assert kit.emitted_rows(list(engine.steps())).keys() >= {"per_page", "big"}


def test_a_query_in_python_is_checked_for_functions_that_cannot_be_pickled(tmp_path: Path) -> None:
    stream = kit.clicks([])
    rows = stream.map(u=FUNCTIONS["guarded"](pl.col("user")))
    jobs = Program("test", tmp_path, streams={"clicks": stream}, queries={"mine": rows})
    with pytest.raises(UserError) as caught:
        InlineEngine(jobs, tmp_path).step()
    assert caught.value.condition == "NOT_SENDABLE"
    assert "the job mine" in caught.value.primary


@pytest.mark.slow
@pytest.mark.parametrize(
    "select",
    [
        "SELECT waiting(user) AS u FROM clicks",
        "SELECT page FROM clicks WHERE waiting(user) = 'u1'",
        "SELECT waiting(user) AS u, COUNT(*) AS n FROM clicks GROUP BY waiting(user) WINDOWING 5 SECONDS",
    ],
)
def test_a_slow_function_does_not_delay_a_command(select: str, tmp_path: Path) -> None:
    def waiting(values: pl.Series) -> pl.Series:
        time.sleep(30)
        return values

    functions = {"waiting": _as_sql(waiting)}
    with kit.running(tmp_path, kit.clicks([]), STEADY_JOBS, functions=functions) as (jobs, _):
        started = time.monotonic()
        jobs.execute(f"CREATE JOB slow AS {select}")
        assert time.monotonic() - started < 25
        assert life(jobs, "slow") == "running"

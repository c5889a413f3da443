"""Errors of jobs that are created, altered and dropped while the engine runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.agent_reduction import compile_reduction
from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.sinks.contract import Sink
from penstock.testing.inline import InlineEngine, run_inline
from tests.catalogue import kit

STREAM = "CREATE STREAM {} FROM files('{}/*.log') FORMAT json(ts TIMESTAMP, page STRING) EVENT TIME ts"
JOB = "CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"


def refused(jobs: Program, sql: str) -> UserError:
    with pytest.raises(UserError) as caught:
        jobs.execute(sql)
    return caught.value


def test_a_script_that_changes_a_stream_is_refused(tmp_path: Path) -> None:
    first = STREAM.format("more", tmp_path / "one")
    with kit.running(tmp_path / "s", kit.clicks([]), first):
        pass
    jobs = Program(
        "test",
        tmp_path / "s",
        streams={"clicks": kit.clicks([])},
        begin=STREAM.format("more", tmp_path / "another"),
    )
    with pytest.raises(UserError, match="STREAM_CHANGED"):
        InlineEngine(jobs, tmp_path / "s")


def program_of_queries(state: Path, *names: str) -> Program:
    stream = kit.clicks([])
    return Program(
        "test", state, streams={"clicks": stream}, queries={name: stream.select("page") for name in names}
    )


def test_a_job_of_python_is_not_altered_in_sql(tmp_path: Path) -> None:
    jobs = program_of_queries(tmp_path, "mine")
    engine = InlineEngine(jobs, tmp_path)
    assert refused(jobs, "ALTER JOB mine SET WHERE page = 'x'").condition == "JOB_OF_PYTHON"
    engine.close()


def test_a_job_that_python_no_longer_declares_fails_and_cannot_be_resumed(tmp_path: Path) -> None:
    InlineEngine(program_of_queries(tmp_path, "mine", "other"), tmp_path).close()
    jobs = program_of_queries(tmp_path, "other")
    engine = InlineEngine(jobs, tmp_path)
    (row,) = (row for row in jobs.execute("SHOW JOBS")[0].rows if row["job"] == "mine")
    assert (row["life"], "NOT_GIVEN" in row["error"] or "is not now" in row["error"]) == ("failed", True)
    assert refused(jobs, "RESUME JOB mine").condition == "NOT_GIVEN"
    engine.close()


def test_the_error_of_a_job_that_reads_a_broken_job_names_it(tmp_path: Path) -> None:
    sql = "CREATE JOB reader AS SELECT page FROM mine"

    def program(*names: str) -> Program:
        stream = kit.clicks([])
        queries = {name: stream.select("ts", "page") for name in names}
        return Program("test", tmp_path, streams={"clicks": stream}, queries=queries, begin=sql)

    InlineEngine(program("mine"), tmp_path).close()
    jobs = program()
    engine = InlineEngine(jobs, tmp_path)
    rows = {row["job"]: row for row in jobs.execute("SHOW JOBS")[0].rows}
    assert "it reads mine, which can no longer be built" in rows["reader"]["error"]  # READS_BROKEN_JOB
    engine.close()


def test_a_script_without_jobs_has_no_reduction(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="NO_JOBS"):
        compile_reduction(STREAM.format("clicks", tmp_path), "clicks")


class _Stuck(Sink):
    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        pass

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        return True

    def close(self) -> None:
        raise OSError("it is stuck")

    def describe(self) -> str:
        return "a stuck sink"


def test_a_sink_that_cannot_be_closed_is_logged_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = ps.app("stuck", ps.output("all", kit.clicks(kit.events(10)).select("page"), _Stuck()))
    run_inline(app, tmp_path / "state")
    assert "a stuck sink could not be closed: it is stuck" in caplog.text

"""A job that can no longer be built after a restart fails alone: the engine starts, and the other jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.catalogue.program import Program
from penstock.sql import connectors
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.kit import STEADY_JOBS, life, refusal

FUNCTIONS: dict[str, Any] = {"size": lambda user: user.str.len_chars().cast(pl.Int64)}
SQL = f"""{STEADY_JOBS};
CREATE JOB sized AS SELECT page, SUM(size(user)) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB reader AS SELECT page, n FROM sized WHERE n > 2;
CREATE JOB far AS SELECT page, COUNT(*) AS c FROM reader GROUP BY page WINDOWING 20 SECONDS;
CREATE JOB before AS SELECT page FROM PREVIOUS(sized)
"""
BROKEN = {"sized", "reader", "far", "before"}


def run_some(engine: InlineEngine, count: int) -> list[Any]:
    return [report for report in (engine.step() for _ in range(count)) if report is not None]


@pytest.mark.slow
def test_jobs_whose_function_is_gone_fail_and_the_others_continue(tmp_path: Path) -> None:
    events = kit.events(160)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    with kit.running(tmp_path / "s", kit.clicks(events), SQL, functions=FUNCTIONS, epoch_units=20) as (
        _,
        engine,
    ):
        reports = run_some(engine, 3)
    with kit.running(tmp_path / "s", kit.clicks(events), SQL, epoch_units=20) as (jobs, engine):
        rows = {row["job"]: row for row in jobs.execute("SHOW JOBS")[0].rows}
        assert {name for name, row in rows.items() if row["life"] == "failed"} == BROKEN
        assert "size" in rows["sized"]["error"]
        assert "it reads sized" in rows["reader"]["error"]
        assert "does not run" in jobs.execute("EXPLAIN JOB sized")[0].message
        assert refusal(jobs, "RESUME JOB reader").condition == "BAD_ARGUMENT"
        assert refusal(jobs, "DROP JOB sized").condition == "STILL_READ"
        assert refusal(jobs, "DROP STREAM clicks").condition == "STILL_READ"
        jobs.execute("ALTER JOB per_page SET WHERE TRUE")  # the broken jobs do not prevent it
        jobs.execute("DROP JOB before")
        reports += run_some(engine, 2)
    with kit.running(tmp_path / "s", kit.clicks(events), SQL, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        assert life(jobs, "sized") == "failed", "until it is resumed"
        replies = jobs.execute("RESUME JOB sized; RESUME JOB reader; RESUME JOB far")
        assert [reply.state for reply in replies] == ["anew"] * 3
        later = list(engine.steps())
        assert {life(jobs, name) for name in ("sized", "reader", "far")} == {"running"}
    emitted = kit.emitted_rows(reports + later)
    assert {name: rows for name, rows in emitted.items() if name in alone} == alone
    assert kit.emitted_rows(later).keys() >= {"sized", "reader", "far"}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["recorded", "gathered", "emitted"])
def test_an_epoch_that_was_repeated_without_the_broken_jobs_stays_without_them(
    step: str, tmp_path: Path
) -> None:
    """The epoch starts with the jobs, then their function is gone, then it is back before the commit."""
    events = kit.events(160)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    with kit.running(tmp_path / "s", kit.clicks(events), SQL, functions=FUNCTIONS, epoch_units=20) as (
        _,
        engine,
    ):
        reports = run_some(engine, 3)
        with kit.killed_at("recorded", 3), pytest.raises(kit.Killed):
            engine.step()
    with (
        kit.running(tmp_path / "s", kit.clicks(events), SQL, epoch_units=20) as (_, engine),
        kit.killed_at(step, 3),
        pytest.raises(kit.Killed),
    ):
        engine.step()
    with kit.running(tmp_path / "s", kit.clicks(events), SQL, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        rest = list(engine.steps())
        assert {name for name in jobs.catalogue.jobs if life(jobs, name) == "failed"} == BROKEN
    if step != "recorded":  # at that step the epoch has not executed without them
        assert not BROKEN & rest[0].rows.keys()
    assert not BROKEN & kit.emitted_rows(rest[1:]).keys()
    emitted = kit.emitted_rows(reports + rest)
    assert {name: rows for name, rows in emitted.items() if name in alone} == alone


def test_a_sink_of_an_unknown_kind_breaks_its_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = kit.events(60)
    sql = f"{STEADY_JOBS}; CREATE JOB out AS SELECT page FROM clicks INTO jsonl('{tmp_path}/out')"
    with kit.running(tmp_path / "s", kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
        run_some(engine, 1)
    with monkeypatch.context() as patched:
        patched.setattr(connectors, "_SINKS", {n: s for n, s in connectors._SINKS.items() if n != "jsonl"})
        with kit.running(tmp_path / "s", kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
            assert life(jobs, "out") == "failed"
            assert "jsonl" in str(jobs.catalogue.jobs["out"].master.error)
            assert life(jobs, "per_page") == "running"
            refusal(jobs, "RESUME JOB out")
            run_some(engine, 1)
    with kit.running(tmp_path / "s", kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
        jobs.execute("RESUME JOB out")
        assert "out" in kit.emitted_rows(list(engine.steps()))


def test_a_stream_that_python_no_longer_declares_breaks_its_readers(tmp_path: Path) -> None:
    with kit.running(tmp_path, kit.clicks(kit.events(10)), STEADY_JOBS) as (_, engine):
        list(engine.steps())
    jobs = Program("test", tmp_path)
    engine = InlineEngine(jobs, tmp_path)
    list(engine.steps())
    shown = jobs.execute("SHOW JOBS")[0].rows
    assert {row["life"] for row in shown} == {"failed"}
    assert all("is not now" in row["error"] for row in shown)
    jobs.execute("; ".join(f"DROP JOB {name}" for name in jobs.catalogue.jobs) + "; DROP STREAM clicks")
    engine.close()


def test_a_script_with_another_query_for_a_broken_job_fixes_it(tmp_path: Path) -> None:
    events = kit.events(60)
    sql = "CREATE JOB sized AS SELECT size(user) AS n FROM clicks"
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (_, engine):
        run_some(engine, 1)
    sql = "CREATE JOB sized AS SELECT user FROM clicks"
    with kit.running(tmp_path, kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
        assert life(jobs, "sized") == "running"
        assert "sized" in kit.emitted_rows(list(engine.steps()))


def test_a_job_that_is_read_by_previous_cannot_be_dropped(tmp_path: Path) -> None:
    sql = "CREATE JOB one AS SELECT page FROM clicks; CREATE JOB two AS SELECT page FROM PREVIOUS(one)"
    with kit.running(tmp_path, kit.clicks(kit.events(20)), sql) as (jobs, engine):
        assert refusal(jobs, "DROP JOB one").condition == "STILL_READ"
        jobs.execute("DROP JOB two; DROP JOB one")
        list(engine.steps())

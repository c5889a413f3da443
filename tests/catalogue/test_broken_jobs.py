"""A job that cannot be made any more after a restart keeps neither the engine from starting nor others from running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from penstock.sql import connectors
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.test_epoch_failures import STAY, life

FUNCTIONS: dict[str, Any] = {"size": lambda user: user.str.len_chars().cast(pl.Int64)}
OURS = f"""{STAY};
CREATE JOB sized AS SELECT page, SUM(size(user)) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB reader AS SELECT page, n FROM sized WHERE n > 2;
CREATE JOB far AS SELECT page, COUNT(*) AS c FROM reader GROUP BY page WINDOWING 20 SECONDS;
CREATE JOB before AS SELECT page FROM PREVIOUS(sized)
"""
BROKEN = {"sized", "reader", "far", "before"}


def _epochs(engine: InlineEngine, count: int) -> list[Any]:
    return [report for report in (engine.step() for _ in range(count)) if report is not None]


def test_jobs_whose_function_is_gone_fail_and_the_others_go_on(tmp_path: Path) -> None:
    found = kit.events(160)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(found), STAY, epoch_units=20)
    with kit.running(tmp_path / "s", kit.clicks(found), OURS, functions=FUNCTIONS, epoch_units=20) as (
        _,
        one,
    ):
        reports = _epochs(one, 3)
    with kit.running(tmp_path / "s", kit.clicks(found), OURS, epoch_units=20) as (jobs, engine):
        rows = {row["job"]: row for row in jobs.execute("SHOW JOBS")[0].rows}
        assert {name for name, row in rows.items() if row["life"] == "failed"} == BROKEN
        assert "size" in rows["sized"]["error"]
        assert "it reads sized" in rows["reader"]["error"]
        assert "does not run" in jobs.execute("EXPLAIN JOB sized")[0].message
        assert _refused(jobs, "RESUME JOB reader").condition == "BAD_ARGUMENT"
        assert _refused(jobs, "DROP JOB sized").condition == "STILL_READ"
        assert _refused(jobs, "DROP STREAM clicks").condition == "STILL_READ"
        jobs.execute("ALTER JOB per_page SET WHERE TRUE")  # what is broken is in nobody's way
        jobs.execute("DROP JOB before")
        reports += _epochs(engine, 2)
    with kit.running(tmp_path / "s", kit.clicks(found), OURS, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        assert life(jobs, "sized") == "failed", "until it is resumed"
        said = jobs.execute("RESUME JOB sized; RESUME JOB reader; RESUME JOB far")
        assert [answer.state for answer in said] == ["anew"] * 3
        later = list(engine.steps())
        assert {life(jobs, name) for name in ("sized", "reader", "far")} == {"running"}
    told = kit.told(reports + later)
    assert {name: rows for name, rows in told.items() if name in alone} == alone
    assert kit.told(later).keys() >= {"sized", "reader", "far"}


@pytest.mark.parametrize("step", ["recorded", "gathered", "delivered"])
def test_an_epoch_cut_short_is_carried_out_without_the_broken_job_for_good(step: str, tmp_path: Path) -> None:
    """The epoch was begun with the job; then its function is gone; then it is back, before the epoch is committed."""
    found = kit.events(160)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(found), STAY, epoch_units=20)
    with kit.running(tmp_path / "s", kit.clicks(found), OURS, functions=FUNCTIONS, epoch_units=20) as (
        _,
        one,
    ):
        reports = _epochs(one, 3)
        with kit.killed_at("recorded", 3), pytest.raises(kit.Killed):
            one.step()
    with (
        kit.running(tmp_path / "s", kit.clicks(found), OURS, epoch_units=20) as (_, engine),
        kit.killed_at(step, 3),
        pytest.raises(kit.Killed),
    ):
        engine.step()
    with kit.running(tmp_path / "s", kit.clicks(found), OURS, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        rest = list(engine.steps())
        assert {name for name in jobs.catalogue.jobs if life(jobs, name) == "failed"} == BROKEN
    if step != "recorded":  # there the epoch has not been tried without it
        assert not BROKEN & rest[0].rows.keys()
    assert not BROKEN & kit.told(rest[1:]).keys()
    told = kit.told(reports + rest)
    assert {name: rows for name, rows in told.items() if name in alone} == alone


def test_a_sink_of_an_unknown_kind_breaks_its_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kit.events(60)
    sql = f"{STAY}; CREATE JOB out AS SELECT page FROM clicks INTO jsonl('{tmp_path}/out')"
    with kit.running(tmp_path / "s", kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
        _epochs(engine, 1)
    with monkeypatch.context() as patched:
        patched.setattr(connectors, "_SINKS", {n: s for n, s in connectors._SINKS.items() if n != "jsonl"})
        with kit.running(tmp_path / "s", kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
            assert life(jobs, "out") == "failed"
            assert "jsonl" in str(jobs.catalogue.jobs["out"].master.error)
            assert life(jobs, "per_page") == "running"
            _refused(jobs, "RESUME JOB out")
            _epochs(engine, 1)
    with kit.running(tmp_path / "s", kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
        jobs.execute("RESUME JOB out")
        assert "out" in kit.told(list(engine.steps()))


def test_a_stream_that_python_gives_no_more_breaks_its_readers(tmp_path: Path) -> None:
    with kit.running(tmp_path, kit.clicks(kit.events(10)), STAY) as (_, engine):
        list(engine.steps())
    jobs = Program("test", tmp_path)
    engine = InlineEngine(jobs, tmp_path)
    list(engine.steps())
    shown = jobs.execute("SHOW JOBS")[0].rows
    assert {row["life"] for row in shown} == {"failed"}
    assert all("is not now" in row["error"] for row in shown)
    jobs.execute("; ".join(f"DROP JOB {name}" for name in jobs.catalogue.jobs) + "; DROP STREAM clicks")
    engine.close()


def test_a_file_that_says_a_broken_job_otherwise_mends_it(tmp_path: Path) -> None:
    found = kit.events(60)
    sql = "CREATE JOB sized AS SELECT size(user) AS n FROM clicks"
    with kit.running(tmp_path, kit.clicks(found), sql, functions=FUNCTIONS, epoch_units=20) as (_, engine):
        _epochs(engine, 1)
    sql = "CREATE JOB sized AS SELECT user FROM clicks"
    with kit.running(tmp_path, kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
        assert life(jobs, "sized") == "running"
        assert "sized" in kit.told(list(engine.steps()))


def test_a_job_whose_rows_of_the_epoch_before_are_read_cannot_be_dropped(tmp_path: Path) -> None:
    sql = "CREATE JOB one AS SELECT page FROM clicks; CREATE JOB two AS SELECT page FROM PREVIOUS(one)"
    with kit.running(tmp_path, kit.clicks(kit.events(20)), sql) as (jobs, engine):
        assert _refused(jobs, "DROP JOB one").condition == "STILL_READ"
        jobs.execute("DROP JOB two; DROP JOB one")
        list(engine.steps())


def _refused(jobs: Program, sql: str) -> PenstockError:
    with pytest.raises(PenstockError) as error:
        jobs.execute(sql)
    return error.value

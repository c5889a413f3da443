"""A job that fails is stopped alone: its error is stored, the epoch completes, and the other jobs are not affected."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.catalogue.command import FailJob
from penstock.catalogue.command_log import CommandLog
from penstock.catalogue.job_epochs import Failures
from penstock.catalogue.program import Program
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, UserError
from penstock.state.generation import FencedDirectory
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from tests.catalogue import kit
from tests.catalogue.kit import STEADY_JOBS, life


def _picky(values: pl.Series) -> pl.Series:
    if (values == "u5").any():
        raise ValueError("u5 is not welcome")
    return values.str.len_chars().cast(pl.Int64)


def _slow(values: pl.Series) -> pl.Series:
    while (values == "u5").any():
        time.sleep(0.01)
    return values


FUNCTIONS: dict[str, Any] = {
    "picky": lambda user: user.map_batches(_picky, return_dtype=pl.Int64),
    "slow": lambda user: user.map_batches(_slow, return_dtype=pl.String),
}
#: jobs that fail at the first event of u5, by the place where they do
FAILING = {
    "condition": "SELECT page FROM clicks WHERE picky(user) > 100",
    "column": "SELECT picky(user) AS n FROM clicks WHERE status = 200",
    "key": "SELECT picky(user) AS n, COUNT(*) AS c FROM clicks GROUP BY picky(user) WINDOWING 10 SECONDS",
    "result": "SELECT n FROM (SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 5 SECONDS) "
    "WHERE picky(user) > 0",
    "session": "SELECT u, COUNT(*) AS n FROM (SELECT picky(user) AS u, ts FROM clicks) GROUP BY u "
    "WINDOWING SESSION 1 SECOND",
    "reader": "SELECT user, picky(user) AS n FROM big",
}


@pytest.mark.parametrize("where", FAILING)
def test_a_job_that_fails_is_left_out_and_the_others_continue(where: str, tmp_path: Path) -> None:
    events = kit.events(120)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    sql = f"{STEADY_JOBS}; CREATE JOB bad AS {FAILING[where]}"
    with kit.running(tmp_path / "s", kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        emitted = kit.emitted_rows(list(engine.steps()))
        assert life(jobs, "bad") == "failed"
        error = jobs.catalogue.jobs["bad"].master.error
        assert error is not None
        assert "u5 is not welcome" in error
        shown = next(row for row in jobs.execute("SHOW JOBS")[0].rows if row["job"] == "bad")
        assert shown["life"] == "failed"
        assert shown["error"] == error
    assert {name: rows for name, rows in emitted.items() if name != "bad"} == alone
    with kit.running(tmp_path / "s", kit.clicks(events), sql, functions=FUNCTIONS) as (jobs, _):
        assert life(jobs, "bad") == "failed", "also after a restart"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, page, bytes, 'a long text that each of the rows has' AS filler FROM clicks",
        "SELECT a.user, b.page, 'a long text that each of the rows has' AS filler "
        "FROM clicks a JOIN clicks b ON a.status = b.status WITHIN 1 HOUR",
    ],
    ids=["template-group", "own-plan"],
)
def test_a_job_that_emits_too_much_is_left_out_and_the_others_continue(sql: str, tmp_path: Path) -> None:
    events = kit.events(120)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=60)
    with kit.running(
        tmp_path / "s",
        kit.clicks(events),
        f"{STEADY_JOBS}; CREATE JOB bad AS {sql}",
        epoch_units=60,
        job_result_bytes=700,
    ) as (jobs, engine):
        emitted = kit.emitted_rows(list(engine.steps()))
        assert life(jobs, "bad") == "failed"
        assert "JOB_RESULT_TOO_LARGE" in str(jobs.catalogue.jobs["bad"].master.error)
    assert {name: rows for name, rows in emitted.items() if name != "bad"} == alone


def test_of_jobs_with_the_same_columns_the_one_whose_rows_are_large_fails(tmp_path: Path) -> None:
    events = [one | {"page": "/" + "x" * 20_000 if one["user"] == "u5" else "/"} for one in kit.events(120)]
    sql = (
        "CREATE JOB large AS SELECT page FROM clicks WHERE user = 'u5'; "
        "CREATE JOB small AS SELECT page FROM clicks WHERE user <> 'u5'"
    )
    with kit.running(tmp_path / "s", kit.clicks(events), sql, job_result_bytes=50_000) as (jobs, engine):
        emitted = kit.emitted_rows(list(engine.steps()))
        assert (life(jobs, "large"), life(jobs, "small")) == ("failed", "running")
    assert len(emitted["small"]) == sum(one["user"] != "u5" for one in events)


def test_a_job_that_failed_runs_again_once_it_is_altered(tmp_path: Path) -> None:
    events = kit.events(120)
    sql = f"CREATE JOB bad AS {FAILING['column']}"
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        while life(jobs, "bad") == "running":
            assert engine.step() is not None
        jobs.execute("ALTER JOB bad AS SELECT user FROM clicks WHERE status = 200")
        assert life(jobs, "bad") == "running"
        assert "bad" in kit.emitted_rows(list(engine.steps()))
        assert life(jobs, "bad") == "running"


def test_a_failure_from_before_an_alter_does_not_fail_the_altered_job(tmp_path: Path) -> None:
    events = kit.events(120)
    sql = f"CREATE JOB bad AS {FAILING['column']}"
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (jobs, _):
        before = jobs.commands
        number = jobs.catalogue.jobs["bad"].number
        jobs.execute("ALTER JOB bad AS SELECT user FROM clicks WHERE status = 200")
        jobs.epochs.record_failures(7, before, {number: UserError("X", "failed as it was")})
        assert life(jobs, "bad") == "running"
        assert jobs.epochs.failures(7, before) == {number: False}


def test_a_failure_does_not_fail_a_new_job_of_the_same_name(tmp_path: Path) -> None:
    events = kit.events(120)
    sql = f"CREATE JOB bad AS {FAILING['column']}"
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (jobs, _):
        before, number = jobs.commands, jobs.catalogue.jobs["bad"].number
        jobs.execute("DROP JOB bad; CREATE JOB bad AS SELECT user FROM clicks")
        jobs.epochs.record_failures(7, before, {number: UserError("X", "failed as it was")})
        assert life(jobs, "bad") == "running"


@pytest.mark.slow
def test_a_job_that_does_not_finish_its_part_of_an_epoch_fails(tmp_path: Path) -> None:
    events = kit.events(60)
    sql = f"{STEADY_JOBS}; CREATE JOB bad AS SELECT slow(user) AS u FROM clicks"
    options: dict[str, Any] = {"functions": FUNCTIONS, "epoch_units": 20, "job_seconds": 0.3}
    with kit.running(tmp_path, kit.clicks(events), sql, **options) as (jobs, engine):
        emitted = kit.emitted_rows(list(engine.steps()))
        assert life(jobs, "bad") == "failed"
        assert "JOB_TOO_SLOW" in str(jobs.catalogue.jobs["bad"].master.error)
    assert "per_page" in emitted


def test_a_failure_is_repeated_after_a_kill(tmp_path: Path) -> None:
    """Killed after a job failed and before the commit: the epoch executes without the job again, even if the job would
    not fail any more."""
    events = kit.events(120)
    sql = f"{STEADY_JOBS}; CREATE JOB bad AS {FAILING['column']}"
    epoch, killed = 0, False
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        while not killed:
            epoch = engine.next_epoch
            try:
                with kit.killed_at("gathered" if _will_fail(jobs, events, engine) else "nowhere", epoch):
                    assert engine.step() is not None
            except kit.Killed:
                killed = True
    fixed = {**FUNCTIONS, "picky": lambda user: user.str.len_chars().cast(pl.Int64)}
    with kit.running(tmp_path, kit.clicks(events), sql, functions=fixed, epoch_units=20) as (jobs, engine):
        report = engine.step()
        assert report is not None
        assert report.epoch == epoch
        assert "bad" not in report.rows
        assert life(jobs, "bad") == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
def test_a_job_has_failed_if_the_engine_is_killed_while_it_writes_the_failure(
    fixed: bool, tmp_path: Path
) -> None:
    """Killed between the two writes of a failure: the job is left out of its epoch or not; in any case it has failed,
    with its error."""
    events = kit.events(120)
    sql = f"{STEADY_JOBS}; CREATE JOB bad AS {FAILING['column']}"
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    state, epoch, before = tmp_path / "s", 0, list[EpochReport]()
    with kit.running(state, kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (jobs, engine):
        while not _will_fail(jobs, events, engine):
            before.append(_run_epoch(engine))
        epoch = engine.next_epoch
        with pytest.raises(kit.Killed), _killed_at_the_second_write():
            engine.step()
    functions = FIXED if fixed else FUNCTIONS
    with kit.running(state, kit.clicks(events), sql, functions=functions, epoch_units=20) as (jobs, engine):
        report = _run_epoch(engine)
        assert report.epoch == epoch
        assert life(jobs, "bad") == "failed", "at once, not when it fails in a later epoch"
        assert ("bad" in report.rows) is fixed
        after = list(engine.steps())
        assert not any("bad" in later.rows for later in after)
        assert life(jobs, "bad") == "failed"
        assert "u5 is not welcome" in str(jobs.catalogue.jobs["bad"].master.error)
        assert not jobs.catalogue.jobs["bad"].lost, "a second failure in the same epoch is the same failure"
        assert jobs.execute("RESUME JOB bad")[0].state == "kept"
    emitted = kit.emitted_rows([*before, report, *after])
    assert {name: rows for name, rows in emitted.items() if name != "bad"} == alone


def _run_epoch(engine: InlineEngine) -> EpochReport:
    report = engine.step()
    assert report is not None
    return report


@contextmanager
def _killed_at_the_second_write() -> Iterator[None]:
    """End the engine once it has written one record of a failure and is about to write the next."""
    written: list[str] = []

    def allow_once(write: Any) -> Any:
        def write_or_die(*args: Any, **named: Any) -> Any:
            if written:
                raise kit.Killed
            written.append(write.__name__)
            return write(*args, **named)

        return write_or_die

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CommandLog, "append", allow_once(CommandLog.append))
        patched.setattr(Failures, "put", allow_once(Failures.put))
        yield


COUNTED = "SELECT page, COUNT(*) AS n FROM clicks WHERE picky(user) > 0 GROUP BY page WINDOWING 1 HOUR"
FIXED = {**FUNCTIONS, "picky": lambda user: user.map_batches(_sized, return_dtype=pl.Int64)}


def _sized(values: pl.Series) -> pl.Series:
    return values.str.len_chars().cast(pl.Int64)


def _run_until_it_fails(jobs: Program, engine: InlineEngine) -> int:
    """The epoch in which the job `bad` fails."""
    while True:
        report = engine.step()
        assert report is not None
        if life(jobs, "bad") == "failed":
            return report.epoch


def test_a_failed_job_resumes_with_its_state(tmp_path: Path) -> None:
    """As after a pause: the events before the epoch in which it failed count, those until it is resumed do not."""
    events = [event for event in kit.events(60) if event["user"] != "u5"][:40] + kit.events(120, seed=3)
    events = [{**event, "ts": when["ts"]} for event, when in zip(events, kit.events(160), strict=True)]
    options: dict[str, Any] = {"epoch_units": 20}
    sql = f"CREATE JOB bad AS {COUNTED}"
    with kit.running(tmp_path, kit.clicks(events), sql, functions=FUNCTIONS, **options) as (jobs, engine):
        failed = _run_until_it_fails(jobs, engine)
        assert engine.step() is not None, "an epoch without the job"
        number = jobs.catalogue.jobs["bad"].number
    with kit.running(tmp_path, kit.clicks(events), functions=FIXED, **options) as (jobs, engine):
        reply = jobs.execute("RESUME JOB bad")[0]
        assert (reply.state, jobs.catalogue.jobs["bad"].number) == ("kept", number)
        assert "with the state it had" in reply.message
        emitted = kit.emitted_rows(list(engine.steps()))["bad"]
    assert failed >= 2
    expected: dict[str, int] = {}
    for event in events[: failed * 20] + events[(failed + 2) * 20 :]:
        expected[event["page"]] = expected.get(event["page"], 0) + 1
    assert dict(emitted) == expected


@pytest.mark.slow
def test_a_job_that_fails_by_time_alone_loses_its_state_and_resume_says_so(tmp_path: Path) -> None:
    """The job fails as its inner windows close, with events or without: it is left out altogether."""
    sql = f"""{STEADY_JOBS}; CREATE JOB bad AS SELECT u, COUNT(*) AS c FROM
        (SELECT picky(user) AS u, n FROM (SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 5 SECONDS))
        GROUP BY u WINDOWING 30 SECONDS"""
    events = kit.events(160)
    alone = kit.run_all(tmp_path / "alone", kit.clicks(events), STEADY_JOBS, epoch_units=20)
    with kit.running(tmp_path / "s", kit.clicks(events), sql, functions=FUNCTIONS, epoch_units=20) as (
        jobs,
        engine,
    ):
        failed = _run_until_it_fails(jobs, engine)
        assert jobs.epochs.failures(failed, jobs.commands) == {jobs.catalogue.jobs["bad"].number: True}
    with kit.running(tmp_path / "s", kit.clicks(events), sql, functions=FIXED, epoch_units=20) as (
        jobs,
        engine,
    ):
        reply = jobs.execute("RESUME JOB bad")[0]
        assert reply.state == "anew"
        assert "starts empty" in reply.message
        list(engine.steps())
        assert life(jobs, "bad") == "running"
        everything = {name: [row for _, row in kit.retained_rows(jobs, name)] for name in alone}
    assert everything == alone


def test_a_paused_job_can_fail_too(tmp_path: Path) -> None:
    sql = f"CREATE JOB bad AS {FAILING['column']}"
    with kit.running(tmp_path, kit.clicks(kit.events(40)), sql, functions=FUNCTIONS) as (jobs, _):
        jobs.execute("PAUSE JOB bad")
        number = jobs.catalogue.jobs["bad"].number
        jobs.epochs.record_failures(0, jobs.commands, {number: UserError("X", "by time alone")})
        assert life(jobs, "bad") == "failed"
        assert jobs.execute("RESUME JOB bad")[0].state == "anew"


def _will_fail(jobs: Program, events: list[kit.Event], engine: Any) -> bool:
    done = engine.next_epoch * 20
    return any(event["user"] == "u5" and event["status"] == 200 for event in events[done : done + 20])


def test_an_epoch_may_have_late_events_and_dead_letters_only(tmp_path: Path) -> None:
    events = kit.events(60)
    log = ListLog([json.dumps(event) for event in events], finished=False)
    sql = "CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
    with kit.running(tmp_path, kit.of_log(log), sql) as (_, engine):
        list(engine.steps())
        log.add("p0", "no event at all", json.dumps(events[0]))
        (report,) = engine.steps()
        assert (report.bad, report.late) == (1, 1)


@pytest.mark.parametrize("step", ["command", "epoch"])
def test_an_engine_that_was_paused_during_a_failover_fails_no_job(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused between the check of its lease and the write."""
    state = tmp_path / "s"
    before: dict[str, Any] = {"command": CommandLog.append, "epoch": Failures.put}

    def write_after_failover(self: Any, *arguments: Any) -> Any:
        if step == "epoch" or isinstance(arguments[0][0], FailJob):
            FencedDirectory(state / "generations").take_over()  # the first step of a failover
        return before[step](self, *arguments)

    sql = f"{STEADY_JOBS}; CREATE JOB bad AS {FAILING['column']}"
    with kit.running(state, kit.clicks(kit.events(120)), sql, functions=FUNCTIONS, epoch_units=20) as (
        _,
        engine,
    ):
        if step == "command":
            monkeypatch.setattr(CommandLog, "append", write_after_failover)
        else:
            monkeypatch.setattr(Failures, "put", write_after_failover)
        with pytest.raises(ExternalError) as refused:
            list(engine.steps())
    assert refused.value.condition == "FENCED"
    entries = CommandLog(state).load(owned=False).entries
    failed = [command for entry in entries for command in entry if isinstance(command, FailJob)]
    assert len(failed) == (step == "epoch"), "the command was written before the failover, or not at all"
    assert not [*(state / "failures").iterdir()] if (state / "failures").exists() else True

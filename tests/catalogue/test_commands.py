"""Commands to running jobs: their replies and their effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from tests.catalogue import kit
from tests.catalogue.kit import append_events, growing_log, refusal

COUNT = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"
HOUR = "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 HOUR"


@pytest.fixture
def live(tmp_path: Path) -> Any:
    """Jobs, their engine, a growing log with half of the events, and all events."""
    log, events = growing_log()
    append_events(log, events[:50])
    with kit.running(tmp_path, kit.of_log(log), f"CREATE JOB per_page AS {COUNT}") as (jobs, engine):
        list(engine.steps())
        yield jobs, engine, log, events


# -- effects -------------------------------------------------------------------------------------


def test_a_command_replies_at_once_and_takes_effect_with_the_next_epoch(live: Any) -> None:
    jobs, engine, log, events = live
    (reply,) = jobs.execute("CREATE JOB errors AS SELECT user, status FROM clicks WHERE status >= 400")
    assert reply.message.startswith("created job errors")
    assert reply.command == jobs.commands
    append_events(log, events[50:])
    rows = kit.emitted_rows(list(engine.steps()))["errors"]
    assert rows == [(e["user"], e["status"]) for e in events[50:] if e["status"] >= 400], "from that epoch on"


def test_a_command_gets_an_epoch_even_without_events(live: Any) -> None:
    jobs, engine, _, _ = live
    assert engine.step() is None
    jobs.execute("PAUSE JOB per_page")
    report = engine.step()
    assert report is not None
    assert report.events == 0


def test_statements_executed_together_are_accepted_together_or_not_at_all(live: Any) -> None:
    jobs, _, _, _ = live
    error = refusal(
        jobs, f"CREATE JOB other AS {COUNT}; DROP JOB per_page; CREATE JOB broken AS SELECT x FROM clicks"
    )
    assert error.condition == "UNKNOWN_COLUMN"
    assert "other" not in jobs.catalogue.jobs


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("SET WHERE status = 200", "kept"),
        (
            "AS SELECT n, page FROM (SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS)",
            "kept",
        ),
        (f"AS {COUNT.replace('AS n', 'AS m')}", "kept"),
        (
            "AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) > 1 WINDOWING 10 SECONDS",
            "kept",
        ),
        (f"AS {COUNT.replace('10', '20')}", "anew"),
        (f"AS {COUNT.replace('page', 'user')}", "anew"),
        (
            "AS SELECT page, COUNT(*) AS n, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 10 SECONDS",
            "anew",
        ),
        (f"AS {COUNT.replace('10', '20')} REBUILD", "rebuilt"),
    ],
)
def test_the_reply_to_alter_states_what_becomes_of_the_state(live: Any, change: str, state: str) -> None:
    jobs, _, _, _ = live
    (reply,) = jobs.execute(f"ALTER JOB per_page {change}")
    assert reply.state == state
    assert "state" in reply.message


def test_an_altered_filter_keeps_the_state(tmp_path: Path) -> None:
    log, events = growing_log(60)
    sql = "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WHERE status = 200 WINDOWING 1 HOUR"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:30])
        list(engine.steps())
        jobs.execute("ALTER JOB n SET WHERE status = 404")
        append_events(log, events[30:])
        log.finish()
        emitted = kit.emitted_rows(list(engine.steps()))
    before = sum(event["status"] == 200 for event in events[:30])
    assert emitted["n"] == [(before + sum(event["status"] == 404 for event in events[30:]),)]


def test_a_parameter_can_be_changed(tmp_path: Path) -> None:
    log, events = growing_log(60)
    sql = "CREATE JOB big AS SELECT user, bytes FROM clicks WHERE bytes > $least WITH ($least = 500)"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:30])
        reports = list(engine.steps())
        jobs.execute("ALTER JOB big SET $least = 900")
        append_events(log, events[30:])
        reports += engine.steps()
    expected = [e for e in events[:30] if (e["bytes"] or 0) > 500] + [
        e for e in events[30:] if (e["bytes"] or 0) > 900
    ]
    assert kit.emitted_rows(reports)["big"] == [(e["user"], e["bytes"]) for e in expected]


def test_a_rebuilt_state_includes_the_earliest_events(tmp_path: Path) -> None:
    log, events = growing_log(60)
    sql = f"{HOUR}; {HOUR.replace('JOB n', 'JOB m')}"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:30])
        list(engine.steps())
        later = "AS SELECT COUNT(*) AS n, MAX(status) AS s FROM clicks WINDOWING 1 HOUR"
        assert jobs.execute(f"ALTER JOB n {later} REBUILD")[0].state == "rebuilt"
        assert jobs.execute(f"ALTER JOB m {later}")[0].state == "anew"
        append_events(log, events[30:])
        log.finish()
        emitted = kit.emitted_rows(list(engine.steps()))
    assert emitted["n"] == [(60, 500)]
    assert emitted["m"] == [(30, max(event["status"] for event in events[30:]))]


def test_of_two_alters_before_one_epoch_the_later_takes_effect(live: Any) -> None:
    jobs, engine, log, events = live
    first = jobs.execute("ALTER JOB per_page SET WHERE status = 200")
    second = jobs.execute("ALTER JOB per_page SET WHERE status = 404")
    assert [first[0].command, second[0].command] == [2, 3]
    assert jobs.catalogue.jobs["per_page"].select.count("404") == 1
    append_events(log, events[50:])
    assert engine.step() is not None


def test_a_paused_job_processes_nothing_and_emits_nothing(tmp_path: Path) -> None:
    log, events = growing_log(90)
    sql = f"CREATE JOB each AS SELECT user, page FROM clicks; {HOUR}"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        append_events(log, events[:30])
        reports = list(engine.steps())
        jobs.execute("PAUSE JOB each; PAUSE JOB n")
        append_events(log, events[30:60])
        paused = list(engine.steps())
        jobs.execute("RESUME JOB each; RESUME JOB n")
        append_events(log, events[60:])
        log.finish()
        reports += engine.steps()
    assert kit.emitted_rows(paused) == {}
    assert kit.emitted_rows(reports)["each"] == [(e["user"], e["page"]) for e in events[:30] + events[60:]]
    assert kit.emitted_rows(reports)["n"] == [(60,)]


def test_an_emptied_job_starts_without_state(tmp_path: Path) -> None:
    log, events = growing_log(60)
    with kit.running(
        tmp_path, kit.of_log(log), "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 HOUR"
    ) as (
        jobs,
        engine,
    ):
        append_events(log, events[:30])
        list(engine.steps())
        jobs.execute("EMPTY JOB n")
        append_events(log, events[30:])
        log.finish()
        assert kit.emitted_rows(list(engine.steps()))["n"] == [(30,)]


def test_flush_emits_the_open_windows_and_keeps_them_open(tmp_path: Path) -> None:
    log, events = growing_log(60)
    with kit.running(tmp_path, kit.of_log(log), HOUR) as (jobs, engine):
        append_events(log, events[:30])
        assert kit.emitted_rows(list(engine.steps())) == {}
        jobs.execute("FLUSH JOB n")
        assert kit.emitted_rows(list(engine.steps())) == {"n": [(30,)]}
        append_events(log, events[30:])
        log.finish()
        assert kit.emitted_rows(list(engine.steps())) == {"n": [(60,)]}


def test_a_new_job_with_the_name_of_a_dropped_one_starts_without_state(tmp_path: Path) -> None:
    log, events = growing_log(60)
    with kit.running(tmp_path, kit.of_log(log), HOUR) as (jobs, engine):
        append_events(log, events[:30])
        list(engine.steps())
        jobs.execute("DROP JOB n")
        jobs.execute(HOUR)
        assert jobs.ask("n") is None
        append_events(log, events[30:])
        log.finish()
        assert kit.emitted_rows(list(engine.steps()))["n"] == [(30,)]


def test_the_latest_result_is_available_after_a_restart(tmp_path: Path) -> None:
    events = kit.events(100)
    with kit.running(tmp_path, kit.clicks(events), f"CREATE JOB per_page AS {COUNT}") as (jobs, engine):
        reports = list(engine.steps())
        last = jobs.ask("per_page")
    assert last is not None
    assert last.rows.equals(reports[-1].rows["per_page"].tail(4)), (
        "the rows of the last window, of four pages"
    )
    with kit.running(tmp_path, kit.clicks(events)) as (jobs, _):
        again = jobs.ask("per_page")
        assert again is not None
        assert again.epoch == last.epoch
        assert again.rows.equals(last.rows)
        assert [result.epoch for result in jobs.since("per_page", 0)] == [last.epoch]


def test_a_changed_script_alters_the_jobs_that_differ_and_leaves_the_others(tmp_path: Path) -> None:
    events = kit.events(40)
    with kit.running(
        tmp_path, kit.clicks(events), f"CREATE JOB one AS {COUNT}; CREATE JOB two AS {COUNT}"
    ) as (jobs, _):
        jobs.execute(f"CREATE JOB three AS {COUNT}")
    changed = f"CREATE JOB one AS {COUNT}; CREATE JOB two AS {COUNT.replace('page', 'user')}"
    with kit.running(tmp_path, kit.clicks(events), changed) as (jobs, _):
        assert [reply.message.split(";")[0] for reply in jobs.replies] == ["altered job two"]
        assert list(jobs.catalogue.jobs) == ["one", "two", "three"]


# -- refusals ------------------------------------------------------------------------------------

BAD: list[tuple[str, str]] = [
    ("CREATE JOB j AS SELECT page FROM click", "UNKNOWN_STREAM"),
    ("CREATE JOB j AS SELECT pag FROM clicks", "UNKNOWN_COLUMN"),
    (f"CREATE JOB per_page AS {COUNT}", "NAME_TAKEN"),
    (f"CREATE JOB clicks AS {COUNT}", "NAME_TAKEN"),
    (f"CREATE JOB select AS {COUNT}", "BAD_SQL"),
    ("CREATE JOB j AS SELECT page FROM clicks INTO nowhere('x')", "UNKNOWN_SINK"),
    ("CREATE JOB j AS SELECT page FROM j", "JOB_CYCLE"),
    ("DROP JOB nobody", "UNKNOWN_JOB"),
    ("PAUSE JOB nobody", "UNKNOWN_JOB"),
    ("ALTER JOB nobody SET LIMIT 3", "UNKNOWN_JOB"),
    ("RESUME JOB per_page", "JOB_CANNOT"),
    ("ALTER JOB per_page AS SELECT x FROM clicks", "UNKNOWN_COLUMN"),
    ("ALTER JOB per_page AS SELECT page FROM nothing", "UNKNOWN_STREAM"),
    ("DROP STREAM clicks", "STILL_READ"),
    ("DROP STREAM nothing", "UNKNOWN_STREAM"),
    ("SELECT page FROM clicks", "NOT_A_COMMAND"),
    ("CREATE JOB j AS SELECT " + "1 + " * 300_000 + "1 FROM clicks", "QUERY_TOO_LONG"),
]


@pytest.mark.parametrize(("sql", "condition"), BAD, ids=[sql[:40] for sql, _ in BAD])
def test_an_invalid_statement_is_refused_and_changes_nothing(live: Any, sql: str, condition: str) -> None:
    jobs, engine, log, events = live
    assert refusal(jobs, sql).condition == condition
    append_events(log, events[50:])
    assert any("per_page" in report.rows for report in engine.steps())


def test_a_job_that_others_read_can_neither_be_dropped_nor_lose_columns(live: Any) -> None:
    jobs, _, _, _ = live
    jobs.execute("CREATE JOB reader AS SELECT page, n FROM per_page WHERE n > 3")
    assert refusal(jobs, "DROP JOB per_page").condition == "STILL_READ"
    error = refusal(jobs, f"ALTER JOB per_page AS {COUNT.replace('AS n', 'AS m')}")
    assert "reader" in error.primary
    jobs.execute("DROP JOB reader")
    jobs.execute("DROP JOB per_page")


def test_jobs_cannot_read_each_other_in_a_cycle(live: Any) -> None:
    jobs, _, _, _ = live
    jobs.execute("CREATE JOB reader AS SELECT page, n FROM per_page")
    assert refusal(jobs, "ALTER JOB per_page AS SELECT page, n FROM reader").condition == "JOB_CYCLE"


def test_more_jobs_than_the_limit_are_refused(tmp_path: Path) -> None:
    jobs = Program("few", tmp_path, streams={"clicks": kit.clicks(kit.events(10))}, max_jobs=3)
    jobs.start()
    for number in range(3):
        jobs.execute(f"CREATE JOB j{number} AS {COUNT}")
    assert refusal(jobs, f"CREATE JOB j3 AS {COUNT}").condition == "TOO_MANY_JOBS"


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_that_is_dropped_and_created_again_has_no_results(restart: bool, tmp_path: Path) -> None:
    events = kit.events(80)
    sql = "CREATE JOB one AS SELECT page FROM clicks"
    recreate = "DROP JOB one; CREATE JOB one AS SELECT user FROM clicks"
    with kit.running(tmp_path, kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
        first = [engine.step(), engine.step()]
        assert [result.epoch for result in jobs.since("one", 0)] == [0, 1]
        jobs.execute(recreate)
        assert jobs.since("one", 0) == []
        assert jobs.ask("one") is None
        assert None not in first
        if not restart:
            list(engine.steps())
            assert [a.rows.columns for a in jobs.since("one", 0)] == [["user"]] * 2
            return
    with kit.running(tmp_path, kit.clicks(events), sql, epoch_units=20) as (jobs, engine):
        assert jobs.since("one", 0) == []
        assert jobs.ask("one") is None
        list(engine.steps())
        assert [a.epoch for a in jobs.since("one", 0)] == [2, 3]
        assert refused_since(jobs, "nobody") == "UNKNOWN_JOB"


def refused_since(jobs: Program, job: str) -> str:
    with pytest.raises(PenstockError) as error:
        jobs.since(job, 0)
    return error.value.condition

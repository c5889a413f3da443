"""Commands to running jobs: what they answer and what they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

COUNT = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"
HOUR = "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 HOUR"


def grown(count: int = 100) -> tuple[ListLog, list[kit.Event]]:
    """A log that is not finished, and the events to put into it."""
    return ListLog({"p0": []}, finished=False), kit.events(count)


def put(log: ListLog, found: list[kit.Event]) -> None:
    log.add("p0", *(json.dumps(event) for event in found))


@pytest.fixture
def live(tmp_path: Path) -> Any:
    """Jobs on a log that grows, half of whose events are there, and the rest of them."""
    log, found = grown()
    put(log, found[:50])
    with kit.running(tmp_path, kit.of_log(log), f"CREATE JOB per_page AS {COUNT}") as (jobs, engine):
        list(engine.steps())
        yield jobs, engine, log, found


def refused(jobs: Program, sql: str) -> PenstockError:
    """The error a statement is refused with; nothing has changed by it."""
    before, number = jobs.catalogue, jobs.commands
    with pytest.raises(PenstockError) as error:
        jobs.execute(sql)
    assert jobs.catalogue == before
    assert jobs.commands == number
    return error.value


# -- answers -------------------------------------------------------------------------------------


def test_a_command_is_answered_at_once_and_takes_effect_with_the_next_epoch(live: Any) -> None:
    jobs, engine, log, found = live
    (answer,) = jobs.execute("CREATE JOB errors AS SELECT user, status FROM clicks WHERE status >= 400")
    assert answer.message.startswith("created job errors")
    assert answer.command == jobs.commands
    put(log, found[50:])
    rows = kit.told(list(engine.steps()))["errors"]
    assert rows == [(e["user"], e["status"]) for e in found[50:] if e["status"] >= 400], (
        "from then on, not before"
    )


def test_a_command_has_its_epoch_even_when_there_are_no_events(live: Any) -> None:
    jobs, engine, _, _ = live
    assert engine.step() is None
    jobs.execute("PAUSE JOB per_page")
    report = engine.step()
    assert report is not None
    assert report.events == 0


def test_statements_said_together_are_taken_together_or_not_at_all(live: Any) -> None:
    jobs, _, _, _ = live
    error = refused(
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
def test_alter_says_what_becomes_of_the_state(live: Any, change: str, state: str) -> None:
    jobs, _, _, _ = live
    (answer,) = jobs.execute(f"ALTER JOB per_page {change}")
    assert answer.state == state
    assert "state" in answer.message


def test_an_altered_filter_keeps_what_was_counted(tmp_path: Path) -> None:
    log, found = grown(60)
    sql = "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WHERE status = 200 WINDOWING 1 HOUR"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        put(log, found[:30])
        list(engine.steps())
        jobs.execute("ALTER JOB n SET WHERE status = 404")
        put(log, found[30:])
        log.finish()
        told = kit.told(list(engine.steps()))
    before = sum(event["status"] == 200 for event in found[:30])
    assert told["n"] == [(before + sum(event["status"] == 404 for event in found[30:]),)]


def test_a_parameter_is_a_constant_that_can_be_changed(tmp_path: Path) -> None:
    log, found = grown(60)
    sql = "CREATE JOB big AS SELECT user, bytes FROM clicks WHERE bytes > $least WITH ($least = 500)"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        put(log, found[:30])
        reports = list(engine.steps())
        jobs.execute("ALTER JOB big SET $least = 900")
        put(log, found[30:])
        reports += engine.steps()
    wanted = [e for e in found[:30] if (e["bytes"] or 0) > 500] + [
        e for e in found[30:] if (e["bytes"] or 0) > 900
    ]
    assert kit.told(reports)["big"] == [(e["user"], e["bytes"]) for e in wanted]


def test_a_rebuilt_state_is_made_of_the_earliest_events(tmp_path: Path) -> None:
    log, found = grown(60)
    sql = f"{HOUR}; {HOUR.replace('JOB n', 'JOB m')}"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        put(log, found[:30])
        list(engine.steps())
        later = "AS SELECT COUNT(*) AS n, MAX(status) AS s FROM clicks WINDOWING 1 HOUR"
        assert jobs.execute(f"ALTER JOB n {later} REBUILD")[0].state == "rebuilt"
        assert jobs.execute(f"ALTER JOB m {later}")[0].state == "anew"
        put(log, found[30:])
        log.finish()
        told = kit.told(list(engine.steps()))
    assert told["n"] == [(60, 500)]
    assert told["m"] == [(30, max(event["status"] for event in found[30:]))]


def test_two_alters_of_one_epoch_are_both_answered_and_the_later_one_holds(live: Any) -> None:
    jobs, engine, log, found = live
    first = jobs.execute("ALTER JOB per_page SET WHERE status = 200")
    second = jobs.execute("ALTER JOB per_page SET WHERE status = 404")
    assert [first[0].command, second[0].command] == [2, 3]
    assert jobs.catalogue.jobs["per_page"].select.count("404") == 1
    put(log, found[50:])
    assert engine.step() is not None


def test_a_paused_job_sees_nothing_and_tells_nothing(tmp_path: Path) -> None:
    log, found = grown(90)
    sql = f"CREATE JOB each AS SELECT user, page FROM clicks; {HOUR}"
    with kit.running(tmp_path, kit.of_log(log), sql) as (jobs, engine):
        put(log, found[:30])
        reports = list(engine.steps())
        jobs.execute("PAUSE JOB each; PAUSE JOB n")
        put(log, found[30:60])
        paused = list(engine.steps())
        jobs.execute("RESUME JOB each; RESUME JOB n")
        put(log, found[60:])
        log.finish()
        reports += engine.steps()
    assert kit.told(paused) == {}
    assert kit.told(reports)["each"] == [(e["user"], e["page"]) for e in found[:30] + found[60:]]
    assert kit.told(reports)["n"] == [(60,)]


def test_an_emptied_job_begins_anew(tmp_path: Path) -> None:
    log, found = grown(60)
    with kit.running(
        tmp_path, kit.of_log(log), "CREATE JOB n AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 HOUR"
    ) as (
        jobs,
        engine,
    ):
        put(log, found[:30])
        list(engine.steps())
        jobs.execute("EMPTY JOB n")
        put(log, found[30:])
        log.finish()
        assert kit.told(list(engine.steps()))["n"] == [(30,)]


def test_a_flushed_job_tells_its_open_windows_as_they_stand(tmp_path: Path) -> None:
    log, found = grown(60)
    with kit.running(tmp_path, kit.of_log(log), HOUR) as (jobs, engine):
        put(log, found[:30])
        assert kit.told(list(engine.steps())) == {}
        jobs.execute("FLUSH JOB n")
        assert kit.told(list(engine.steps())) == {"n": [(30,)]}
        put(log, found[30:])
        log.finish()
        assert kit.told(list(engine.steps())) == {"n": [(60,)]}


def test_a_dropped_job_is_gone_and_another_of_its_name_begins_anew(tmp_path: Path) -> None:
    log, found = grown(60)
    with kit.running(tmp_path, kit.of_log(log), HOUR) as (jobs, engine):
        put(log, found[:30])
        list(engine.steps())
        jobs.execute("DROP JOB n")
        jobs.execute(HOUR)
        assert jobs.ask("n") is None
        put(log, found[30:])
        log.finish()
        assert kit.told(list(engine.steps()))["n"] == [(30,)]


def test_the_latest_answer_can_be_asked_for_also_after_a_restart(tmp_path: Path) -> None:
    found = kit.events(100)
    with kit.running(tmp_path, kit.clicks(found), f"CREATE JOB per_page AS {COUNT}") as (jobs, engine):
        reports = list(engine.steps())
        last = jobs.ask("per_page")
    assert last is not None
    assert last.rows.equals(reports[-1].rows["per_page"].tail(4)), "the last window's, of four pages"
    with kit.running(tmp_path, kit.clicks(found)) as (jobs, _):
        again = jobs.ask("per_page")
        assert again is not None
        assert again.epoch == last.epoch
        assert again.rows.equals(last.rows)
        assert [answer.epoch for answer in jobs.since("per_page", 0)] == [last.epoch]


def test_a_script_said_again_alters_what_is_said_otherwise_and_leaves_the_rest(tmp_path: Path) -> None:
    found = kit.events(40)
    with kit.running(
        tmp_path, kit.clicks(found), f"CREATE JOB one AS {COUNT}; CREATE JOB two AS {COUNT}"
    ) as (jobs, _):
        jobs.execute(f"CREATE JOB three AS {COUNT}")
    changed = f"CREATE JOB one AS {COUNT}; CREATE JOB two AS {COUNT.replace('page', 'user')}"
    with kit.running(tmp_path, kit.clicks(found), changed) as (jobs, _):
        assert [answer.message.split(";")[0] for answer in jobs.replies] == ["altered job two"]
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
def test_what_cannot_be_is_refused_and_changes_nothing(live: Any, sql: str, condition: str) -> None:
    jobs, engine, log, found = live
    assert refused(jobs, sql).condition == condition
    put(log, found[50:])
    assert any("per_page" in report.rows for report in engine.steps())


def test_a_job_that_others_read_is_neither_dropped_nor_altered_under_them(live: Any) -> None:
    jobs, _, _, _ = live
    jobs.execute("CREATE JOB reader AS SELECT page, n FROM per_page WHERE n > 3")
    assert refused(jobs, "DROP JOB per_page").condition == "STILL_READ"
    error = refused(jobs, f"ALTER JOB per_page AS {COUNT.replace('AS n', 'AS m')}")
    assert "reader" in error.primary
    jobs.execute("DROP JOB reader")
    jobs.execute("DROP JOB per_page")


def test_jobs_cannot_read_each_other_in_a_circle(live: Any) -> None:
    jobs, _, _, _ = live
    jobs.execute("CREATE JOB reader AS SELECT page, n FROM per_page")
    assert refused(jobs, "ALTER JOB per_page AS SELECT page, n FROM reader").condition == "JOB_CYCLE"


def test_there_can_be_too_many_jobs(tmp_path: Path) -> None:
    jobs = Program("few", tmp_path, streams={"clicks": kit.clicks(kit.events(10))}, max_jobs=3)
    jobs.start()
    for number in range(3):
        jobs.execute(f"CREATE JOB j{number} AS {COUNT}")
    assert refused(jobs, f"CREATE JOB j3 AS {COUNT}").condition == "TOO_MANY_JOBS"


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_dropped_and_created_again_has_told_nothing_yet(restart: bool, tmp_path: Path) -> None:
    found = kit.events(80)
    sql = "CREATE JOB one AS SELECT page FROM clicks"
    again = "DROP JOB one; CREATE JOB one AS SELECT user FROM clicks"
    with kit.running(tmp_path, kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
        first = [engine.step(), engine.step()]
        assert [answer.epoch for answer in jobs.since("one", 0)] == [0, 1]
        jobs.execute(again)
        assert jobs.since("one", 0) == []
        assert jobs.ask("one") is None
        assert None not in first
        if not restart:
            list(engine.steps())
            assert [a.rows.columns for a in jobs.since("one", 0)] == [["user"]] * 2
            return
    with kit.running(tmp_path, kit.clicks(found), sql, epoch_units=20) as (jobs, engine):
        assert jobs.since("one", 0) == []
        assert jobs.ask("one") is None
        list(engine.steps())
        assert [a.epoch for a in jobs.since("one", 0)] == [2, 3]
        assert refused_since(jobs, "nobody") == "UNKNOWN_JOB"


def refused_since(jobs: Program, job: str) -> str:
    with pytest.raises(PenstockError) as error:
        jobs.since(job, 0)
    return error.value.condition

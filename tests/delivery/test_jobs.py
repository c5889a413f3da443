"""The sinks of jobs: a job fails alone for its own sink, continues where it stopped, and can be dropped meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.delivery.cursors import read_cursors
from penstock.errors import ExternalError
from tests.delivery.kit import Numbers, Switched, app_of, jobs_of, running, settings_of, wait_until


def run_cli(*arguments: str) -> str:
    """What a command prints, or its error."""
    result = CliRunner().invoke(cli, arguments)
    return result.output + (str(result.exception) if result.exception else "")


def select(path: Path, table: str) -> list[int]:
    with sqlite3.connect(path) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []  # the sink is not open yet
        return [n for (n,) in database.execute(f"SELECT n FROM {table} ORDER BY n")]


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)


def test_a_job_fails_alone_for_its_sink_and_continues_once_it_is_resumed(tmp_path: Path) -> None:
    numbers, path = Numbers(), tmp_path / "out.db"
    sql = f"""CREATE JOB one AS SELECT n FROM numbers INTO sqlite('{path}', 'one');
              CREATE JOB two AS SELECT n FROM numbers INTO sqlite('{path}', 'two')"""
    program = jobs_of(numbers, tmp_path / "state", sql)
    with running(program, settings_of(tmp_path)):
        numbers.add(3)
        wait_until(lambda: path.exists() and select(path, "two") == [0, 1, 2], "the first rows")
        change(path, "ALTER TABLE one RENAME TO away", "CREATE TABLE one (other TEXT)")
        numbers.add(3)
        wait_until(lambda: program.catalogue.jobs["one"].master.life == "failed", "the failure")
        assert "SINK_UNWRITABLE" in (program.catalogue.jobs["one"].master.error or "")
        numbers.add(3)
        wait_until(lambda: select(path, "two") == list(range(9)), "the rows of the other job")
        change(path, "DROP TABLE one", "ALTER TABLE away RENAME TO one")
        program.execute("RESUME JOB one")
        numbers.add(3)
        wait_until(
            lambda: {0, 1, 2, 3, 4, 5, 9, 10, 11} <= set(select(path, "one")),
            "what it had emitted, and new rows",
        )
    assert select(path, "one") == [0, 1, 2, 3, 4, 5, *select(path, "one")[6:]]
    assert len(set(select(path, "one"))) == len(select(path, "one"))


def test_what_a_sink_refuses_for_ever_can_be_skipped(tmp_path: Path) -> None:
    numbers, path = Numbers(), tmp_path / "out.db"
    sql = f"CREATE JOB one AS SELECT n, 10 - n AS rest FROM numbers INTO sqlite('{path}', 'one')"
    program = jobs_of(numbers, tmp_path / "state", sql)
    with running(program, settings_of(tmp_path)):
        numbers.add(2)
        wait_until(lambda: path.exists() and select(path, "one") == [0, 1], "the first rows")
        change(
            path,
            "CREATE TRIGGER no BEFORE INSERT ON one WHEN NEW.n = 2 BEGIN SELECT RAISE(ABORT, 'not 2'); END",
        )
        numbers.add(1)
        wait_until(lambda: program.catalogue.jobs["one"].master.life == "failed", "the failure")
        (lag,) = program.deliveries.lags()
    state = str(tmp_path / "state")
    failed = run_cli("recover", "skip-delivery", state, "other", "--through", str(lag.cursor + 1))
    assert "NOTHING_TO_SKIP" in failed
    skipped = run_cli("recover", "skip-delivery", state, "one", "--through", str(lag.cursor + 1))
    assert "do without 1 epochs" in skipped
    program = jobs_of(numbers, tmp_path / "state", "")
    with running(program, settings_of(tmp_path)):
        program.execute("RESUME JOB one")
        wait_until(lambda: not program.deliveries.lags(), "no lag")
        wait_until(lambda: program.catalogue.jobs["one"].master.life == "running", "the job")
        numbers.add(2)
        wait_until(lambda: 4 in select(path, "one"), "later rows")
    assert select(path, "one") == [0, 1, 3, 4]


def test_over_the_limit_of_the_log_the_job_farthest_behind_stops_and_loses_nothing(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    settings = settings_of(tmp_path, result_log_bytes=20_000, manifests_kept=2)
    with running(app_of(numbers, far=away, near=well), settings) as engine:
        away.is_away = True

        def emit_more(until: str) -> None:
            numbers.add(3)
            wait_until(lambda: len(well.numbers()) == numbers.count, until)

        while engine.program.catalogue.jobs["far"].master.life == "running":
            emit_more("rows of the other job")
            assert numbers.count < 3_000, "the job is not stopped"
        stopped_at = numbers.count
        assert "SINK_TOO_FAR_BEHIND" in (engine.program.catalogue.jobs["far"].master.error or "")
        for _ in range(30):
            emit_more("rows of the other job, without it")
        assert engine.program.result_log_bytes < 40_000
        away.is_away = False
        wait_until(lambda: not engine.program.deliveries.lags(), "what it had emitted")
        assert len(away.numbers()) <= stopped_at + 3
        engine.program.execute("RESUME JOB far")
        wait_until(lambda: engine.program.catalogue.jobs["far"].master.life == "running", "it runs")
        numbers.add(3)
        wait_until(lambda: numbers.count - 1 in away.numbers(), "rows after it is resumed")
    assert away.numbers()[:stopped_at] == list(range(stopped_at)), "all that it emitted, each once, in order"
    assert well.numbers() == list(range(numbers.count))


def test_a_dropped_job_whose_sink_is_away_is_forgotten(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)) as engine:
        numbers.add(3)
        wait_until(lambda: len(away.numbers()) == 3, "the first rows")
        away.is_away = True
        numbers.add(3)
        wait_until(lambda: engine.program.deliveries.outage is not None, "the outage")
        engine.program.execute("DROP JOB far")
        numbers.add(3)
        wait_until(lambda: away.closed, "its sink is closed")
        wait_until(lambda: not engine.program.deliveries.lags(), "no lag")
    assert away.numbers() == [0, 1, 2]
    assert len(well.numbers()) == 9
    cursors = read_cursors(tmp_path / "state" / "results")
    assert cursors is not None
    assert not cursors.behind


def test_a_dropped_job_gets_what_it_emitted_before(tmp_path: Path) -> None:
    numbers, slow = Numbers(), Switched("slow")
    with running(app_of(numbers, slow=slow, near=Switched("near")), settings_of(tmp_path)) as engine:
        slow.gate.clear()
        numbers.add(3)
        wait_until(lambda: bool(engine.program.deliveries.lags()), "rows that wait")
        numbers.add(3)
        before = engine.last_epoch
        wait_until(lambda: engine.last_epoch > before, "another epoch")
        engine.program.execute("DROP JOB slow")
        numbers.add(3)
        wait_until(
            lambda: engine.program.commands > 0 and engine.last_epoch > before + 1, "the epoch without it"
        )
        slow.gate.set()
        wait_until(lambda: slow.closed, "its sink is closed")
    assert slow.numbers()[:6] == list(range(6))


def test_an_output_whose_sink_moves_gets_what_the_former_one_lacked(tmp_path: Path) -> None:
    numbers, away, there = Numbers(), Switched("old address"), Switched("new address")
    with running(app_of(numbers, out=away), settings_of(tmp_path)) as engine:
        numbers.add(2)
        wait_until(lambda: len(away.numbers()) == 2, "the first rows")
        away.is_away = True
        numbers.add(2)
        wait_until(lambda: engine.program.deliveries.outage is not None, "the outage")
    with running(app_of(numbers, out=there), settings_of(tmp_path)):
        wait_until(lambda: len(there.numbers()) == 2, "what the former sink lacked")
    assert there.numbers() == [2, 3]


def test_creating_a_job_whose_sink_is_away_is_refused(tmp_path: Path) -> None:
    numbers = Numbers()
    program = jobs_of(numbers, tmp_path / "state", "")
    (tmp_path / "file").write_text("")
    with running(program, settings_of(tmp_path)) as engine:
        wait_until(lambda: engine._ready.is_set(), "the start")
        with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
            program.execute(f"CREATE JOB one AS SELECT n FROM numbers INTO jsonl('{tmp_path}/file')")
        assert "one" not in program.catalogue.jobs


def test_results_that_are_gone_name_the_job_and_the_ways_to_continue(tmp_path: Path) -> None:
    numbers, away = Numbers(), Switched("far")
    away.is_away = True
    numbers.add(2)
    with running(app_of(numbers, far=away), settings_of(tmp_path)) as engine:
        wait_until(lambda: engine.program.deliveries.outage is not None, "the outage")
        for path in (tmp_path / "state" / "results").glob("*.arrow"):
            path.write_bytes(b"damaged")
        numbers.add(2)
        wait_until(lambda: engine.last_epoch >= 1, "another epoch")
    away.is_away = False
    with (
        pytest.raises(Exception, match=r"RESULTS_DAMAGED.*rollback.*skip-delivery"),
        running(app_of(numbers, far=away), settings_of(tmp_path)),
    ):
        pass
    assert "do without" in run_cli(
        "recover", "skip-delivery", str(tmp_path / "state"), "far", "--through", "0"
    )
    with running(app_of(numbers, far=away), settings_of(tmp_path)):
        wait_until(lambda: away.numbers() == [2, 3], "the rows after the damage")


def test_a_rollback_delivers_what_sinks_lacked_and_nothing_twice(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)) as engine:
        for n in range(6):
            away.is_away = n >= 3
            numbers.add(2)
            wait_until(lambda: len(well.numbers()) == numbers.count and engine.last_epoch >= 0, "an epoch")
            wait_until(lambda: away.is_away or len(away.numbers()) == numbers.count, "the other sink")
        last = engine.last_epoch
    assert f"epoch {last - 4}" in run_cli("state", "rollback", str(tmp_path / "state"), "--to", str(last - 4))
    away.is_away = False
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)):
        wait_until(lambda: len(away.numbers()) == 12, "what it lacked")
    assert away.numbers() == well.numbers() == list(range(12))

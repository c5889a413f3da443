"""An engine crashes in an epoch, and a job is changed before it starts again: the job's sink has each row once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from penstock.catalogue.program import Program
from tests.catalogue.kit import append_events, growing_log, of_log, running
from tests.crash import Crashed, crash_at

CHANGES = {
    "drop": "DROP JOB rows",
    "alter": "ALTER JOB rows SET WHERE user = 'nobody'",
    "create-again": "DROP JOB rows; CREATE JOB rows AS SELECT user FROM clicks INTO {sink}",
}


def check_change(folder: Path, sink: str, change: str, step: str, count: Callable[[], int]) -> None:
    """Crash at a step of the second epoch that has events, change the job, and continue."""
    log, events = growing_log(40)
    state, sql = folder / "state", f"CREATE JOB rows AS SELECT user FROM clicks INTO {sink}"
    with running(state, of_log(log), sql) as (program, engine):
        program.execute("CREATE JOB stays AS SELECT user FROM clicks")
        append_events(log, events[:10])
        list(engine.steps())
        assert count() == 10
        append_events(log, events[10:])
        with crash_at(step, engine.next_epoch), pytest.raises(Crashed):
            list(engine.steps())
    Program("test", state, streams={"clicks": of_log(log)}).execute(CHANGES[change].format(sink=sink))
    with running(state, of_log(log)) as (_, engine):
        list(engine.steps())
    assert count() == 40


@pytest.mark.parametrize("step", ["recorded", "emitted"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_of_sqlite_has_the_rows_once(change: str, step: str, tmp_path: Path) -> None:
    def count() -> int:
        with sqlite3.connect(tmp_path / "out.db") as database:
            return int(database.execute("SELECT count(*) FROM rows").fetchone()[0])

    check_change(tmp_path, f"sqlite('{tmp_path}/out.db', 'rows')", change, step, count)


@pytest.mark.process
@pytest.mark.parametrize("step", ["recorded", "emitted"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_of_postgres_has_the_rows_once(
    change: str, step: str, postgres_address: str, tmp_path: Path
) -> None:
    table = f"rows_{change.replace('-', '_')}_{step}"

    def count() -> int:
        with psycopg.connect(postgres_address) as connection:
            found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[arg-type]
            return -1 if found is None else int(found[0])

    sink = f"postgres('{postgres_address}', '{table}', make_table => TRUE)"
    check_change(tmp_path, sink, change, step, count)

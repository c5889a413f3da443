"""A restored copy of a state directory writes nothing over a sink that is ahead, until somebody decides."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.delivery.cursors import CURSORS
from penstock.engine.engine import Engine
from penstock.errors import UserError
from penstock.sinks import JsonLines, Parquet, Sqlite
from penstock.sinks.contract import Sink
from penstock.testing.inline import InlineEngine
from tests.cli.kit import run_in_process
from tests.crash import Crashed, crash_at
from tests.delivery.kit import Numbers, jobs_of, running, settings_of, wait_until
from tests.delivery.restored import (
    BEFORE,
    RestoredCase,
    check_a_copy_of_what_the_sink_has_continues,
    check_refused_and_skipped,
    check_refused_and_written_again,
)


def sqlite_case(folder: Path) -> RestoredCase:
    return RestoredCase(folder, lambda: Sqlite(folder / "out.db", "numbers"), lambda: select(folder))


def select(folder: Path, table: str = "numbers") -> list[int]:
    with closing(sqlite3.connect(folder / "out.db")) as database:
        return [n for (n,) in database.execute(f"SELECT n FROM {table} ORDER BY n")]


def files_case(folder: Path, kind: str) -> RestoredCase:
    sinks = {
        "jsonl": lambda: JsonLines(folder / "out"),
        "parquet": lambda: Parquet(folder / "out"),
        "joined": lambda: JsonLines(folder / "out", compact_bytes=100_000),
    }
    return RestoredCase(folder, sinks[kind], lambda: numbers_in(folder / "out"))


def numbers_in(directory: Path) -> list[int]:
    rows = [json.loads(line)["n"] for path in directory.glob("*.jsonl") for line in path.open()]
    rows += [n for path in directory.glob("*.parquet") for n in pl.read_parquet(path)["n"]]
    return sorted(rows)


def test_sqlite_keeps_what_it_has(tmp_path: Path) -> None:
    check_refused_and_skipped(sqlite_case(tmp_path))


def test_sqlite_takes_rows_again(tmp_path: Path) -> None:
    check_refused_and_written_again(sqlite_case(tmp_path))


def test_a_copy_that_is_not_behind_continues(tmp_path: Path) -> None:
    check_a_copy_of_what_the_sink_has_continues(sqlite_case(tmp_path))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "joined"])
def test_files_keep_what_they_have(kind: str, tmp_path: Path) -> None:
    check_refused_and_skipped(files_case(tmp_path, kind))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "joined"])
def test_files_are_moved_away_and_rows_written_again(kind: str, tmp_path: Path) -> None:
    case = files_case(tmp_path, kind)
    case.restore_old_copy()
    for _ in range(2):
        refused = case.refuse()
    assert f"move {tmp_path / 'out'} away" in str(refused.hint)
    (tmp_path / "out").rename(tmp_path / "former")
    case.run(2)
    assert numbers_in(tmp_path / "former") == BEFORE
    assert case.read() == list(range(6, case.numbers.count))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "joined"])
def test_a_copy_of_files_that_is_not_behind_continues(kind: str, tmp_path: Path) -> None:
    check_a_copy_of_what_the_sink_has_continues(files_case(tmp_path, kind))


def test_files_that_a_reader_took_away_are_remembered(tmp_path: Path) -> None:
    case = files_case(tmp_path, "jsonl")
    case.restore_old_copy()
    for path in (tmp_path / "out").glob("*.jsonl"):
        path.unlink()
    with pytest.raises(UserError, match="STATE_RESTORED"):
        case.run(1)
    assert case.read() == []


@pytest.mark.process
def test_a_state_that_came_by_the_epoch_of_the_sink_is_still_refused(tmp_path: Path) -> None:
    """Jobs fail alone, so the engine continues, until it has no records any more of the epochs that the sink has."""
    numbers, state, sink = Numbers(), tmp_path / "state", f"sqlite('{tmp_path}/out.db', 'numbers')"
    sql = f"CREATE JOB one AS SELECT n FROM numbers INTO {sink}; CREATE JOB two AS SELECT n FROM numbers"

    def run(epochs: int, *statements: str) -> Program:
        program = jobs_of(numbers, state, sql)
        engine = InlineEngine(program, state)
        try:
            for statement in statements:
                program.execute(statement)
            for _ in range(epochs):
                numbers.add(2)
                engine.step()
            engine.remove_old_state(2)
        finally:
            engine.close()
        return program

    run(3)
    subprocess.run(["cp", "-r", state, tmp_path / "copy"], check=True)
    run(3)
    has = select(tmp_path)
    subprocess.run(["rm", "-r", state], check=True)
    subprocess.run(["cp", "-r", tmp_path / "copy", state], check=True)
    for attempt in range(6):
        program = run(4, *(["RESUME JOB one"] if attempt else []))
        one = program.catalogue.jobs["one"].master
        assert one.life == "failed"
        assert "STATE_RESTORED" in str(one.error)
        assert select(tmp_path) == has
    assert program.ask("two") is not None, "the other job is not stopped"
    done = run_in_process("recover", "write-again", str(state), "one")
    assert (done.returncode, done.stderr) == (0, "")
    program = run(1, "RESUME JOB one")
    assert program.catalogue.jobs["one"].master.life == "running"
    run(1)
    assert select(tmp_path)[-2:] == [numbers.count - 2, numbers.count - 1]


@pytest.mark.process
def test_an_engine_restored_by_cp_is_refused(tmp_path: Path) -> None:
    """The engine itself, in a thread, killed by nothing: its directory is copied while it runs."""
    numbers, settings = Numbers(), settings_of(tmp_path)
    app = ps.app(
        "numbers", ps.output("all", numbers.stream.select("n"), Sqlite(tmp_path / "out.db", "numbers"))
    )
    with running(app, settings) as engine:
        numbers.add(4)
        wait_until(lambda: engine.last_epoch >= 0 and not engine.program.deliveries.lags(), "rows")
        subprocess.run(["cp", "-r", settings.state, tmp_path / "copy"], check=True)
        copied = engine.last_epoch
        for _ in range(3):
            last = engine.last_epoch
            numbers.add(4)
            wait_until(lambda last=last: engine.last_epoch > last, "another epoch")  # type: ignore[misc]
        wait_until(lambda: not engine.program.deliveries.lags(), "all rows")
        last = engine.last_epoch
    has = select(tmp_path)
    subprocess.run(["rm", "-r", settings.state], check=True)
    subprocess.run(["cp", "-r", tmp_path / "copy", settings.state], check=True)
    for _ in range(2):
        with pytest.raises(UserError, match=f"STATE_RESTORED.*up to epoch {last}"):
            Engine(app, settings).run()
    assert last > copied
    assert select(tmp_path) == has == list(range(16))


def test_a_sink_that_was_away_while_the_state_went_on_is_refused(tmp_path: Path) -> None:
    """The sink cannot be opened at the first start after the copy was restored, and nothing is emitted to it."""
    case = sqlite_case(tmp_path)
    case.restore_old_copy()
    cursors = json.loads((case.state / "results" / CURSORS).read_text())
    cursors |= {"through": 50, "unchecked": {"all": {case.make().describe(): 2}}}
    (case.state / "results" / CURSORS).write_text(json.dumps(cursors))
    case.refuse()


@pytest.mark.parametrize("step", ["recorded", "emitted", "committed"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "joined"])
def test_a_repeated_epoch_is_no_other_epoch(kind: str, step: str, tmp_path: Path) -> None:
    case = sqlite_case(tmp_path) if kind == "sqlite" else files_case(tmp_path, kind)
    case.run(1)
    cursors = case.state / "results" / CURSORS
    before = cursors.read_bytes()
    case.run(1)
    with crash_at(step, 2), pytest.raises(Crashed):
        case.run(1)
    cursors.write_bytes(before)  # a power loss may bring it back: sinks get again what the log has after it
    case.run(2)
    assert run_in_process("state", "rollback", str(case.state), "--to", "1").returncode == 0
    case.run(4)  # repeats what is recorded, and more
    assert case.read() == list(range(case.numbers.count))


def test_two_engines_on_copies_do_not_mix_their_rows(tmp_path: Path) -> None:
    """A copy is started while the engine still runs: whoever comes second to an epoch is refused."""
    case = sqlite_case(tmp_path)
    case.run(1)
    shutil.copytree(case.state, tmp_path / "copy")

    def start(state: Path) -> InlineEngine:
        app = ps.app("numbers", ps.output("all", case.numbers.stream.select("n"), case.make()))
        return InlineEngine(app, state)

    engine, other = start(case.state), start(tmp_path / "copy")
    try:
        case.numbers.add(2)
        engine.step()
        case.numbers.add(2)
        with pytest.raises(UserError, match=r"STATE_RESTORED.*write-again"):
            other.step()
    finally:
        engine.close()
        other.close()
    assert case.read() == [0, 1, 2, 3]


def test_a_sink_that_remembers_no_epochs_is_not_protected(tmp_path: Path) -> None:
    class Plain(Sink):
        def open(self, job: str, schema: dict[str, pl.DataType]) -> None: ...

        def write(self, epoch: int, rows: pl.DataFrame) -> bool:
            has.extend(rows["n"])
            return True

        def describe(self) -> str:
            return "a plain sink"

    has: list[int] = []
    case = RestoredCase(tmp_path, Plain, lambda: has)
    case.restore_old_copy()
    case.run(1)
    assert has == [*BEFORE, *range(6, 14)]


def test_nothing_is_decided_for_a_sink_that_was_not_refused(tmp_path: Path) -> None:
    case = sqlite_case(tmp_path)
    case.run(1)
    done = run_in_process("recover", "write-again", str(case.state), "all")
    assert (done.returncode, "NOTHING_TO_WRITE_AGAIN" in done.stderr) == (2, True)

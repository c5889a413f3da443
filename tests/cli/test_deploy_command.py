"""`penstock deploy` and `penstock jobs create --from`, from another process than the engine, which is also killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.job_client import JobClient
from tests.cli.test_jobs_commands import SCRIPT, Running, life

pytestmark = [pytest.mark.process, pytest.mark.timeout(300), pytest.mark.slow]

STREAM = """
import polars as pl
import penstock as ps
from words import loud

log = ps.generated(rate=2000, partitions=2)
clicks = ps.stream("clicks", log, ps.combined_log([ps.Cookie("session")]), time="time", lateness="1s")
"""
WORDS = "def loud(rows):\n    return rows.with_columns(rows['path'].str.to_uppercase())\n"
APP = (
    STREAM
    + """
shouted = clicks.map_batches(loud).select("path", "status")
counts = clicks.key_by("path").window("1s").count()
app = ps.app("shop", ps.output("shouted", shouted), ps.output("counts", counts))
"""
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start_one(*, master: str = "inline") -> Running:
        started.append(Running(tmp_path, "jobs.sql", SCRIPT, master=master))
        return started[-1]

    yield start_one
    for engine in started:
        engine.kill()


def write(folder: Path, text: str, words: str = WORDS) -> str:
    (folder / "words.py").write_text(words)
    (folder / "app.py").write_text(text)
    return str(folder / "app.py")


def rows_of(job: str, after: int = -1) -> Callable[[JobClient], Any]:
    def request_rows(client: JobClient) -> Any:
        answer = client.ask(job)
        return answer if answer is not None and answer.rows and answer.epoch > after else None

    return request_rows


def run_lines(engine: Running, *arguments: str, code: int = 0) -> list[str]:
    done = engine.run_command(*arguments)
    assert done.returncode == code, done.stderr
    return (done.stderr if code else done.stdout).splitlines()


def change_code_while_it_runs(start: Callable[..., Running], folder: Path, master: str) -> None:
    """Deploy, alter, kill between the command and its epoch, change the file, start again."""
    engine = start(master=master)
    engine.wait_for(rows_of("errors"))
    app = write(folder, APP)
    assert run_lines(engine, "deploy", app, "--dry-run")[0].startswith("created job shouted")
    with JobClient(engine.state) as client:
        assert life(client, "shouted") is None
    assert [line.split(";")[0] for line in run_lines(engine, "deploy", app)] == [
        "created job shouted",
        "created job counts",
    ]
    upper_case = engine.wait_for(rows_of("shouted"))
    assert all(path == path.upper() for path, _ in upper_case.rows)
    engine.wait_for(rows_of("counts"))

    write(folder, APP, WORDS.replace("upper", "lower"))
    assert run_lines(engine, "deploy", app) == [
        "altered job shouted; it needs no state",
        "job counts is unchanged; its state is kept",
    ]
    engine.kill()
    write(folder, "this is no Python", "nor is this")
    again = start(master=master)
    rows_of_shouted = rows_of(
        "shouted"
    )  # first those from before the kill, which came before the command's epoch

    def has_changed(client: JobClient) -> Any:
        result = rows_of_shouted(client)
        return result and all(path == path.lower() for path, _ in result.rows) and result

    changed = again.wait_for(has_changed)
    later = again.wait_for(rows_of("shouted", changed.epoch + 1))
    assert all(path == path.lower() for path, _ in later.rows)
    again.wait_for(rows_of("counts", upper_case.epoch + 2))
    with JobClient(again.state) as client:
        assert {life(client, job) for job in ("shouted", "counts", "errors", "popular")} == {"running"}


def test_a_file_is_deployed_changed_and_survives_a_kill(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    change_code_while_it_runs(start, tmp_path, "inline")


@pytest.mark.spark
def test_the_same_on_spark(start: Callable[..., Running], tmp_path: Path) -> None:
    change_code_while_it_runs(start, tmp_path, "local[2]")


def test_jobs_are_created_altered_and_pruned_from_the_command_line(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    engine = start()
    engine.wait_for(rows_of("errors"))
    app = write(tmp_path, APP)
    (line,) = run_lines(engine, "jobs", "create", "mine", "--from", f"{app}:counts")
    assert line == "created job mine; it runs from the next epoch on"
    engine.wait_for(rows_of("mine"))
    write(tmp_path, APP.replace('key_by("path")', 'key_by("status")'))
    (line,) = run_lines(engine, "jobs", "alter", "mine", "--from", f"{app}:counts", "--rebuild")
    assert line == "altered job mine; its state is rebuilt from the earliest events that the log still has"
    assert "app.py:counts" in "".join(run_lines(engine, "jobs", "list", "--json"))
    shown = "".join(run_lines(engine, "jobs", "show", "mine"))
    assert "reads stream clicks~5: status" in shown

    run_lines(engine, "deploy", app)
    write(tmp_path, APP.replace(', ps.output("counts", counts)', ""))
    assert run_lines(engine, "deploy", app, "--prune")[-1].startswith("dropped job counts")

    for arguments, condition in [
        (("jobs", "create", "x", "--from", app), "BAD_OPTION"),
        (("jobs", "create", "x"), "BAD_OPTION"),
        (("jobs", "create", "x", "SELECT 1", "--from", f"{app}:counts"), "BAD_OPTION"),
        (("jobs", "alter", "mine", "SET LIMIT 1", "--rebuild"), "BAD_OPTION"),
        (("jobs", "create", "x", "--from", f"{app}:nothing"), "NO_SUCH_QUERY"),
        (("jobs", "create", "x", "--from", f"{tmp_path}/none.py:counts"), "APP_FILE_MISSING"),
        (("deploy", str(tmp_path / "jobs.sql")), "NOT_PYTHON"),
    ]:
        assert f"[{condition}]" in "".join(run_lines(engine, *arguments, code=2))
    (tmp_path / "app.py").chmod(0o666)
    refused = "".join(run_lines(engine, "deploy", app, code=2))
    assert "[CODE_NOT_TRUSTED]" in refused
    assert "app.py" in refused

"""A SQL file is explained without being run, and its errors are reported with line and column."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from types import FunctionType

import pytest

from penstock.catalogue.jobs_app import JobsApp, jobs_app
from penstock.cli import commands as cli
from penstock.cli.load_app import load
from penstock.errors import UserError
from penstock.origin import here
from tests.regressions.harness import ev, stream

SCRIPT = """CREATE STREAM clicks FROM files('none/*.log', finished => true) FORMAT combined_log EVENT TIME time;
CREATE JOB hot AS
  SELECT path, count(*) AS n
  FROM clicks GROUP BY path, TUMBLE(time, INTERVAL '30' SECOND);
CREATE JOB all_paths AS SELECT path FROM clicks;
"""


def exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return int(caught.value.code or 0)


def test_every_job_of_a_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SCRIPT)
    assert exit_code(["explain", str(file)]) == 0
    output = capsys.readouterr().out
    assert "JOB hot\nemits path String, n Int64" in output
    assert "windows of 30s" in output
    assert "JOB all_paths\nemits path String" in output
    assert exit_code(["explain", str(file), "--form", "logical"]) == 2
    assert "BAD_OPTION" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (SCRIPT.replace("SELECT path, count", "SELECT pth, count"), "line 3, column 10, in job hot"),
        (SCRIPT.replace("SELECT path FROM", "SELECT pth FROM"), "line 5, column 32, in job all_paths"),
        (SCRIPT.replace("CREATE JOB all_paths", "CREATE JOB clicks"), "line 5, column 1, in job clicks"),
        (SCRIPT.replace("CREATE JOB all", "CREATE JB all"), "line 5, column 8"),
    ],
)
def test_an_error_in_a_file_is_reported_with_line_and_column(wrong: str, place: str) -> None:
    with pytest.raises(UserError) as caught:
        jobs_app("shop", wrong).explained()
    assert caught.value.where == place


def test_jobs_from_python_are_explained() -> None:
    clicks = stream([ev(0, user="a")], "clicks")
    counted = clicks.key_by("user").window("1m").count()
    output = jobs_app("shop", streams={"clicks": clicks}, queries={"counts": counted}).explained()
    assert [reply.name for reply in output] == ["counts"]
    assert "count Int64" in output[0].message


def test_explaining_a_query_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SCRIPT)
    assert exit_code(["sql", "--with", str(file), "EXPLAIN SELECT path FROM clicks"]) == 0
    assert capsys.readouterr().out == "emits path String\nreads stream clicks: path\n"
    assert exit_code(["sql", "--with", str(file), "EXPLAIN JOB hot"]) == 0
    assert "windows of 30s" in capsys.readouterr().out
    assert exit_code(["sql", ""]) == 2
    assert "NOT_A_QUERY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sql", "change", "place"),
    [
        ("EXPLAIN SELECT pth FROM clicks", ("", ""), "At: line 1, column 16."),
        ("EXPLAIN\n  SELEC path FROM clicks", ("", ""), "At: line 2, column 3."),
        (
            "EXPLAIN SELECT path FROM clicks",
            ("SELECT path, c", "SELECT pth, c"),
            "shop.sql, line 3, column 10, in job hot.",
        ),
        ("EXPLAIN SELECT path FROM clicks", ("JOB all", "JB all"), "shop.sql, line 5, column 8."),
    ],
)
def test_an_error_is_reported_with_its_place_in_the_text_that_has_it(
    sql: str, change: tuple[str, str], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SCRIPT.replace(*change) if change[0] else SCRIPT)
    assert exit_code(["sql", "--with", str(file), sql]) == 2
    assert place in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (SCRIPT.replace("SELECT path FROM", "SELECT pth FROM"), "line 5, column 32, in job all_paths"),
        (f"{SCRIPT}CREATE JOB b AS\n SELECT path FROM hot\n INTO jsonl('a'), jsnl('b')", "line 8, column 19, in job b"),
        (f"{SCRIPT}PAUSE JOB hot; RESUME JOB hot;\nPAUSE JOB hot; PAUSE JOB hot", "line 7, column 16"),
        (f"{SCRIPT}CREATE JOB c AS SELECT pth FROM hot", "line 6, column 24, in job c"),
        (f"{SCRIPT}ALTER JOB hot\nAS SELECT pth FROM clicks", "line 7, column 11, in job hot"),
        (f"{SCRIPT}ALTER JOB hot SET WHERE pth = 'a'", "line 6, column 1, in job hot"),
        (f"{SCRIPT}PAUSE JOB hot; DROP JOB warm", "line 6, column 16"),
        (f"{SCRIPT}CREATE STREAM s FROM fils('a')\nFORMAT combined_log", "line 6, column 22, in stream s"),
    ],
)  # fmt: skip
def test_an_error_at_the_start_or_in_a_command_is_reported_with_its_place(
    wrong: str, place: str, tmp_path: Path
) -> None:
    starting = JobsApp("shop", wrong, file="shop.sql").on(tmp_path / "starting")
    with pytest.raises(UserError) as caught:
        starting.start()
    assert caught.value.where == f"shop.sql, {place}"
    jobs = JobsApp("shop").on(tmp_path / "running")
    jobs.start()
    for execute in (jobs.execute, jobs.check):
        with pytest.raises(UserError) as caught:
            execute(wrong)
        assert caught.value.where == place


def test_an_error_names_the_file_when_it_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(SCRIPT.replace("SELECT path FROM", "SELECT pth FROM"))
    assert exit_code(["explain", str(file)]) == 2
    output = "".join(capsys.readouterr().err.split())
    assert "shop.sql,line5,column32,injoball_paths." in output
    app = load(file)
    assert isinstance(app, JobsApp)
    with pytest.raises(UserError, match=r"shop\.sql, line 5, column 32, in job all_paths"):
        app.on(tmp_path / "state").start()


def test_a_ranking_is_explained_by_the_column_that_it_emits() -> None:
    ranked = "SELECT path, {} FROM clicks GROUP BY path ORDER BY {} DESC LIMIT 5 WINDOWING 1 MINUTE"
    expected = {
        ("MAX(bytes) AS most, COUNT(*) AS n", "n"): "top 5 by greatest n",
        ("COUNT(*) AS n", "MAX(bytes)"): "top 5 by greatest value that it does not emit",
    }
    for columns, line in expected.items():
        job = f"CREATE JOB top AS {ranked.format(*columns)}"
        assert jobs_app("shop", SCRIPT + job).explained()[-1].message.splitlines()[-1] == line


def test_a_count_of_one_is_in_the_singular(tmp_path: Path) -> None:
    jobs = JobsApp("shop", SCRIPT).on(tmp_path)
    jobs.start()
    assert [reply.message for reply in jobs.execute("SHOW STREAMS; SHOW JOBS")] == ["1 stream", "2 jobs"]


def test_lines_of_libraries_are_not_reported_as_the_users(tmp_path: Path) -> None:
    def called_from(file: Path) -> str:
        names = {"here": here, "__name__": "other"}
        exec(compile("def call(what): return what()\nfound = call(here)", str(file), "exec"), names)
        return str(names["found"])

    assert called_from(tmp_path / "mine.py").startswith("mine.py:")
    assert called_from(tmp_path / "site-packages" / "typer" / "main.py") == ""
    found: list[str] = []
    thread = Thread(target=lambda: found.append(str(here())))
    thread.start()
    thread.join()
    assert found[0].startswith("test_explain.py:"), "frames of the threading module are skipped"
    thread = Thread(target=here_alone, args=(found,))
    thread.start()
    thread.join()
    assert found[1] == ""


#: a function as of Penstock itself, so that a thread that starts with it has no user code on its stack
here_alone = FunctionType(
    compile("def f(found): found.append(str(here()))", "<string>", "exec").co_consts[0],
    {"here": here, "str": str, "__name__": "penstock.thread"},
)

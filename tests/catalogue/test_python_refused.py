"""Python files that cannot become jobs are refused with file and line, and nothing changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.catalogue.code import MAX_BYTES, read_bundle
from penstock.errors import ExternalError, PenstockError, UserError
from tests.catalogue import kit
from tests.catalogue.python_kit import HEAD, Files, alter, create, deploy_file, running

GOOD = 'query = clicks.filter(pl.col("status") == 500).select("page")\n'
STAY = "CREATE JOB stay AS SELECT page FROM clicks"
#: the number of the first line after the head
FIRST = HEAD.count("\n") + 1


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", kit.events(40))


@pytest.mark.parametrize(
    ("text", "condition", "where"),
    [
        ("query = clicks.filter(\n", "APP_NOT_LOADED", f"app.py:{FIRST}"),
        ("other = clicks\n", "NO_SUCH_QUERY", "app.py"),
        ("query = 7\n", "NOT_A_QUERY", f"app.py:{FIRST}"),
        ("query = None\n", "NOT_A_QUERY", f"app.py:{FIRST}"),
        ('query = clicks.key_by("page")\n', "MISSING_AGGREGATE", "app.py"),
        ("\nimport nothing_of_this_name\nquery = clicks\n", "APP_NOT_LOADED", f"app.py:{FIRST + 1}"),
        ("query = 1 / 0\n", "APP_NOT_LOADED", f"app.py:{FIRST}"),
        ("raise SystemExit(1)\n", "APP_NOT_LOADED", f"app.py:{FIRST}"),
        ("\ndef query():\n    return 1 / 0\n", "APP_NOT_LOADED", f"app.py:{FIRST + 2}"),
        ("\ndef query(n):\n    return clicks\n", "NOT_A_QUERY", f"app.py:{FIRST + 1}"),
        ("def query():\n    return 'clicks'\n", "NOT_A_QUERY", "app.py"),
        ('query = clicks.filter(pl.col("pag") == "a")\n', "UNKNOWN_COLUMN", f"app.py:{FIRST}"),
        (
            "def first(rows):\n    return rows.with_columns(x=pl.lit(rows['page'][0]))\n\n"
            "query = clicks.map_batches(first, {'x': ps.String()})\n",
            "FAILS_ON_EMPTY_BATCH",
            f"app.py:{FIRST + 1}",
        ),
        ("query = clicks.map_batches(lambda rows: 7)\n", "FAILS_ON_EMPTY_BATCH", f"app.py:{FIRST}"),
        (
            "import threading\nLOCK = threading.Lock()\n\ndef locked(rows):\n    with LOCK:\n        return rows\n\n"
            "query = clicks.map_batches(locked)\n",
            "NOT_SENDABLE",
            f"app.py:{FIRST + 7}",
        ),
        ('query = ps.job("nobody", {"page": ps.String()})\n', "UNKNOWN_JOB", f"app.py:{FIRST}"),
        ('query = ps.job("stay", {"page": ps.Int64()})\n', "JOB_COLUMNS", f"app.py:{FIRST}"),
        ('query = ps.job("stay", {"user": ps.String()})\n', "JOB_COLUMNS", f"app.py:{FIRST}"),
        ('query = ps.app("a", ps.output("other", clicks))\n', "NOT_A_QUERY", f"app.py:{FIRST}"),
    ],
)
def test_a_file_that_cannot_become_a_job_is_refused_with_its_line(
    text: str, condition: str, where: str, files: Files, tmp_path: Path
) -> None:
    with running(tmp_path / "s", STAY, stream=files.stream) as (jobs, engine):
        create(jobs, "good", files.write(GOOD, "good.py"))
        before, stored = jobs.commands, sorted((tmp_path / "s" / "code").iterdir())
        file = files.write(text)
        for attempt in (lambda: create(jobs, "bad", file), lambda: alter(jobs, "good", file)):
            with pytest.raises(PenstockError) as refused:
                attempt()
            assert refused.value.condition == condition, refused.value.text()
            assert str(refused.value.where).startswith(where), refused.value.text()
        assert jobs.commands == before
        assert sorted((tmp_path / "s" / "code").iterdir()) == stored
        emitted = kit.emitted_rows(list(engine.steps()))
        assert emitted["good"] == [(e["page"],) for e in kit.events(40) if e["status"] == 500]


def test_the_name_and_the_language_of_a_job_are_checked(files: Files, tmp_path: Path) -> None:
    file = files.write(GOOD)
    with running(tmp_path / "s", STAY, stream=files.stream) as (jobs, _):
        cases: list[tuple[str, Callable[[], object]]] = [
            ("NAME_TAKEN", lambda: create(jobs, "stay", file)),
            ("NAME_TAKEN", lambda: create(jobs, "clicks", file)),
            ("BAD_NAME", lambda: create(jobs, "../up", file)),
            ("UNKNOWN_JOB", lambda: alter(jobs, "nobody", file)),
            ("JOB_OF_SQL", lambda: alter(jobs, "stay", file)),
            ("NO_APP", lambda: deploy_file(jobs, file)),
        ]
        for condition, attempt in cases:
            with pytest.raises(UserError) as refused:
                attempt()
            assert refused.value.condition == condition
        assert jobs.catalogue.jobs.keys() == {"stay"}


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ('lateness="2s"', 'lateness="5s"', "allowed lateness: 2 s, not 5 s"),
        ('"page": ps.String()', '"page": ps.Int64()', "column page: String, not Int64"),
        (", finished=True", "", "log: finished: True, not False"),
        ("clicks.jsonl", "other.jsonl", "log: files: "),
    ],
)
def test_a_stream_that_differs_from_the_engines_is_refused(
    old: str, new: str, detail: str, files: Files, tmp_path: Path
) -> None:
    with running(tmp_path / "s", stream=files.stream) as (jobs, _):
        file = files.write("query = clicks.select('user')\n")
        create(jobs, "same", file)
        file.write_text(file.read_text().replace(old, new))
        with pytest.raises(UserError) as refused:
            create(jobs, "other", file)
        assert refused.value.condition == "STREAM_DIFFERS"
        assert detail in str(refused.value.detail)
        assert str(refused.value.where).startswith("app.py:7")


@pytest.mark.parametrize(
    ("mode", "on"), [(0o664, "file"), (0o602, "file"), (0o775, "folder"), (0o777, "folder")]
)
def test_code_that_other_users_can_write_is_refused(mode: int, on: str, files: Files, tmp_path: Path) -> None:
    file = files.write(GOOD)
    (file if on == "file" else file.parent).chmod(mode)
    with running(tmp_path / "s", STAY, stream=files.stream) as (jobs, _):
        with pytest.raises(UserError) as refused:
            create(jobs, "bad", file)
        assert refused.value.condition == "CODE_NOT_TRUSTED"
        assert f"{mode:04o}" in str(refused.value.detail)
        assert "chmod go-w" in str(refused.value.hint)
        (file if on == "file" else file.parent).chmod(0o700)
        create(jobs, "good", file)


def test_links_and_modules_beside_a_file_are_checked_too(files: Files, tmp_path: Path) -> None:
    file = files.write("import beside\n" + GOOD)
    real = files.write("X = 1\n", "elsewhere/real.py", head=False)
    (file.parent / "beside.py").symlink_to(real)
    assert read_bundle(file).files.keys() == {"app.py", "beside.py"}
    real.parent.chmod(0o777)
    with pytest.raises(UserError, match="CODE_NOT_TRUSTED"):
        read_bundle(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_code_of_another_user_is_refused(files: Files) -> None:
    file = files.write(GOOD)
    os.chown(file, 12345, 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        read_bundle(file)
    os.chown(file, 0, 0)
    os.chown(file.parent, 12345, 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        read_bundle(file)


def test_files_that_are_not_python_are_refused(files: Files) -> None:
    for name, text, condition in [
        ("app.sql", "SELECT", "NOT_PYTHON"),
        ("nul.py", "x = '\0'", "APP_NOT_LOADED"),
        ("big.py", f"X = '{'x' * MAX_BYTES}'", "CODE_TOO_LARGE"),
    ]:
        with pytest.raises(UserError) as refused:
            read_bundle(files.write(text, name, head=False))
        assert refused.value.condition == condition
    for missing in (files.folder / "nobody.py", files.folder):
        with pytest.raises(UserError, match="APP_FILE_MISSING"):
            read_bundle(missing)


def test_the_error_names_a_file_that_cannot_be_read(files: Files) -> None:
    file = files.write("import beside\n" + GOOD)
    (file.parent / "beside.py").symlink_to(f"/proc/{os.getpid()}/mem")  # nobody can read its first page
    with pytest.raises(ExternalError) as refused:
        read_bundle(file)
    assert refused.value.condition == "APP_FILE_UNREADABLE"
    assert "beside.py" in refused.value.primary


def test_a_syntax_error_in_a_module_is_reported_with_its_line(files: Files) -> None:
    files.write("X = 1\nY = (\n", "beside.py", head=False)
    with pytest.raises(UserError) as refused:
        read_bundle(files.write("import beside\n" + GOOD))
    assert str(refused.value.where).startswith("beside.py:2")


def test_an_app_alone_cannot_read_jobs(files: Files, tmp_path: Path) -> None:
    import penstock as ps
    from penstock.testing.inline import run_inline

    app = ps.app("alone", ps.output("rows", ps.job("other", {"n": ps.Int64()})))
    with pytest.raises(UserError, match="READS_A_JOB"):
        run_inline(app, tmp_path / "s")


def test_a_broken_python_job_does_not_prevent_the_start(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s", STAY, stream=files.stream) as (jobs, _):
        create(jobs, "mine", files.write(GOOD))
    for manifest in (tmp_path / "s" / "code").glob("*/manifest.json"):
        manifest.unlink()
    with running(tmp_path / "s", STAY, stream=files.stream) as (jobs, engine):
        assert kit.life(jobs, "mine") == "failed"
        assert kit.emitted_rows(list(engine.steps())).keys() == {"stay"}
        alter(jobs, "mine", files.write(GOOD))
        assert kit.life(jobs, "mine") == "running"

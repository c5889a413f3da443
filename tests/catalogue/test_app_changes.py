"""An app whose file changes between two runs, or is deployed to the running engine, with jobs that commands created."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UserError
from tests.catalogue import kit
from tests.catalogue.app_kit import SQL, AppCase, write_sessions
from tests.catalogue.python_kit import Files, alter, deploy_file


def test_commands_to_an_output_that_has_left_the_app_have_no_effect(files: Files, tmp_path: Path) -> None:
    AppCase(tmp_path, files, "counts", "errors").run({2: "PAUSE JOB errors"})
    case = AppCase(tmp_path, files, "counts")
    case.run(drop_state=True)
    with case.running() as (jobs, _):
        assert list(jobs.catalogue.jobs) == ["counts"]


def test_a_refusal_names_the_state_of_the_app_and_not_that_of_created_jobs(
    files: Files, tmp_path: Path
) -> None:
    job = "CREATE JOB mine AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 1 HOURS"
    AppCase(tmp_path, files, "counts").run({2: job})
    case = AppCase(tmp_path, files, "counts", "sessions")
    with pytest.raises(UserError, match="STATE_OF_ANOTHER_QUERY") as refused, case.running():
        pass
    assert "dropped: nothing" in str(refused.value)
    assert "template-group" not in str(refused.value)
    case.run(drop_state=True)
    with case.running() as (jobs, _):
        assert kit.life(jobs, "mine") == "running"


def test_the_app_cannot_take_the_name_of_a_job_that_was_created(files: Files, tmp_path: Path) -> None:
    AppCase(tmp_path, files, "counts").run({2: SQL.format("errors")})
    case = AppCase(tmp_path, files, "counts", "errors")
    with pytest.raises(UserError, match="NAME_TAKEN"), case.running(drop_state=True):
        pass


@pytest.mark.slow
def test_jobs_keep_their_numbers_when_an_emptied_output_leaves_the_app(files: Files, tmp_path: Path) -> None:
    actions = {0: "EMPTY JOB errors", 1: SQL.format("x"), 5: SQL.format("y")}
    whole = AppCase(tmp_path / "whole", files, "counts", "errors")
    whole.run(actions)
    case = AppCase(tmp_path / "case", files, "counts", "errors")
    with case.running() as (jobs, engine):
        for epoch in range(5):
            if epoch in actions:
                jobs.execute(actions[epoch])
            engine.step()
    smaller = case.restart("counts")
    smaller.run({5: actions[5]}, drop_state=True)
    for job in ("x", "y"):
        assert smaller.rows(job) == whole.rows(job) != []


@pytest.mark.parametrize("fold_after", [0, 1_000])
def test_an_output_may_have_the_name_of_a_job_that_was_dropped(
    fold_after: int, files: Files, tmp_path: Path
) -> None:
    first = AppCase(tmp_path, files, "counts")
    with first.running(fold_after=fold_after) as (jobs, engine):
        jobs.execute(SQL.format("errors"))
        engine.step()
        jobs.execute("DROP JOB errors")
        for _ in range(3):
            engine.step()
        engine.remove_old_state(1)
    case = first.restart("counts", "errors")
    case.run(drop_state=True)
    assert case.lines("errors")


@pytest.mark.slow
def test_an_app_cannot_change_after_an_altered_output_kept_its_state(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files, "counts", "sessions")
    altered = write_sessions(case, 1, "kept.py")
    case.run({5: lambda jobs: alter(jobs, "sessions", altered, "sessions_")})
    larger = case.restart("counts", "sessions", "long")
    with pytest.raises(UserError, match=r"ALTERED_OUTPUT.*sessions"), larger.running(drop_state=True):
        pass
    with case.running() as (jobs, engine):  # as the hint of the error says
        jobs.execute("EMPTY JOB sessions")
        engine.step()
    larger.run(drop_state=True)
    with larger.running() as (jobs, _):
        assert kit.life(jobs, "sessions") == "running"


def test_deploying_a_file_alters_the_outputs_that_it_names(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files, "errors")
    file = files.write(
        'app = ps.app("more", ps.output("errors", clicks.filter(pl.col("status") == 500).select("user", "page"), '
        f'ps.jsonl({str(case.out / "errors")!r})), ps.output("users", clicks.select("user")))',
        "more.py",
    )
    case.run({2: lambda jobs: deploy_file(jobs, file)})
    assert len(case.lines("errors")) > 0
    assert {row[0] for _, row in case.rows("users")} <= {f"u{n}" for n in range(9)}


@pytest.mark.slow
def test_deploying_the_app_that_is_running_changes_nothing(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    outputs = ", ".join(
        f'ps.output("{name}", {name}, ps.jsonl({str(case.out / name)!r}))'
        for name in ("counts", "busy", "sessions", "long", "errors")
    )
    file = files.write(
        """
counts = clicks.key_by("page").window("5s").count()
busy = counts.filter(ps.col("count") > 2).select("page", "count")
all_sessions = clicks.key_by("user").session("2s").count()
sessions = all_sessions.filter(ps.col("count") > 0)
long = all_sessions.key_by("user").window("20s").count("n")
errors = clicks.filter(ps.col("status") >= 400).select("user", "page")
"""
        + f'app = ps.app("shop", {outputs})',
        "same.py",
    )
    replies: list[str] = []
    case.run({5: lambda jobs: replies.extend(deploy_file(jobs, file))})
    assert all("unchanged" in reply or "as it was" in reply for reply in replies), replies
    assert case.content() == undisturbed.content()

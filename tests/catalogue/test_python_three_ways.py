"""Three ways with a Python job that is created, altered and dropped: the files of the other jobs stay the same to the
byte, and a repeated epoch runs the code that it ran before, also when the file has changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.program import Program
from tests.catalogue import kit
from tests.catalogue.python_kit import (
    EVENT_BYTES,
    Files,
    alter,
    create,
    deploy_file,
    files_of_sinks,
    rows_in_sinks,
    running,
)

OTHERS = """
counts = clicks.key_by("page").window("5s").count()
sessions = clicks.key_by("user").session("2s").count()
app = ps.app("others", ps.output("counts", counts, ps.jsonl({out!r} + "/counts")),
             ps.output("sessions", sessions, ps.jsonl({out!r} + "/sessions")))
"""
SQL = """
CREATE JOB best AS SELECT user, SUM(bytes) AS b FROM clicks GROUP BY user ORDER BY b DESC LIMIT 3 WINDOWING 10 SECONDS
    INTO jsonl('{out}/best');
CREATE JOB errors AS SELECT user, page FROM clicks WHERE status >= 400 INTO jsonl('{out}/errors')
"""
TAGGED = """
class Tagged(ps.CustomOperator):
    def init_state(self):
        return {{"n": 0}}

    def process(self, batch, state, out, context):
        state["n"] += batch.height
        out.emit(batch.select("_time", "user", tag=pl.lit({tag!r})))
        return state

query = clicks.key_by("{key}").apply(Tagged(), {{"user": ps.String(), "tag": ps.String()}})
"""


class Case:
    """The same stream and jobs, run in some way into a directory of its own."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.state, self.out, self._files = folder / "state", folder / "out", files

    def create_others(self, jobs: Program) -> None:
        if not jobs.catalogue.jobs:
            file = self._files.write(OTHERS.format(out=str(self.out)), f"{self.state.parent.name}.py")
            deploy_file(jobs, file)
            jobs.execute(SQL.format(out=self.out))

    def write_job(self, tag: str, key: str = "user") -> Path:
        """Write the file of the job `tagged`."""
        return self._files.write(TAGGED.format(tag=tag, key=key), "tagged.py")

    def run(
        self,
        actions: Mapping[int, kit.Action],
        kill: tuple[str, int] = kit.NEVER,
        **options: Any,
    ) -> None:
        """Run until everything is read, or until the kill; each action is executed before its epoch."""
        with running(self.state, stream=self._files.stream, **options) as (jobs, engine):
            self.create_others(jobs)
            assert kit.run_epochs((jobs, engine), dict(actions), kill) == (kill != kit.NEVER)

    def content(self) -> dict[str, bytes]:
        return files_of_sinks(self.out)

    def rows(self, name: str) -> list[tuple[int, tuple[Any, ...]]]:
        """The rows that a job emitted, with their epochs."""
        with running(self.state, stream=self._files.stream) as (jobs, _):
            return sorted(kit.retained_rows(jobs, name))


@pytest.fixture(scope="module")
def undisturbed(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The other jobs alone."""
    case = Case(tmp_path_factory.mktemp("undisturbed"), files)
    case.run({})
    assert {name.split("/")[0] for name in case.content()} == {"counts", "sessions", "best", "errors"}
    return case


@pytest.fixture(scope="module")
def tagged_rows(files: Files, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows of the job that is created and altered, where it stays until the end and no engine is killed."""
    case = Case(tmp_path_factory.mktemp("altered"), files)
    case.run({epoch: action for epoch, action in job_changes(case).items() if epoch < 9})
    return case.rows("tagged")


def job_changes(case: Case) -> dict[int, kit.Action]:
    """Create a job, alter its code with its state kept, then to a state of another shape, pause, resume and drop it."""
    return {
        2: lambda jobs: create(jobs, "tagged", case.write_job("one")),
        4: lambda jobs: alter(jobs, "tagged", case.write_job("two")),
        6: lambda jobs: alter(jobs, "tagged", case.write_job("three", "page"), rebuild=True),
        7: "PAUSE JOB tagged",
        8: "RESUME JOB tagged",
        9: "DROP JOB tagged",
    }


def test_the_other_jobs_write_the_same_files(undisturbed: Case, files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run(job_changes(case))
    assert case.content() == undisturbed.content()


@pytest.mark.parametrize(("events", "slices"), [(7, 1), (53, 3)])
def test_the_other_jobs_emit_the_same_rows_with_other_epochs_and_slices(
    events: int, slices: int, undisturbed: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    actions = {
        epoch * 2 if events == 7 else epoch // 2: action for epoch, action in job_changes(case).items()
    }
    case.run(actions, epoch_units=events * EVENT_BYTES, slices=slices)
    assert rows_in_sinks(case.out) == rows_in_sinks(undisturbed.out)


@pytest.mark.parametrize("step", ["recorded", "sliced", "gathered", "delivered", "committed"])
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_kill_around_a_command_gives_the_same_bytes(
    step: str,
    epoch: int,
    undisturbed: Case,
    tagged_rows: list[tuple[int, tuple[Any, ...]]],
    files: Files,
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, files)
    actions = {at: action for at, action in job_changes(case).items() if at < 9}
    case.run(actions, (step, epoch), checkpoint_every=2)
    case.write_job("never")  # the file no longer holds the code that the epochs ran
    case.run({at: action for at, action in actions.items() if at > epoch}, slices=3, checkpoint_every=2)
    assert case.content() == undisturbed.content()
    assert case.rows("tagged") == tagged_rows
    assert {row[1] for _, row in tagged_rows} == {"one", "two", "three"}


def test_a_repeated_epoch_runs_the_code_it_ran_before(files: Files, tmp_path: Path) -> None:
    whole = Case(tmp_path / "whole", files)
    actions = {
        2: lambda jobs: create(jobs, "tagged", whole.write_job("old")),
        5: lambda jobs: alter(jobs, "tagged", whole.write_job("new")),
    }
    whole.run(actions)
    expected = whole.rows("tagged")
    assert {row[1] for _, row in expected} == {"old", "new"}
    for step in ("recorded", "sliced", "gathered", "delivered", "committed"):
        case = Case(tmp_path / step, files)
        case.run({2: actions[2]}, (step, 4), checkpoint_every=4)
        file = case.write_job("new")
        # the new code is accepted before the epoch with the old code is repeated
        with running(case.state, stream=files.stream, slices=1, checkpoint_every=4) as (jobs, engine):
            repeats = engine.next_epoch < 5
            alter(jobs, "tagged", file)
            file.unlink()
            first = engine.step()
            assert first is not None
            list(engine.steps())
            engine.runner.checkpoint()
        assert repeats or step == "committed"
        rows = [one for one in case.rows("tagged") if one[0] <= 4]
        assert rows == [one for one in expected if one[0] <= 4], step
        assert {row[1] for epoch, row in case.rows("tagged") if epoch > 4} <= {"old", "new"}
        assert sorted(row[0] for _, row in case.rows("tagged")) == sorted(row[0] for _, row in expected)

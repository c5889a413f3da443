"""Jobs beside an app: commands create, change and drop them while the engine runs. The files of the app's outputs stay
the same to the byte, and the jobs emit what they emit alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.errors import PenstockError, UserError
from penstock.query.compile import compile_app
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.app_kit import SQL, AppCase, build_app, job_changes
from tests.catalogue.python_kit import EVENT_BYTES, Files, create

pytestmark = pytest.mark.slow


def test_an_app_alone_writes_no_commands_and_has_the_plan_of_its_outputs(
    undisturbed: AppCase, files: Files
) -> None:
    assert not (undisturbed.state / "commands").exists()
    app = build_app(files, undisturbed.out)
    program = program_of(app, undisturbed.state)
    program.start()
    plan, alone = program.epochs.plan(0), compile_app(app)
    assert (plan.fingerprint, plan.jobs, program.summary) == (alone.fingerprint, None, alone.summary)
    assert [str(edge.source) for edge in plan.edges] == [str(edge.source) for edge in alone.edges]
    assert plan.identities == alone.identities


def test_creating_and_dropping_jobs_does_not_change_the_files_of_the_app(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    case.run(job_changes(case))
    assert case.content() == undisturbed.content()


def test_a_job_beside_an_app_emits_the_same_rows_as_alone(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path / "app", files)
    case.run({0: SQL.format("by_sql")})
    state = tmp_path / "alone"
    alone = Program("alone", state, streams={"clicks": files.stream}, begin=SQL.format("by_sql"))
    engine = InlineEngine(alone, state, epoch_units=20 * EVENT_BYTES)
    try:
        expected = kit.emitted_rows(list(engine.steps()))["by_sql"]
    finally:
        engine.close()
    assert sorted(row for _, row in case.rows("by_sql")) == sorted(expected) != []


def test_a_job_reads_an_output_of_the_app(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files)
    case.run({0: "CREATE JOB copy AS SELECT page, count FROM busy"})
    rows = [row for _, row in case.rows("copy")]
    assert sorted(rows) == sorted(row for _, row in case.rows("busy")) != []


def test_a_stream_that_outputs_of_the_app_read_cannot_be_dropped(files: Files, tmp_path: Path) -> None:
    with AppCase(tmp_path, files, "counts", "errors").running() as (program, _):
        with pytest.raises(UserError, match="STILL_READ") as refused:
            program.execute("DROP STREAM clicks")
        assert "counts, errors" in refused.value.primary
        program.execute("DROP JOB counts; DROP JOB errors; DROP STREAM clicks")
        assert not program.catalogue.streams


@pytest.mark.parametrize(("events", "slices"), [(7, 1), (53, 3)])
def test_the_app_emits_the_same_rows_with_other_epochs_and_slices(
    events: int, slices: int, undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    actions = {
        epoch * 2 if events == 7 else epoch // 2: action for epoch, action in job_changes(case).items()
    }
    if events == 53:
        actions = {0: job_changes(case)[1], 2: job_changes(case)[6]}
    case.run(actions, epoch_units=events * EVENT_BYTES, slices=slices)
    for name in ("counts", "busy", "sessions", "long", "errors"):
        assert sorted(case.lines(name)) == sorted(undisturbed.lines(name)) != []


@pytest.mark.parametrize("step", ["recorded", "sliced", "gathered", "emitted", "committed"])
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_kill_around_a_command_gives_the_same_bytes(
    step: str, epoch: int, undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    whole, case = AppCase(tmp_path / "whole", files), AppCase(tmp_path / "killed", files)
    whole.run({at: action for at, action in job_changes(whole).items() if at < 7})
    actions = {at: action for at, action in job_changes(case).items() if at < 7}
    case.run(actions, (step, epoch), checkpoint_every=2)
    case.run({at: action for at, action in actions.items() if at > epoch}, slices=3, checkpoint_every=2)
    assert case.content() == undisturbed.content()
    for job in ("by_sql", "by_user", "reads"):
        assert case.rows(job) == whole.rows(job) != []


def test_a_job_that_fails_is_paused_and_the_app_continues(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    broken = files.write(
        "def fails(frame):\n    if frame.height:\n        raise ValueError('no')\n    return frame.select('page')\n"
        "query = clicks.map_batches(fails, {'page': ps.String()})",
        "broken.py",
    )
    case.run({3: lambda jobs: create(jobs, "broken", broken), 4: SQL.format("by_sql")})
    assert case.content() == undisturbed.content()
    with case.running() as (jobs, _):
        assert kit.life(jobs, "broken") == "failed"


def test_an_error_in_the_code_of_the_only_output_of_an_app_ends_the_engine(
    files: Files, tmp_path: Path
) -> None:
    def fails(frame: Any) -> Any:
        raise ValueError("no")

    rows = files.stream.map_batches(fails, {"page": ps.String()})
    engine = InlineEngine(ps.app("bad", ps.output("rows", rows)), tmp_path)
    with pytest.raises(PenstockError, match="no"):
        engine.step()
    engine.close()


def test_the_last_job_with_state_beside_an_app_can_be_dropped(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    case.run({1: SQL.format("x"), 4: "DROP JOB x"})
    assert case.content() == undisturbed.content()
    assert not [id_ for id_ in StateDirectory(case.state).manifests.latest().collections if "template" in id_]
    case.run()

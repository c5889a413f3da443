"""The outputs of an app are jobs: commands pause, alter, empty and drop them while the engine runs, and each output
keeps the state that is its own."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.app_plan import AppPlan, keep_outputs, stages_owned
from penstock.catalogue.command import Reply
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.errors import UserError
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.app_kit import EVENTS, AppCase, build_app, write_sessions
from tests.catalogue.python_kit import EVENT_BYTES, Files, alter


@pytest.mark.slow
def test_an_output_that_is_paused_emits_nothing_until_it_is_resumed(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    case.run({4: "PAUSE JOB sessions; PAUSE JOB counts", 8: "RESUME JOB sessions; RESUME JOB counts"})
    assert case.content("sessions", "counts") == undisturbed.content("sessions", "counts")
    for name in ("sessions", "counts"):
        epochs = [int(file.stem.rpartition("-")[2]) for file in (case.out / name).glob("*.jsonl")]
        assert epochs
        assert not {4, 5, 6, 7} & set(epochs)
        assert max(epochs) >= 8
    # the stage that it shares with another output has processed all events meanwhile
    assert set(case.lines("counts")) < set(undisturbed.lines("counts"))


def test_dropping_an_output_removes_only_its_own_state(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    plan = AppPlan.of(build_app(files, tmp_path / "out")).plan
    (own,) = stages_owned(plan, {"long"})
    shared = set(keep_outputs(plan, {"sessions"}).stages)
    case.run({5: "DROP JOB long"})
    collections = StateDirectory(case.state).manifests.latest().collections
    assert own not in collections
    assert shared <= set(collections)
    assert case.content("long") == undisturbed.content("long")
    with case.running() as (jobs, engine):  # it stays dropped
        assert "long" not in jobs.catalogue.jobs
        assert engine.step() is None
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            jobs.execute("PAUSE JOB long")


def test_dropped_outputs_stay_dropped_when_commands_are_folded(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files)

    def program() -> Program:
        app = AppPlan.of(build_app(files, case.out))
        return Program("shop", case.state, app=app, fold_after=0)

    jobs = program()
    engine = InlineEngine(jobs, case.state, epoch_units=20 * EVENT_BYTES)
    jobs.execute("DROP JOB long; PAUSE JOB counts; EMPTY JOB sessions")
    list(engine.steps())
    engine.remove_old_state(1)
    engine.close()
    assert list((case.state / "commands").glob("*.snapshot"))
    again = program()
    engine = InlineEngine(again, case.state, epoch_units=20 * EVENT_BYTES)
    engine.close()
    assert list(again.catalogue.jobs) == ["counts", "busy", "sessions", "errors"]
    assert kit.life(again, "counts") == "paused"
    assert again.catalogue.jobs["sessions"].number > 0


def test_emptying_an_output_resets_its_state(undisturbed: AppCase, files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files)
    case.run({5: "EMPTY JOB busy"})
    assert case.content("busy") == undisturbed.content("busy")
    assert case.lines("busy") != undisturbed.lines("busy")
    # a window that was open at the reset lacks the events before it; later ones are complete
    assert case.lines("busy")[-3:] == undisturbed.lines("busy")[-3:]


def alter_sessions(case: AppCase, file: Path, query: str) -> Reply:
    """Run the app, with its output `sessions` altered before epoch 5."""
    replies: list[Reply] = []
    case.run({5: lambda jobs: replies.append(alter(jobs, "sessions", file, query))})
    return replies[0]


@pytest.mark.slow
def test_altering_an_output_keeps_the_state_that_is_its_own(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files, "counts", "sessions")
    whole = AppCase(tmp_path / "whole", files, "counts", "sessions")
    whole.run()
    file = write_sessions(case, 1, "altered.py")
    assert alter_sessions(case, file, "sessions_").state == "kept"
    assert case.content("sessions") == whole.content("sessions")
    before = whole.lines("sessions")
    after = case.lines("sessions")
    assert set(after) < set(before)  # a session that was open at the alter has all its events
    assert any('"count":1}' in line for line in after)
    again = AppCase(tmp_path, files, "counts", "sessions")
    again.run()  # the altered output finds its state under the app's identities
    assert again.lines("sessions") == after


def test_altering_an_output_to_a_state_of_another_shape_resets_it(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files, "counts", "sessions")
    file = write_sessions(case, 0, "pages.py")
    assert alter_sessions(case, file, "pages_").state == "anew"
    assert any('"/a"' in line for line in case.lines("sessions"))
    case.run()  # a restart misses no state: that of the app's plan was released


@pytest.mark.slow
def test_altering_an_output_that_shares_its_state_resets_it(
    undisturbed: AppCase, files: Files, tmp_path: Path
) -> None:
    case = AppCase(tmp_path, files)
    file = write_sessions(case, 1, "shared.py")
    assert alter_sessions(case, file, "sessions_").state == "anew"
    assert case.content("sessions") == undisturbed.content("sessions")


def test_the_recovery_of_an_output_can_be_changed_while_it_runs(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files)
    with case.running() as (jobs, engine):
        jobs.execute("ALTER JOB counts SET RECOVERY gap")
        engine.step()
        plan = jobs.epochs.plan(jobs.commands)
        assert (str(plan.outputs["counts"].recovery), plan.outputs["busy"].recovery) == ("gap", None)


def test_an_output_is_queried_and_shown_as_any_job(files: Files, tmp_path: Path) -> None:
    case = AppCase(tmp_path, files)
    case.run({3: "PAUSE JOB long", 4: "RESUME JOB long"})
    with case.running() as (jobs, _):
        result = jobs.ask("counts")
        assert result is not None
        assert result.rows.columns == ["window_start", "window_end", "page", "count"]
        assert [change.did for _, change in jobs.questions.versions("long")] == [
            "started with its app",
            "paused",
            "resumed",
        ]
        assert "1-" in jobs.execute("EXPLAIN JOB counts")[0].message
        shown = {row["job"]: row for row in jobs.execute("SHOW JOBS")[0].rows}
        assert shown["errors"]["into"] == [ps.jsonl(case.out / "errors").describe()]
        assert [row["stream"] for row in jobs.execute("SHOW STREAMS")[0].rows] == ["clicks"]


@pytest.mark.parametrize("reset", ["alter", "empty"])
def test_resetting_an_output_resets_its_ranking(reset: str, files: Files, tmp_path: Path) -> None:
    clicks = files.stream
    totals = clicks.key_by("page").running("1s").count().top(4, by="count")
    app = ps.app("tops", ps.output("tops", totals), ps.output("all", clicks.select("page")))
    file = files.write(
        'query = clicks.key_by("page").running("1s").count().map(least=-pl.col("count")).top(4, by="least")',
        "tops.py",
    )
    program = program_of(app, tmp_path / "state")
    engine = InlineEngine(program, tmp_path / "state", epoch_units=20 * EVENT_BYTES)
    list(zip(range(8), engine.steps(), strict=False))
    if reset == "alter":
        assert alter(program, "tops", file).state == "anew"
    else:
        program.execute("EMPTY JOB tops")
    list(engine.steps())
    result = program.ask("tops")
    assert result is not None
    last = result.rows.filter(pl.col("as_of") == pl.col("as_of").max())
    assert sorted(last["page"]) == ["/a", "/b", "/c", "/d"]
    assert last["count"].sum() < len(EVENTS) - 8 * 15, "events before the reset do not count"
    engine.close()


def test_a_stage_is_owned_once_the_output_that_shared_it_is_dropped(files: Files, tmp_path: Path) -> None:
    plan = AppPlan.of(build_app(files, tmp_path / "out")).plan
    assert stages_owned(keep_outputs(plan, {"counts", "errors"}), {"counts"})
    assert not stages_owned(plan, {"counts"})

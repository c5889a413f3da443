"""State of managed jobs: commands drop it, a changed plan does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.catalogue import planner
from penstock.errors import InternalError, UserError
from penstock.state.directory import StateDirectory
from tests.catalogue import kit
from tests.engine.changed_app import catch_error, states_of

SQL = """
CREATE JOB pages AS SELECT page, COUNT(*) AS n, SUM(bytes) AS bytes FROM clicks
    GROUP BY page WINDOWING 60 SECONDS;
CREATE JOB visits AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING SESSION 30 SECONDS;
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    with kit.running(tmp_path, kit.clicks(kit.events(120), finished=False), SQL) as (_, engine):
        assert list(engine.steps())
    assert len(states_of(tmp_path)) == 2
    return tmp_path


def run_again(state: Path, *commands: str, drop_state: bool = False) -> set[str]:
    """Start again, execute commands, run an epoch; return the ids of the states."""
    stream = kit.clicks(kit.events(160), finished=False)
    with kit.running(state, stream, drop_state=drop_state) as (program, engine):
        for text in commands:
            program.execute(text)
        assert list(engine.steps())
    return states_of(state)


def test_a_manifest_names_the_jobs_of_each_state(jobs: Path) -> None:
    manifest = StateDirectory(jobs).manifests.latest()
    (group,) = manifest.jobs
    assert manifest.jobs == {group: "2"}  # the stream has number 1
    assert manifest.identities.keys() == states_of(jobs) == {group, "j3.1-session-window"}


@pytest.mark.parametrize("at_once", [False, True], ids=["before-a-restart", "with-an-epoch"])
@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("DROP JOB pages", 1),
        ("DROP JOB visits", 1),
        ("PAUSE JOB pages", 2),
        ("EMPTY JOB pages", 2),
        (
            "ALTER JOB visits AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING SESSION 5 SECONDS",
            2,
        ),
    ],
)
def test_state_that_a_command_drops_needs_no_flag(jobs: Path, command: str, left: int, at_once: bool) -> None:
    if not at_once:  # the command is recorded, but no epoch has applied it
        with kit.running(jobs, kit.clicks(kit.events(120), finished=False)) as (program, _):
            program.execute(command)
    assert len(run_again(jobs, *([command] if at_once else []))) == left


def test_state_of_a_job_that_is_planned_differently_is_refused(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = next(id_ for id_ in states_of(jobs) if id_.startswith("template-group-"))
    monkeypatch.setattr(planner, "_GROUP", "other-group-")
    error = catch_error(lambda: run_again(jobs))
    assert isinstance(error, UserError)
    assert error.condition == "PLAN_DROPS_STATE"
    assert f"dropped: {group}" in str(error.detail)
    assert group in states_of(jobs)
    assert any(id_.startswith("other-group-") for id_ in run_again(jobs, drop_state=True))


def test_the_gather_drops_no_state_of_a_running_job(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = kit.clicks(kit.events(160), finished=False)
    with kit.running(jobs, stream) as (program, engine):
        monkeypatch.setattr(planner, "_GROUP", "other-group-")
        program.epochs._plans.clear()  # as if a plan changed without a reason
        with pytest.raises(InternalError) as found:
            list(engine.steps())
    assert found.value.condition == "PLAN_DROPS_STATE"

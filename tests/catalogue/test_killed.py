"""Jobs and commands on an engine that is killed: the results are those of an engine that never was."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.catalogue.program import Program
from penstock.epoch.kill_points import STEPS
from tests.catalogue import kit

pytestmark = pytest.mark.slow

SQL = """
CREATE JOB per_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB errors AS SELECT user, status FROM clicks WHERE status >= 400
"""
#: SQL, by the epoch before which it is executed
COMMANDS = {
    2: "CREATE JOB late AS SELECT page, SUM(bytes) AS b FROM clicks WHERE page = '/b' GROUP BY page "
    "WINDOWING 5 SECONDS",
    4: "ALTER JOB per_page SET WHERE status = 200",
    5: "CREATE JOB reader AS SELECT page, MAX(n) AS m FROM per_page GROUP BY page WINDOWING 30 SECONDS; "
    "FLUSH JOB late",
    7: "PAUSE JOB errors; EMPTY JOB late",
    9: "RESUME JOB errors; ALTER JOB late SET WHERE page = '/c'",
    11: "DROP JOB late; CREATE JOB other AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user "
    "WINDOWING 5 SECONDS",
}


def run_with_kills(
    state: Path, events: list[kit.Event], kills: dict[int, str], draw: random.Random, every: int = 1
) -> dict[str, Any]:
    """The results of all jobs, with an engine that is killed at some step of some epochs."""
    commands, results = dict(COMMANDS), {}
    while True:
        slices = draw.randrange(1, 4)
        options = {"epoch_units": 12, "slices": slices, "checkpoint_every": every}
        with kit.running(state, kit.clicks(events), SQL, **options) as (jobs, engine):
            try:
                epoch = engine.next_epoch
                while True:
                    if epoch in commands:
                        results |= _results(jobs, ["late"]) if epoch == max(COMMANDS) else {}
                        jobs.execute(commands.pop(epoch))
                    with kit.killed_at(kills.pop(epoch, kit.NEVER[0]), epoch):
                        report = engine.step()
                    if report is None:
                        return results | _results(jobs, ["per_page", "errors", "reader", "other"])
                    epoch = report.epoch + 1
            except kit.Killed:
                continue


def _results(jobs: Program, names: list[str]) -> dict[str, Any]:
    return {name: [(result.epoch, result.rows.rows()) for result in jobs.since(name, 0)] for name in names}


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # a case takes minutes to shrink, and names its seed
)
@given(seed=st.integers(0, 10**6))
def test_kills_at_any_step_change_no_results(seed: int) -> None:
    draw = random.Random(seed)
    events = kit.events(150, seed)
    kills = {epoch: draw.choice(STEPS) for epoch in draw.sample(range(13), 6)}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        undisturbed = run_with_kills(Path(one) / "s", events, {}, draw)
        assert run_with_kills(Path(other) / "s", events, kills, draw) == undisturbed
    assert all(undisturbed.values()), "every job emits something"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_with_kills(
        tmp_path_factory.mktemp("straight") / "state", kit.events(150), {}, random.Random(1)
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_in_the_epoch_of_a_command_changes_no_results(
    step: str, undisturbed: dict[str, Any], state: Path
) -> None:
    assert (
        run_with_kills(state, kit.events(150), dict.fromkeys(COMMANDS, step), random.Random(2)) == undisturbed
    )


@pytest.mark.parametrize("step", ["recorded", "sliced", "emitted"])
def test_a_kill_between_durable_manifests_changes_no_results(
    step: str, undisturbed: dict[str, Any], state: Path
) -> None:
    """Commands are repeated with the epochs that they belong to, and each result is there once."""
    assert (
        run_with_kills(state, kit.events(150), dict.fromkeys(COMMANDS, step), random.Random(2), every=4)
        == undisturbed
    )

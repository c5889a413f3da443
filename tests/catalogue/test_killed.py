"""Jobs and commands on an engine that is killed: what is told is what an engine tells that never was."""

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

BEGIN = """
CREATE JOB per_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS;
CREATE JOB errors AS SELECT user, status FROM clicks WHERE status >= 400
"""
#: what is said, by the epoch before which it is
SAID = {
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


def told(
    state: Path, found: list[kit.Event], kills: dict[int, str], draw: random.Random, every: int = 1
) -> dict[str, Any]:
    """All that jobs tell, with an engine that is killed at some step of some epochs."""
    said, gone = dict(SAID), {}
    while True:
        slices = draw.randrange(1, 4)
        options = {"epoch_units": 12, "slices": slices, "checkpoint_every": every}
        with kit.running(state, kit.clicks(found), BEGIN, **options) as (jobs, engine):
            try:
                epoch = engine.next_epoch
                while True:
                    if epoch in said:
                        gone |= _kept(jobs, ["late"]) if epoch == max(SAID) else {}
                        jobs.execute(said.pop(epoch))
                    with kit.killed_at(kills.pop(epoch, "nowhere"), epoch):
                        report = engine.step()
                    if report is None:
                        return gone | _kept(jobs, ["per_page", "errors", "reader", "other"])
                    epoch = report.epoch + 1
            except kit.Killed:
                continue


def _kept(jobs: Program, names: list[str]) -> dict[str, Any]:
    return {name: [(a.epoch, a.rows.rows()) for a in jobs.since(name, 0)] for name in names}


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
def test_killed_anywhere_and_resumed_nothing_shows(seed: int) -> None:
    draw = random.Random(seed)
    found = kit.events(150, seed)
    kills = {epoch: draw.choice(STEPS) for epoch in draw.sample(range(13), 6)}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        straight = told(Path(one) / "s", found, {}, draw)
        assert told(Path(other) / "s", found, kills, draw) == straight
    assert all(straight.values()), "every job tells something"


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return told(tmp_path_factory.mktemp("straight") / "state", kit.events(150), {}, random.Random(1))


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_the_epoch_of_a_command(step: str, straight: dict[str, Any], state: Path) -> None:
    assert told(state, kit.events(150), dict.fromkeys(SAID, step), random.Random(2)) == straight


@pytest.mark.parametrize("step", ["recorded", "sliced", "delivered"])
def test_killed_between_durable_manifests(step: str, straight: dict[str, Any], state: Path) -> None:
    """Commands are repeated with the epochs that took them in, and what jobs told is there once."""
    assert told(state, kit.events(150), dict.fromkeys(SAID, step), random.Random(2), every=4) == straight

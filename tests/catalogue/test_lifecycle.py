"""A job's life, and which coordinator manages it."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalogue.lifecycle import Master, Transition
from penstock.catalogue.master_placement import managed_jobs, manager_of
from penstock.errors import UserError

TRANSITIONS = st.lists(st.sampled_from(get_args(Transition)), max_size=30)


@given(TRANSITIONS)
def test_transitions_lead_only_to_the_lives_that_they_allow(transitions: list[Transition]) -> None:
    master = Master("j")
    for transition in transitions:
        before = master
        try:
            master = master.after(transition, "broken" if transition == "fail" else None)
        except UserError:
            assert master is before
            continue
        assert before.life != "gone", "a dropped job has no transitions"
        assert master.version == before.version + (transition != "flush")
        assert (master.life == "failed") == (master.error is not None)
        assert (
            master.life
            in {
                "pause": ("paused",),
                "resume": ("running",),
                "fail": ("failed",),
                "drop": ("gone",),
                "flush": ("running",),
                "alter": ("running", "paused"),
                "empty": ("running", "paused", "failed"),
            }[transition]
        )


def test_an_error_stays_until_the_job_runs_again() -> None:
    failed = Master("j").after("fail", "broken")
    assert failed.after("empty").error == "broken"
    assert failed.after("resume").error is None
    assert failed.after("alter").life == "running"
    with pytest.raises(UserError):
        failed.after("flush")


JOBS = [f"job_{number}" for number in range(1_000)]


def test_masters_are_spread_evenly_and_each_job_has_one() -> None:
    alive = ["a", "b", "c", "d"]
    loads = Counter(manager_of(job, alive) for job in JOBS)
    assert set(loads) == set(alive)
    assert max(loads.values()) < 1.3 * len(JOBS) / len(alive)
    assert sorted(job for name in alive for job in managed_jobs(name, JOBS, alive)) == sorted(JOBS)


def test_only_the_jobs_of_a_coordinator_that_left_move() -> None:
    before = {job: manager_of(job, ["a", "b", "c"]) for job in JOBS}
    after = {job: manager_of(job, ["a", "c"]) for job in JOBS}
    assert all(after[job] == owner for job, owner in before.items() if owner != "b")
    with pytest.raises(ValueError, match="alive"):
        manager_of("j", [])

"""Which coordinator manages which job."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalogue.master_placement import Roster, subject_of
from penstock.sql.parse import parse

JOBS = [f"job_{number}" for number in range(300)]
NAMES = st.sets(st.text("abcdefghij0123456789:-.", min_size=1, max_size=12), min_size=1, max_size=9)


@settings(max_examples=20, deadline=None)
@given(names=NAMES)
def test_jobs_are_spread_over_the_coordinators(names: set[str]) -> None:
    loads = Counter(Roster(name, frozenset(names - {name})).manager_of(job) for job in JOBS for name in names)
    assert set(loads) <= names
    share = len(JOBS) / len(names)
    for name in names:
        mine = Roster(name, frozenset(names - {name})).managed_jobs(JOBS)
        assert loads[name] == len(mine) * len(names), "all coordinators compute the same"
        assert abs(len(mine) - share) < 6 * (share + 1) ** 0.5, "about as many as the others have"


@settings(max_examples=20, deadline=None)
@given(names=NAMES, draw=st.randoms())
def test_only_the_jobs_of_a_coordinator_that_joins_or_leaves_move(
    names: set[str], draw: random.Random
) -> None:
    me = draw.choice(sorted(names))
    others = frozenset(names - {me})
    before = Roster(me, others)
    joined = Roster(me, others | {"new"})
    assert {job for job in JOBS if joined.manager_of(job) != before.manager_of(job)} == {
        job for job in JOBS if joined.manager_of(job) == "new"
    }
    assert joined.gained_jobs(before, JOBS) == []
    if others:
        gone = draw.choice(sorted(others))
        after = Roster(me, others - {gone})
        moved = {job for job in JOBS if after.manager_of(job) != before.manager_of(job)}
        assert moved == {job for job in JOBS if before.manager_of(job) == gone}
        assert set(after.gained_jobs(before, JOBS)) == {job for job in moved if after.manager_of(job) == me}


@pytest.mark.parametrize(
    ("sql", "subject"),
    [
        ("SHOW JOBS", None),
        ("EXPLAIN SELECT page FROM clicks", None),
        ("EXPLAIN JOB a", "a"),
        ("EXPLAIN JOB a; PAUSE JOB b; DROP JOB c", "b"),
        ("CREATE JOB j AS SELECT page FROM clicks", "j"),
        ("ALTER JOB j SET LIMIT 3", "j"),
        ("DROP STREAM s", "s"),
    ],
)
def test_the_subject_of_statements_is_the_first_name_they_change(sql: str, subject: str | None) -> None:
    assert subject_of(parse(sql)) == subject

"""The limits of a check: its deadline, a caller who leaves, and the size of plans."""

from __future__ import annotations

import pytest

from penstock.errors import UserError
from penstock.query.limits import CheckLimits, PlanSizes, cancel_when, check_time, check_within
from tests.sql.harness import events


def test_a_check_ends_at_its_deadline() -> None:
    with check_within(CheckLimits(seconds=-1)), pytest.raises(UserError, match="CHECK_TOO_LONG"):
        check_time()


def test_a_check_ends_when_its_caller_is_gone() -> None:
    gone: list[bool] = []
    with cancel_when(lambda: bool(gone)), check_within(CheckLimits()):
        check_time()
        gone.append(True)
        with pytest.raises(UserError, match="CHECK_CANCELLED"):
            check_time()


def test_without_a_check_there_is_no_deadline() -> None:
    check_time()


def test_a_part_of_a_plan_counts_as_often_as_it_is_read() -> None:
    rows = events("clicks", [])
    for _ in range(4):
        rows = rows.union(rows)
    with check_within(CheckLimits(plan_nodes=31)):
        PlanSizes().check(rows.node)
    with check_within(CheckLimits(plan_nodes=30)), pytest.raises(UserError, match="31 nodes, and the limit"):
        PlanSizes().check(rows.node)

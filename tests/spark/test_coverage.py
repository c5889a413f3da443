"""Every operator is in one of the queries that run on Spark and are killed there: a new one that is in none fails here.

Those are the golden query, the rest, and for what only jobs in SQL have, the jobs beside which Python jobs change.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import penstock as ps
import penstock.operators
from penstock.operators.contract import Operator
from penstock.operators.interval_join import IntervalJoin
from penstock.query import logical
from penstock.query.compile import compile_standalone
from tests import golden_query
from tests.catalogue import kit
from tests.catalogue.test_python_three_ways import SQL, WINDOWS
from tests.engine import golden_rest
from tests.golden import plans
from tests.plan_parts import classes, classes_of
from tests.transparency.executions import PARTITIONER

#: what is in none of them; each with the reason
WITHOUT: dict[str, str] = {
    "EventWindows": "the base of windows over events; each of those is an operator by itself",
    "KeyedJoin": "the base of joins by key",
    "PaneOperator": "the base of operators that keep panes",
    "StrictOperator": "the base of operators that take rows in strict order",
    "_FlushableAggregation": "the base of operators of many jobs",
    "StatelessNode": "the base of steps without state",
    "FromJob": "the rows of another job: `tests/catalogue/test_between.py`",
    "Previous": "the rows of another job in the epoch before: `tests/catalogue/test_between.py`",
}


def apps() -> list[ps.App]:
    return [golden_query.build(Path("out")), golden_rest.build(Path("out"), PARTITIONER)]


@cache
def operators() -> tuple[Operator, ...]:
    """The operators of both queries."""
    plans = (compile_standalone(app).plan for app in apps())
    return tuple(stage.operator for plan in plans for stage in plan.stages.values())


def job_operators(folder: Path) -> list[object]:
    """Those of jobs in SQL, as they share plans."""
    sql = f"{SQL};{WINDOWS}".format(out=folder / "out")
    return plans.planned(ps.jobs_app("jobs", sql, streams={"clicks": kit.clicks([])}), folder / "state")


def lacking(kinds: set[type], found: frozenset[type]) -> list[str]:
    return sorted(one.__name__ for one in kinds - found if one.__name__ not in WITHOUT)


def test_every_operator_is_in_a_query_that_is_killed_on_spark(tmp_path: Path) -> None:
    kinds = classes(penstock.operators, Operator)
    assert len(kinds) > 20
    assert lacking(kinds, classes_of([*operators(), *job_operators(tmp_path)])) == []


def test_every_step_of_a_query_is_in_one_that_is_killed_on_spark() -> None:
    nodes = frozenset(type(node) for app in apps() for node in logical.nodes_of(app))
    assert lacking(classes(logical, logical.Node), nodes) == []


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_every_kind_of_join_is_in_a_query_that_is_killed_on_spark(how: str) -> None:
    assert how in {one.how for one in operators() if isinstance(one, IntervalJoin)}


@pytest.mark.parametrize("order", ["epoch", "strict"])
def test_joins_of_both_orders_are_in_a_query_that_is_killed_on_spark(order: str) -> None:
    assert order in {one.order for one in operators() if isinstance(one, IntervalJoin)}


def test_nothing_is_excused_that_is_there(tmp_path: Path) -> None:
    found = {one.__name__ for one in classes_of([*operators(), *job_operators(tmp_path)])}
    assert [name for name in WITHOUT if name in found] == []

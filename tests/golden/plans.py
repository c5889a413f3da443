"""What the plan of a case is made of."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from penstock.operators.contract import Operator
from penstock.query.physical import Plan
from tests.golden.lives import Query, make_program
from tests.plan_parts import classes_of


def plan_of(query: Query, state: Path) -> Plan:
    """The plan of a query; of jobs, with all commands that the state directory holds."""
    program = make_program(query, state)
    program.join(begin=not (state / "commands").exists())
    return program.epochs.plan(program.commands)


def operators_of(query: Query, state: Path) -> dict[str, str]:
    """The stateful operators of a query by their ids, each with its kind."""
    return {name: kind_of(sub.operator) for name, sub in plan_of(query, state).stages.items()}


def planned(query: Query, state: Path) -> list[object]:
    """The stateful operators of a query, their partitioners, what ranks its outputs, and the logs it reads."""
    plan = plan_of(query, state)
    operators = [sub.operator for sub in plan.stages.values()]
    partitioners = [one for sub in plan.stages.values() for one in sub.partitioners]
    tops = [output.top for output in plan.outputs.values() if output.top is not None]
    logs = [scan.stream.log for scan in plan.scans.values()]
    return [*operators, *partitioners, *tops, *logs]


def kind_of(operator: Operator | type[Operator]) -> str:
    """What an operator's state is filed under: since format 2 its kind."""
    return operator.kind


def kinds_of(planned: Collection[object]) -> list[str]:
    """The kinds of all that plans are made of: operators, functions, windows, partitioners."""
    kinds = {getattr(part, "kind", None) for part in classes_of(planned)}
    return sorted(kind for kind in kinds if isinstance(kind, str))

"""Lives of an engine on a state directory: the one place here that knows how an engine is driven.

The engine runs in this process, without Spark, unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import penstock as ps
from penstock.engine.moves import Change
from penstock.engine.program import Fixed, Program
from penstock.jobs.app import JobsApp
from penstock.jobs.program import Jobs
from penstock.query.compile import compiled
from penstock.query.physical import Plan
from penstock.state.bucket_map import Maps
from penstock.testing.inline import InlineEngine

BUCKETS = 8
#: manifests that an archive holds: one to open, one to go back to
KEPT = 2

#: what a case runs
Query = ps.App | JobsApp
#: by epoch, the statements said before it
Commands = Mapping[int, str]
#: by epoch, the buckets that go to other slices before it; of all operators
Moves = Mapping[int, Mapping[int, int]]


def live(
    query: Query,
    state: Path,
    *,
    epochs: int | None = None,
    epoch_units: int = 1 << 40,
    slices: int = 2,
    checkpoint_every: int = 1,
    commands: Commands | None = None,
    moves: Moves | None = None,
) -> int:
    """Run some epochs, or until everything is read; returns how many."""
    program = _program(query, state)
    engine = InlineEngine(
        program,
        state,
        epoch_units=epoch_units,
        slices=slices,
        buckets=BUCKETS,
        checkpoint_every=checkpoint_every,
    )
    done = 0
    try:
        while epochs is None or done < epochs:
            if isinstance(program, Jobs) and (text := (commands or {}).get(engine.next_epoch)):
                program.say(text)
            if owners := (moves or {}).get(engine.next_epoch):
                engine.runner.remap(Change(_moved(engine.runner.maps, owners, _plan(program))))
            if engine.step() is None:
                break
            done += 1
        engine.runner.settle()
        if epochs is not None:
            engine.recycle(KEPT)
    finally:
        engine.close()
    return done


def _program(query: Query, state: Path) -> Program:
    return query.on(state) if isinstance(query, JobsApp) else Fixed(compiled(query))


def _plan(program: Program) -> Plan:
    return program.plan(program.commands)


def _moved(maps: Maps, owners: Mapping[int, int], plan: Plan) -> Maps:
    """Buckets of all operators to other slices, and one bucket of one operator by itself."""
    return maps.moved(None, owners).moved(next(iter(plan.subqueries)), {0: 3})


def plan_of(query: Query, state: Path) -> Plan:
    """The plan of a query; of jobs, with all commands that the state directory holds."""
    program = _program(query, state)
    if isinstance(program, Jobs):
        program.joined(begin=not (state / "commands").exists())
    return _plan(program)


def operators_of(query: Query, state: Path) -> dict[str, str]:
    """The stateful operators of a query by their ids, each with its kind."""
    return {name: kind_of(sub.operator) for name, sub in plan_of(query, state).subqueries.items()}


def planned(query: Query, state: Path) -> list[object]:
    """The stateful operators of a query, their partitioners, and what ranks its outputs."""
    plan = plan_of(query, state)
    operators = [sub.operator for sub in plan.subqueries.values()]
    partitioners = [one for sub in plan.subqueries.values() for one in sub.partitioners]
    tops = [output.top for output in plan.outputs.values() if output.top is not None]
    return [*operators, *partitioners, *tops]


def kind_of(operator: object) -> str:
    """What an operator's state is filed under, in format 1: its class's name."""
    kind = operator if isinstance(operator, type) else type(operator)
    return kind.__name__.lower()

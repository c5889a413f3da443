"""Lives of an engine on a state directory: the one place here that knows how an engine is driven.

The engine runs in this process, without Spark, unless a function says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock.engine.program import Fixed
from penstock.query.compile import compiled
from penstock.testing.inline import InlineEngine

BUCKETS = 8
#: manifests that an archive holds: one to open, one to go back to
KEPT = 2


def live(
    app: ps.App,
    state: Path,
    *,
    epochs: int | None = None,
    epoch_units: int = 1 << 40,
    slices: int = 2,
    checkpoint_every: int = 1,
) -> int:
    """Run some epochs, or until everything is read; returns how many."""
    engine = InlineEngine(
        Fixed(compiled(app)),
        state,
        epoch_units=epoch_units,
        slices=slices,
        buckets=BUCKETS,
        checkpoint_every=checkpoint_every,
    )
    done = 0
    try:
        while (epochs is None or done < epochs) and engine.step() is not None:
            done += 1
        engine.runner.settle()
        if epochs is not None:
            engine.recycle(KEPT)
    finally:
        engine.close()
    return done


def operators_of(app: ps.App) -> dict[str, str]:
    """The stateful operators of an app by their ids, each with its kind."""
    return {name: kind_of(sub.operator) for name, sub in compiled(app).subqueries.items()}


def planned(app: ps.App) -> list[object]:
    """The stateful operators of an app, their partitioners, and what ranks its outputs."""
    plan = compiled(app)
    operators = [sub.operator for sub in plan.subqueries.values()]
    partitioners = [one for sub in plan.subqueries.values() for one in sub.partitioners]
    tops = [output.top for output in plan.outputs.values() if output.top is not None]
    return [*operators, *partitioners, *tops]


def kind_of(operator: object) -> str:
    """What an operator's state is filed under, in format 1: its class's name."""
    kind = operator if isinstance(operator, type) else type(operator)
    return kind.__name__.lower()

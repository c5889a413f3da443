"""The steps of a pattern: each has a name and a condition over an event and the events that earlier steps took.

Stages are the steps as the matcher needs them. They evaluate conditions for batches of (event, partial match) pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl


@dataclass(frozen=True, eq=False, repr=False)
class PatternStep:
    """A condition on an event; `absent`: no such event may come here. `"step.column"` is a column of the event that an
    earlier step took."""

    kind: ClassVar[str] = "pattern-step"
    state_version: ClassVar[int] = 1

    name: str
    condition: pl.Expr
    absent: bool = False

    def __repr__(self) -> str:
        return f"step({self.name!r}, {self.condition}{', absent' if self.absent else ''})"

    def references(self, earlier: Sequence[str]) -> dict[str, tuple[str, str]]:
        """The names in the condition that are columns of an earlier step's event: name to (step, column)."""
        found = {}
        for name in self.condition.meta.root_names():
            step, dot, column = name.partition(".")
            if dot and step in earlier:
                found[name] = (step, column)
        return found

    def own_columns(self, earlier: Sequence[str]) -> set[str]:
        """The columns of the event itself that the condition reads."""
        return set(self.condition.meta.root_names()) - self.references(earlier).keys()


def step(name: str, condition: pl.Expr, *, absent: bool = False) -> PatternStep:
    """One step of a pattern: an event for which the condition holds; with `absent`, no such event may come.

    The condition is over the event's columns, and with `prev` over those of events that earlier steps took. A
    null condition does not hold.
    """
    return PatternStep(name, condition, absent)


def prev(name: str, column: str) -> pl.Expr:
    """In a step's condition: a column of the event that the earlier step of this name took."""
    return pl.col(f"{name}.{column}")


@dataclass(frozen=True)
class PatternStage:
    """What a partial match waits for: an event that is `wanted` (None: the end of its time), with no `unwanted` event
    before it."""

    wanted: PatternStep | None
    unwanted: tuple[PatternStep, ...]
    #: the names in these conditions that are columns of an earlier step's event
    references: dict[str, tuple[str, str]]
    #: the columns of the event that these conditions read
    own: tuple[str, ...]

    def holds(self, frame: pl.DataFrame) -> pl.DataFrame:
        """For each row whether the event is wanted, and whether it is unwanted."""
        wanted = pl.lit(False) if self.wanted is None else self.wanted.condition.fill_null(False)
        unwanted = pl.any_horizontal(pl.lit(False), *(s.condition.fill_null(False) for s in self.unwanted))
        return frame.with_columns(_wanted=wanted, _unwanted=unwanted).select("_wanted", "_unwanted")


def build_stages(steps: Sequence[PatternStep]) -> list[PatternStage]:
    """The stages of a pattern: one per step that takes an event, and a last one if the last step is an absence."""
    stages: list[PatternStage] = []
    unwanted: list[PatternStep] = []
    taken: list[str] = []
    for one in steps:
        if one.absent:
            unwanted.append(one)
            continue
        stages.append(_stage(one, unwanted, taken))
        taken.append(one.name)
        unwanted = []
    if unwanted:
        stages.append(_stage(None, unwanted, taken))
    return stages


def _stage(wanted: PatternStep | None, unwanted: Sequence[PatternStep], taken: Sequence[str]) -> PatternStage:
    conditions = [*unwanted, *([] if wanted is None else [wanted])]
    references = {name: place for one in conditions for name, place in one.references(taken).items()}
    own = sorted({name for one in conditions for name in one.own_columns(taken)})
    return PatternStage(wanted, tuple(unwanted), references, tuple(own))

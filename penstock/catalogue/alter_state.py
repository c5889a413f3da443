"""Decides what ALTER does to the state of a job: it is kept, starts empty, or is rebuilt from the log. Pure.

State is kept if the signatures of both queries are equal (`CompiledJob.signature`, from kinds, keys, windows and
aggregates) and every operator reads the state that the former one wrote.
"""

from __future__ import annotations

from penstock.catalogue.command import StateOutcome
from penstock.catalogue.compiled_job import CompiledJob
from penstock.operators.identity import reads_state_of

_OUTCOMES: dict[StateOutcome, str] = {
    "kept": "its state is kept",
    "anew": "its state needs another shape and starts empty, with the next epoch",
    "rebuilt": "its state is rebuilt from the earliest events that the log still has",
}
STATE_LOST = "its state was dropped when it failed; it starts empty, with the next epoch"
NO_STATE = "it needs no state"


def decide_state(
    old: CompiledJob | None, new: CompiledJob, *, rebuild: bool = False
) -> tuple[StateOutcome, str]:
    """What happens to a job's state when it is altered from one query to another, and a text for people. `old` is None
    where the state was dropped."""
    outcome: StateOutcome = "kept"
    if old is None or not can_continue(old, new):
        outcome = "rebuilt" if rebuild else "anew"
    return outcome, NO_STATE if new.is_stateless else STATE_LOST if old is None else _OUTCOMES[outcome]


def can_continue(old: CompiledJob, new: CompiledJob) -> bool:
    """Whether a query can continue with the state of another."""
    if new.signature != old.signature:
        return False
    if new.plan is None or old.plan is None:
        return True
    pairs = zip(old.plan.stages.values(), new.plan.stages.values(), strict=True)
    return all(reads_state_of(now.operator, then.operator) for then, now in pairs)

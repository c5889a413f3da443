"""What becomes of each output in the epochs after the last durable manifest, as its recovery semantics ask. Pure.

Receives the semantics of the engine and of the outputs of a plan; hands, for every epoch that is repeated, the outputs
it is left out for, and the rows that are offered to sinks.

State that outputs share is as the strictest of them asks: where all lose events no epoch is repeated, else all are, and
only what an output has for itself gets no events (`Plan.rested`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.ha.schemes import SEMANTICS, Semantics, SemanticsFacts
from penstock.query.physical import OutputPlan, Plan
from penstock.state.manifest import Manifest


@dataclass(frozen=True)
class Fates:
    """The fates of outputs after one coming back; those of an engine that has nothing to come back to are precise."""

    #: of outputs that say nothing themselves
    default: Semantics = Semantics.precise
    #: the epochs up to this one are repeated, and left out for these outputs
    through: int = -1
    losing: frozenset[str] = frozenset()
    #: the state to begin with, where it is not that of the last manifest
    begin: Manifest | None = None
    #: those that others need in some of these epochs: they rest in none, since what they remember goes through all
    needed: frozenset[str] = frozenset()

    def of(self, output: OutputPlan) -> Semantics:
        """What an output may lose or repeat."""
        return output.recovery or self.default

    def all_lose(self, plans: Iterable[Plan]) -> bool:
        """Whether no output of these plans needs the epochs to be repeated; nor a job that waits, whose state is part
        of what is left as it was."""
        found = {one for plan in plans for one in plan.recoveries.values()} or {None}
        return all(self._may(one).loses_events for one in found)

    def all_forget(self, plan: Plan) -> bool:
        """Whether all state may be lost: that of every output, and of every job that waits."""
        return all(self._may(one).loses_state for one in {None, *plan.recoveries.values()})

    def lose(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that an epoch is left out for. What one lost is what it was to lose by then and in the end."""
        if epoch > self.through:
            return frozenset()
        return frozenset(
            n for n in self.losing & plan.outputs.keys() if self._may(plan.outputs[n].recovery).loses_events
        )

    def repeat(self, plan: Plan) -> frozenset[str]:
        """The outputs that are offered again what they have."""
        repeats = (n for n, output in plan.outputs.items() if SEMANTICS[self.of(output)].repeats_results)
        return frozenset(repeats)

    def rest(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that get no events in an epoch, as far as they have state of their own; and the jobs that wait
        and keep none from it."""
        lost = self.lose(epoch, plan)
        if not lost:
            return lost
        waiting = {name for name, one in plan.waiting.items() if self._may(one).loses_events}
        return (lost | waiting) - self.needed

    def losing_in(self, plan: Plan) -> frozenset[str]:
        """The outputs of a plan that lose events."""
        found = plan.outputs.items()
        return frozenset(name for name, output in found if self._may(output.recovery).loses_events)

    def forgetting_in(self, plan: Plan) -> frozenset[str]:
        """The outputs and the waiting jobs of a plan that lose their state too."""
        return frozenset(name for name, one in plan.recoveries.items() if self._may(one).loses_state)

    def _may(self, said: Semantics | None) -> SemanticsFacts:
        return SEMANTICS[said or self.default]


@dataclass(frozen=True)
class Offer:
    """An epoch's rows: what goes to the sinks, and what is kept for those who ask, or read it an epoch later."""

    rows: Mapping[str, pl.DataFrame]
    kept: Mapping[str, pl.DataFrame]
    #: rows of outputs that the epoch is left out for, where they were worked out all the same
    withheld: Mapping[str, int]
    #: whether there are outputs that are offered what they have
    again: bool = False


def offer(
    rows: Mapping[str, pl.DataFrame], fates: Fates, plan: Plan, lost: frozenset[str], told_before: bool
) -> Offer:
    """What becomes of an epoch's rows; `told_before`: the sinks are known to have them."""
    offered = fates.repeat(plan) if told_before else frozenset(plan.outputs)
    read = frozenset() if plan.jobs is None else plan.jobs.previous.keys()
    return Offer(
        {name: told for name, told in rows.items() if name in offered - lost},
        {name: told for name, told in rows.items() if name not in lost or name in read},
        {name: rows[name].height if name in rows else 0 for name in lost},
        again=told_before and bool(offered),
    )


def answers_kept(before: Manifest, after: Manifest, lost: frozenset[str]) -> Manifest:
    """The state after an epoch, in which the last answer of outputs that it is left out for is that of before."""
    if not lost:
        return after
    answers = {name: answer for name, answer in after.last_results.items() if name not in lost}
    answers |= {name: answer for name, answer in before.last_results.items() if name in lost}
    return replace(after, last_results=answers)

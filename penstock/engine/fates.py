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

from penstock.ha.schemes import SEMANTICS, Semantics
from penstock.query.physical import OutputPlan, Plan
from penstock.state.manifest import Manifest


@dataclass(frozen=True)
class Fates:
    """The fates of outputs after one coming back; those of an engine that has nothing to come back to are precise."""

    #: of outputs that say nothing themselves
    default: Semantics = Semantics.precise
    #: the epochs up to this one are repeated, and left out for these outputs
    upto: int = -1
    losing: frozenset[str] = frozenset()
    #: the state to begin with, where it is not that of the last manifest
    begin: Manifest | None = None

    def of(self, output: OutputPlan) -> Semantics:
        """What an output may lose or repeat."""
        return output.recovery or self.default

    def all_lose(self, plans: Iterable[Plan]) -> bool:
        """Whether no output of these plans needs the epochs to be repeated."""
        found = {one or self.default for plan in plans for one in plan.recoveries} or {self.default}
        return all(SEMANTICS[one].loses_events for one in found)

    def lose(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that an epoch is left out for. What one lost is what it was to lose by then and in the end."""
        if epoch > self.upto:
            return frozenset()
        return frozenset(
            name for name in self.losing & plan.outputs.keys() if self._loses(plan.outputs[name])
        )

    def repeat(self, plan: Plan) -> frozenset[str]:
        """The outputs that are offered again what they have."""
        repeats = (n for n, output in plan.outputs.items() if SEMANTICS[self.of(output)].repeats_results)
        return frozenset(repeats)

    def losing_in(self, plan: Plan) -> frozenset[str]:
        """The outputs of a plan that lose events."""
        return frozenset(name for name, output in plan.outputs.items() if self._loses(output))

    def forgetting_in(self, plan: Plan) -> frozenset[str]:
        """The outputs of a plan that lose their state too."""
        found = plan.outputs.items()
        return frozenset(name for name, output in found if SEMANTICS[self.of(output)].loses_state)

    def _loses(self, output: OutputPlan) -> bool:
        return SEMANTICS[self.of(output)].loses_events


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
    answers = {name: answer for name, answer in after.answers.items() if name not in lost}
    answers |= {name: answer for name, answer in before.answers.items() if name in lost}
    return replace(after, answers=answers)

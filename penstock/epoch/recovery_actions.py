"""Decides what happens to each output in the epochs after the last durable manifest: replay, skip or reset. Pure.

It depends on the recovery semantics of the engine and of the outputs. For every epoch that is repeated it gives the
outputs that skip it, and the rows that sinks receive.

State that outputs share follows the strictest of them: where all may lose events no epoch is repeated. Else all epochs
are, and only the state that an output has for itself gets no events (`Plan.idle_outputs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.ha.schemes import SEMANTICS, Semantics, SemanticsFacts
from penstock.query.physical import OutputPlan, Plan
from penstock.state.manifest import Manifest


@dataclass(frozen=True)
class RecoveryActions:
    """The actions after one recovery. Without a recovery every output is precise."""

    #: of outputs that declare none themselves
    default: Semantics = Semantics.precise
    #: the epochs up to this one are repeated, and these outputs skip them
    last_epoch: int = -1
    skipping: frozenset[str] = frozenset()
    #: the state to start with, where it is not that of the last manifest
    initial: Manifest | None = None
    #: outputs that others need in some of these epochs: their state gets the events of all epochs
    needed: frozenset[str] = frozenset()

    def semantics_of(self, output: OutputPlan) -> Semantics:
        """What a recovery may do to an output."""
        return output.recovery or self.default

    def all_skip(self, plans: Iterable[Plan]) -> bool:
        """Whether no output of these plans needs the epochs to be repeated; nor a waiting job, whose state is part of
        what stays as it was."""
        semantics = {one for plan in plans for one in plan.recoveries.values()} or {None}
        return all(self._facts(one).loses_events for one in semantics)

    def all_reset(self, plan: Plan) -> bool:
        """Whether all state may be lost: that of every output, and of every waiting job."""
        return all(self._facts(one).loses_state for one in {None, *plan.recoveries.values()})

    def skipped_outputs(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that skip an epoch: those that may lose events by the epoch's plan and by the last one."""
        if epoch > self.last_epoch:
            return frozenset()
        return frozenset(
            name
            for name in self.skipping & plan.outputs.keys()
            if self._facts(plan.outputs[name].recovery).loses_events
        )

    def redelivered_outputs(self, plan: Plan) -> frozenset[str]:
        """The outputs whose sinks receive again what they have."""
        outputs = plan.outputs.items()
        return frozenset(n for n, one in outputs if SEMANTICS[self.semantics_of(one)].repeats_results)

    def suspended_outputs(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs whose own state gets no events in an epoch, and waiting jobs that keep none of it."""
        skipped = self.skipped_outputs(epoch, plan)
        if not skipped:
            return skipped
        waiting = {name for name, one in plan.waiting.items() if self._facts(one).loses_events}
        return (skipped | waiting) - self.needed

    def outputs_to_skip(self, plan: Plan) -> frozenset[str]:
        """The outputs of a plan that lose events."""
        outputs = plan.outputs.items()
        return frozenset(name for name, output in outputs if self._facts(output.recovery).loses_events)

    def outputs_to_reset(self, plan: Plan) -> frozenset[str]:
        """The outputs and the waiting jobs of a plan that lose their state too."""
        return frozenset(name for name, one in plan.recoveries.items() if self._facts(one).loses_state)

    def _facts(self, declared: Semantics | None) -> SemanticsFacts:
        return SEMANTICS[declared or self.default]


@dataclass(frozen=True)
class DeliveryPlan:
    """What happens to an epoch's rows."""

    to_sinks: Mapping[str, pl.DataFrame]
    #: for questions, and for jobs that read them an epoch later
    to_keep: Mapping[str, pl.DataFrame]
    #: how many rows outputs would have had that skip the epoch
    withheld_rows: Mapping[str, int]
    #: whether sinks receive again what they have
    redelivers: bool = False


def plan_delivery(
    rows: Mapping[str, pl.DataFrame],
    actions: RecoveryActions,
    plan: Plan,
    skipped: frozenset[str],
    already_delivered: bool,
) -> DeliveryPlan:
    """Decide what happens to an epoch's rows. `already_delivered`: the sinks are known to have them."""
    delivered = actions.redelivered_outputs(plan) if already_delivered else frozenset(plan.outputs)
    read = frozenset() if plan.jobs is None else plan.jobs.previous.keys()
    return DeliveryPlan(
        {name: frame for name, frame in rows.items() if name in delivered - skipped},
        {name: frame for name, frame in rows.items() if name not in skipped or name in read},
        {name: rows[name].height if name in rows else 0 for name in skipped},
        redelivers=already_delivered and bool(delivered),
    )


def keep_last_results(before: Manifest, after: Manifest, skipped: frozenset[str]) -> Manifest:
    """The state after an epoch, with the last results before it for outputs that skip it."""
    if not skipped:
        return after
    results = {name: result for name, result in after.last_results.items() if name not in skipped}
    results |= {name: result for name, result in before.last_results.items() if name in skipped}
    return replace(after, last_results=results)

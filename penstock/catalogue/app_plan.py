"""Compile an app to one plan, in which outputs share operators, and take parts of that plan. Pure.

An engine that starts with an app has its outputs as jobs in the catalogue. They share this plan as long as no command
changes them: an output that is dropped, emptied or altered leaves it, and the others continue as before.

Invariant: state that another output depends on is what it would be if this output had stayed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from penstock.origin import Origin
from penstock.query.compile import compile_standalone
from penstock.query.logical import App, Output, Source, nodes_of
from penstock.query.physical import Plan
from penstock.query.steps import Edge, EdgeTarget, FilterStep

#: a step put before those of an edge: no row passes
_PASS_NONE = FilterStep(pl.lit(False), Origin("", 0))


@dataclass(frozen=True, eq=False)
class AppPlan:
    """A compiled app. Its outputs as they are optimised, its streams as they are written."""

    plan: Plan
    outputs: Mapping[str, Output] = field(default_factory=dict)
    streams: Mapping[str, Source] = field(default_factory=dict)
    #: its outputs as they are written
    written: Mapping[str, Output] = field(default_factory=dict)

    @staticmethod
    def of(app: App) -> AppPlan:
        """Compile an app."""
        made = compile_standalone(app)
        outputs = {output.name: output for output in made.optimised.outputs}
        streams = {node.stream.name: node for node in nodes_of(app) if isinstance(node, Source)}
        written = {output.name: output for output in app.outputs}
        return AppPlan(made.plan, outputs, streams, written)

    @cached_property
    def outputs_reached(self) -> Mapping[str, frozenset[str]]:
        """The outputs to which the rows of each stage lead, however far away."""
        return outputs_reached(self.plan)

    def owns_stages(self, output: str) -> bool:
        """Whether no other output needs the state that an output depends on."""
        return all(outputs == {output} for outputs in self.outputs_reached.values() if output in outputs)

    def stages_of(self, output: str) -> list[str]:
        """The stages that an output depends on, in their order."""
        return [stage for stage, outputs in self.outputs_reached.items() if output in outputs]

    def level_of(self, output: str) -> int:
        """The level at which the rows of an output are made."""
        makers = [edge.source for edge in self.plan.edges if edge.target.output == output]
        stages = [self.plan.stage_of(maker) for maker in makers]
        return max((0 if stage is None else stage.level for stage in stages), default=0)

    def part(
        self, running: Collection[str], stopped: Collection[str] = (), suspended: Collection[str] = ()
    ) -> Plan:
        """The plan of the outputs that run and of those that are stopped, which emit nothing. Stages that only stopped
        outputs and `suspended` ones, which run, need get no events."""
        plan = keep_outputs(self.plan, {*running, *stopped})
        plan = suspend_outputs(plan, {*suspended, *stopped})
        if not stopped:
            return plan
        return replace(
            plan,
            edges=tuple(edge for edge in plan.edges if edge.target.output not in stopped),
            outputs={name: one for name, one in plan.outputs.items() if name not in stopped},
            suspended_outputs=plan.suspended_outputs - set(stopped),
        )


def keep_outputs(plan: Plan, names: Collection[str]) -> Plan:
    """The part of a plan that some of its outputs need."""
    if plan.outputs.keys() <= set(names):
        return plan
    leads = outputs_reached(plan)
    stages = {id_: stage for id_, stage in plan.stages.items() if leads[id_] & set(names)}
    edges = tuple(
        edge
        for edge in plan.edges
        if (edge.target.output in names if edge.target.stage is None else edge.target.stage in stages)
    )
    read = {edge.source.name for edge in edges if edge.source.stage is None}
    return replace(
        plan,
        scans={name: scan for name, scan in plan.scans.items() if name in read},
        stages=stages,
        edges=edges,
        outputs={name: output for name, output in plan.outputs.items() if name in names},
    )


def suspend_outputs(plan: Plan, names: Collection[str]) -> Plan:
    """The plan in which the stages that only these outputs need get no events. An output that is fed by a shared stage
    still gets rows: delivery leaves them out, and can count them."""
    own = stages_owned(plan, names)
    if not own:
        return plan
    return replace(
        plan,
        suspended_outputs=frozenset[str]().union(*own.values()),
        edges=tuple(
            replace(edge, steps=(_PASS_NONE, *edge.steps)) if _leads_into(edge, own) else edge
            for edge in plan.edges
        ),
    )


def stages_owned(plan: Plan, outputs: Collection[str]) -> dict[str, frozenset[str]]:
    """The stages whose rows lead to none but these outputs, and to which of them."""
    return {
        stage: reached
        for stage, reached in outputs_reached(plan).items()
        if reached and reached <= set(outputs)
    }


def outputs_reached(plan: Plan) -> dict[str, frozenset[str]]:
    """The outputs to which the rows of each stage lead, however far away."""
    reached: dict[str, frozenset[str]] = dict.fromkeys(plan.stages, frozenset())
    for _ in plan.stages:  # each pass goes one stage further
        for edge in plan.edges:
            if edge.source.stage is not None:
                output = edge.target.output
                leads = frozenset({output}) if output is not None else reached[edge.target.name]
                reached[edge.source.stage] |= leads
    return reached


def find_isolated(
    app: AppPlan, running: Mapping[str, int], stopped: Mapping[str, int], *, others: bool
) -> dict[EdgeTarget, tuple[int, ...]]:
    """The outputs that fail alone if a stage of an app's plan raises, or an edge to a stage or output: those that run
    and get rows from there, else those that are stopped, whose state sees time pass. Outputs are given by name and
    number. What all need that runs, `others` beside the app included, fails for all: there is nobody to protect."""
    numbers = {**running, **stopped}
    targets = {EdgeTarget("stage", stage): outputs for stage, outputs in app.outputs_reached.items()}
    targets |= {EdgeTarget("output", name): frozenset({name}) for name in running}
    isolated = {}
    for target, outputs in targets.items():
        present = outputs & numbers.keys()
        failing = present & running.keys() or present
        if failing and (others or running.keys() - failing):
            isolated[target] = tuple(sorted(numbers[name] for name in failing))
    return isolated


def rename_stages(plan: Plan, names: Mapping[str, str]) -> Plan:
    """The plan with other ids for its stages."""

    def renamed(edge: Edge) -> Edge:
        source, target = edge.source, edge.target
        if source.stage is not None:
            source = replace(source, name=names[source.name])
        if target.stage is not None:
            target = replace(target, name=names[target.name])
        return replace(edge, source=source, target=target)

    stages = {names[id_]: replace(stage, id=names[id_]) for id_, stage in plan.stages.items()}
    return replace(plan, stages=stages, edges=tuple(map(renamed, plan.edges)))


def _leads_into(edge: Edge, own: Collection[str]) -> bool:
    if edge.target.stage is None:
        return edge.source.stage in own
    return edge.target.stage in own and edge.source.stage not in own

"""A job by itself, compiled: in standard form where it has one, else as a plan of its own. Pure.

Receives the rows a query says, as a stream; hands what the planner of all jobs puts together, and what other jobs
need to read this one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.catalogue.app_plan import AppPlan, keep_outputs, rename_stages
from penstock.catalogue.template import TemplateForm, calls_python, find_template, steps_key
from penstock.operators.group_top import GroupTop, columns_of
from penstock.operators.identity import Json, digest_of, kind_of, reads_state_of
from penstock.operators.session_windows import SessionWindows
from penstock.query import logical
from penstock.query.compile import compile_forms
from penstock.query.physical import Plan, ScanPlan
from penstock.query.rules.share_equal import value_key
from penstock.query.stream import Stream


@dataclass(frozen=True)
class Keys:
    """What tells a standard form's parts from those of other jobs, made once."""

    conditions: tuple[Hashable, ...]
    operands: tuple[Hashable, ...]
    projection: Hashable
    #: what is made of results; None where that must be done for the job alone
    after: Hashable | None


@dataclass(frozen=True, eq=False)
class CompiledJob:
    """A job by itself. `plan` is None where it is in standard form; `level` is where its rows are made."""

    name: str
    number: int
    node: logical.Node
    template: TemplateForm | None
    keys: Keys | None
    plan: Plan | None
    scans: Mapping[str, ScanPlan]
    #: the streams its rows come from, also by way of other jobs
    streams: tuple[str, ...]
    #: the jobs it reads, and the columns it reads of what jobs told an epoch before
    reads: frozenset[str]
    previous: Mapping[str, Mapping[str, pl.DataType]]
    level: int
    #: what its state depends on
    signature: str

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return self.node.schema

    @property
    def stateless(self) -> bool:
        """Whether it remembers nothing."""
        if self.template is not None:
            return self.template.aggregation is None
        return self.plan is not None and not self.plan.stages

    def can_continue(self, former: CompiledJob) -> bool:
        """Whether it can continue with the state that it kept with its former query."""
        if self.signature != former.signature:
            return False
        if self.plan is None or former.plan is None:
            return True
        pairs = zip(former.plan.stages.values(), self.plan.stages.values(), strict=True)
        return all(reads_state_of(now.operator, then.operator) for then, now in pairs)

    @property
    def flushes(self) -> bool:
        """Whether it has open windows that can be emitted early: of time, or sessions of which nothing else is made."""
        if self.number < 0:  # it shares its stages with other outputs of its app
            return False
        if self.template is not None:
            return self.template.aggregation is not None
        assert self.plan is not None
        windows = [isinstance(sub.operator, SessionWindows) for sub in self.plan.stages.values()]
        return windows == [True] and all(output.top is None for output in self.plan.outputs.values())

    def read(self) -> Stream:
        """Its rows, for another job: ranked there, where they are ranked."""
        maps: list[logical.Map] = []
        node = self.node
        while isinstance(node, logical.Map):
            maps.append(node)
            node = node.input
        if not isinstance(node, logical.Top):
            return Stream(self._from(self.node.schema))
        ranking = GroupTop((), node.top, columns_of(node.input.schema))
        made: logical.Node = logical.Stateful(
            node.origin, node.schema, (self._from(node.input.schema),), ranking
        )
        for above in reversed(maps):
            made = replace(above, input=made)
        return Stream(made)

    def _from(self, schema: logical.Schema) -> logical.FromJob:
        return logical.FromJob(self.node.origin, schema, self.name, self.level, self.streams)


def compile_job(name: str, number: int, rows: Stream, *, alone: bool = False) -> CompiledJob:
    """A job of this name and number that emits these rows; `alone`: as a plan of its own in any case."""
    said = logical.Output(name, rows.node, (), rows.node.origin)
    made = compile_forms(logical.App(name, (said,)), prefix=f"j{number}.")
    output = made.optimised.outputs[0]
    nodes = logical.nodes_of(made.optimised)
    read = {node.job: node for node in nodes if isinstance(node, logical.FromJob)}
    simple = None if alone else find_template(output)
    if simple is not None:
        keys = Keys(
            tuple(value_key(condition) for condition in simple.conditions),
            tuple(value_key(operand) for operand, _ in simple.equalities),
            simple.projection,
            None if simple.top is not None or calls_python(simple.after) else steps_key(simple.after),
        )
        stream = simple.source.stream
        columns = tuple(column for column in stream.decoder.schema() if column in simple.needed)
        if stream.time is not None and stream.time not in columns:
            columns = (*columns, stream.time)
        scans = {stream.name: ScanPlan(stream, columns, simple.source.origin)}
        level = 0 if simple.aggregation is None else 1
        nothing = frozenset[str]()
        return CompiledJob(
            name,
            number,
            output.node,
            simple,
            keys,
            None,
            scans,
            tuple(scans),
            nothing,
            {},
            level,
            simple.signature,
        )
    plan = made.plan
    makers = [edge.source for edge in plan.edges if edge.target.output == name]
    subs = [plan.stage_of(maker) for maker in makers]
    levels = [
        plan.job_levels.get(maker, 0) if sub is None else sub.level
        for maker, sub in zip(makers, subs, strict=True)
    ]
    return CompiledJob(
        name,
        number,
        output.node,
        None,
        None,
        plan,
        plan.scans,
        tuple(dict.fromkeys([*plan.scans, *(s for node in read.values() for s in node.streams)])),
        frozenset(read),
        {node.job: node.schema for node in nodes if isinstance(node, logical.Previous)},
        max(levels, default=0),
        _signature(plan, f"j{number}."),
    )


def compile_in_app(app: AppPlan, output: logical.Output, number: int) -> CompiledJob:
    """An output of an app as a job, with the part of the app's plan that it needs."""
    plan = keep_outputs(app.plan, {output.name})
    return CompiledJob(
        output.name,
        number,
        output.node,
        None,
        None,
        plan,
        plan.scans,
        tuple(plan.scans),
        frozenset(),
        {},
        app.level_of(output.name),
        _signature_in_app(output.name, plan),
    )


def continue_in_app(made: CompiledJob, app: AppPlan, before: CompiledJob) -> CompiledJob:
    """An altered output of an app: where it can continue with the state that it has in the app's plan, as the owner of
    that state. `before`: the output as it was in the app, compiled by itself."""
    stages = [app.plan.stages[id_] for id_ in app.stages_of(made.name)]
    assert made.plan is not None
    if not app.owns_stages(made.name) or made.signature != before.signature:
        return made
    if [kind_of(one.operator) for one in made.plan.stages.values()] != [kind_of(s.operator) for s in stages]:
        return made
    names = dict(zip(made.plan.stages, (stage.id for stage in stages), strict=True))
    plan = rename_stages(made.plan, names)
    # the ids of the stages that feed it are part of an identity
    identities = {stage.id: stage.identity for stage in stages}
    own = {id_: replace(stage, identity=identities[id_]) for id_, stage in plan.stages.items()}
    plan = replace(plan, stages=own)
    return replace(made, plan=plan, signature=_signature_in_app(made.name, plan))


def _signature_in_app(name: str, plan: Plan) -> str:
    return f"app: {name}" if plan.stages else "stateless"


def _signature(plan: Plan, prefix: str) -> str:
    """What its state depends on: the operators with memory, what they keep, and from where they are fed."""
    operators: Json = {sub.id.removeprefix(prefix): sub.identity for sub in plan.stages.values()}
    return digest_of(operators) if plan.stages else "stateless"

"""Compile one job: to its template form where it has one, else to a plan of its own. Pure.

The planner puts compiled jobs together; other jobs read them by `CompiledJob.read`. An output of an app is compiled to
its part of the app's plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from penstock.catalogue.app_plan import AppPlan, keep_outputs, rename_stages
from penstock.catalogue.template import TemplateForm, calls_python, find_template, steps_key
from penstock.operators.group_top import GroupTop, columns_of
from penstock.operators.identity import Json, digest_of, kind_of
from penstock.operators.session_windows import SessionWindows
from penstock.query import logical
from penstock.query.compile import Forms, compile_forms
from penstock.query.physical import Plan, ScanPlan
from penstock.query.rules.share_equal import value_key
from penstock.query.stream import Stream


@dataclass(frozen=True)
class TemplateKeys:
    """Hashable keys of the parts of a template form, by which the planner finds equal parts of other jobs."""

    conditions: tuple[Hashable, ...]
    operands: tuple[Hashable, ...]
    projection: Hashable
    #: the steps that make the job's results; None where they must be applied for the job alone
    result_steps: Hashable | None

    @staticmethod
    def of(template: TemplateForm) -> TemplateKeys:
        alone = template.top is not None or calls_python(template.result_steps)
        return TemplateKeys(
            tuple(value_key(condition) for condition in template.conditions),
            tuple(value_key(operand) for operand, _ in template.equalities),
            steps_key(template.steps),
            None if alone else steps_key(template.result_steps),
        )


@dataclass(frozen=True, eq=False)
class CompiledJob:
    """A job by itself. It has either a template form, with its keys, or a plan."""

    name: str
    number: int
    node: logical.Node
    scans: Mapping[str, ScanPlan]
    #: the streams its rows come from, also by way of other jobs
    streams: tuple[str, ...]
    #: the level at which its rows are made
    level: int
    #: a digest of what its state depends on
    signature: str
    template: TemplateForm | None = None
    keys: TemplateKeys | None = None
    plan: Plan | None = None
    #: the jobs it reads
    reads: frozenset[str] = frozenset()
    #: the columns it reads of what jobs emitted in the epoch before, by job
    previous: Mapping[str, Mapping[str, pl.DataType]] = field(default_factory=dict)

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return self.node.schema

    @property
    def is_stateless(self) -> bool:
        if self.template is not None:
            return self.template.aggregation is None
        return self.plan is not None and not self.plan.stages

    @property
    def can_flush(self) -> bool:
        """Whether it has open windows that can be emitted early: of time, or sessions of which nothing else is made."""
        if self.number < 0:  # it shares its stages with other outputs of its app
            return False
        if self.template is not None:
            return self.template.aggregation is not None
        assert self.plan is not None
        windows = [isinstance(stage.operator, SessionWindows) for stage in self.plan.stages.values()]
        return windows == [True] and all(output.top is None for output in self.plan.outputs.values())

    def read(self) -> Stream:
        """Its rows, for another job. A ranking is applied by the reader."""
        maps: list[logical.Map] = []
        node = self.node
        while isinstance(node, logical.Map):
            maps.append(node)
            node = node.input
        if not isinstance(node, logical.Top):
            return Stream(self._from(self.node.schema))
        ranking = GroupTop((), node.top, columns_of(node.input.schema))
        rows: logical.Node = logical.Stateful(
            node.origin, node.schema, (self._from(node.input.schema),), ranking
        )
        for above in reversed(maps):
            rows = replace(above, input=rows)
        return Stream(rows)

    def _from(self, schema: logical.Schema) -> logical.FromJob:
        return logical.FromJob(self.node.origin, schema, self.name, self.level, self.streams)

    def explain(self) -> str:
        """The text of EXPLAIN: what it emits, what it reads, and by which operators."""
        lines = [f"emits {', '.join(f'{name} {dtype}' for name, dtype in self.schema.items())}"]
        if self.template is not None:
            return "\n".join([*lines, *self._explain_template(self.template)])
        assert self.plan is not None
        lines.append(f"reads {', '.join([*self.scans, *(f'job {name}' for name in sorted(self.reads))])}")
        lines += [f"{stage.id}: {stage.operator.describe()}" for stage in self.plan.stages.values()]
        return "\n".join(lines)

    def _explain_template(self, template: TemplateForm) -> list[str]:
        lines = [f"reads stream {template.source.stream.name}: {', '.join(sorted(template.columns_read))}"]
        lines += [f"where {condition}" for condition in template.conditions]
        lines += [
            f"where {operand} == {value!r} (looked up with other jobs)"
            for operand, value in template.equalities
        ]
        if template.aggregation is not None:
            functions = ", ".join(aggregate.describe() for aggregate in template.aggregation.aggregates)
            window = template.aggregation.window.describe()
            lines.append(f"{functions} over {window}, with all jobs of this shape")
        if template.top is not None:
            lines.append(replace(template.top, by=_emitted_name(template.top.by, self.node)).describe())
        return lines


def compile_job(name: str, number: int, rows: Stream, *, alone: bool = False) -> CompiledJob:
    """A job of this name and number that emits these rows; `alone`: with a plan of its own in any case."""
    output = logical.Output(name, rows.node, (), rows.node.origin)
    forms = compile_forms(logical.App(name, (output,)), prefix=f"j{number}.")
    output = forms.optimised.outputs[0]
    template = None if alone else find_template(output)
    if template is None:
        return _compile_plan(output, number, forms)
    stream = template.source.stream
    columns = tuple(column for column in stream.decoder.schema() if column in template.columns_read)
    if stream.time is not None and stream.time not in columns:
        columns = (*columns, stream.time)
    return CompiledJob(
        name,
        number,
        output.node,
        {stream.name: ScanPlan(stream, columns, template.source.origin)},
        (stream.name,),
        0 if template.aggregation is None else 1,
        template.signature,
        template=template,
        keys=TemplateKeys.of(template),
    )


def _compile_plan(output: logical.Output, number: int, forms: Forms) -> CompiledJob:
    nodes = logical.nodes_of(forms.optimised)
    read = {node.job: node for node in nodes if isinstance(node, logical.FromJob)}
    plan = forms.plan
    sources = [edge.source for edge in plan.edges if edge.target.output == output.name]
    levels = [
        plan.job_levels.get(source, 0) if stage is None else stage.level
        for source, stage in ((source, plan.stage_of(source)) for source in sources)
    ]
    return CompiledJob(
        output.name,
        number,
        output.node,
        plan.scans,
        tuple(dict.fromkeys([*plan.scans, *(s for node in read.values() for s in node.streams)])),
        max(levels, default=0),
        _signature(plan, f"j{number}."),
        plan=plan,
        reads=frozenset(read),
        previous={node.job: node.schema for node in nodes if isinstance(node, logical.Previous)},
    )


def compile_in_app(app: AppPlan, output: logical.Output, number: int) -> CompiledJob:
    """An output of an app as a job, with the part of the app's plan that it needs."""
    plan = keep_outputs(app.plan, {output.name})
    return CompiledJob(
        output.name,
        number,
        output.node,
        plan.scans,
        tuple(plan.scans),
        app.level_of(output.name),
        _signature_in_app(output.name, plan),
        plan=plan,
    )


def continue_in_app(job: CompiledJob, app: AppPlan, former: CompiledJob) -> CompiledJob:
    """An altered output of an app: where it can continue with the state that it has in the app's plan, as the owner of
    that state. `former`: the output as it was in the app, compiled by itself."""
    stages = [app.plan.stages[id_] for id_ in app.stages_of(job.name)]
    assert job.plan is not None
    if not app.owns_stages(job.name) or job.signature != former.signature:
        return job
    if [kind_of(one.operator) for one in job.plan.stages.values()] != [kind_of(s.operator) for s in stages]:
        return job
    names = dict(zip(job.plan.stages, (stage.id for stage in stages), strict=True))
    plan = rename_stages(job.plan, names)
    # the ids of the stages that feed it are part of an identity
    identities = {stage.id: stage.identity for stage in stages}
    own = {id_: replace(stage, identity=identities[id_]) for id_, stage in plan.stages.items()}
    plan = replace(plan, stages=own)
    return replace(job, plan=plan, signature=_signature_in_app(job.name, plan))


def _signature_in_app(name: str, plan: Plan) -> str:
    return f"app: {name}" if plan.stages else "stateless"


def _signature(plan: Plan, prefix: str) -> str:
    """A digest of the stateful operators, what they keep, and what feeds them; and of how totals are ranked, since each
    slice keeps its best."""
    if not plan.stages:
        return "stateless"
    operators: Json = {stage.id.removeprefix(prefix): stage.identity for stage in plan.stages.values()}
    tops = [output.top for output in plan.outputs.values() if output.top is not None and output.top.running]
    rankings: Json = [[top.by, top.descending, *top.keys] for top in tops]
    return digest_of([operators, rankings])


def _emitted_name(column: str, node: logical.Node) -> str:
    """The name in the results of a column that a ranking sorts by; maps after the ranking may rename it."""
    if isinstance(node, logical.Top) or not node.inputs:
        return column
    below = _emitted_name(column, node.inputs[0])
    if isinstance(node, logical.Map):
        names = [name for name, expr in node.columns if expr.meta.undo_aliases().meta.eq(pl.col(below))]
        return names[0] if names else "value that it does not emit" if node.only else below
    return below

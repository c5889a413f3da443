"""The planner of all jobs: one plan in which they share scans, conditions, what is computed, and exchanges. Pure.

Receives compiled jobs and how their lives stand; hands the plan of an epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.lifecycle import Life
from penstock.catalogue.template import TemplateAggregation, TemplateForm
from penstock.ha.schemes import Semantics
from penstock.operators.identity import Json, digest_of
from penstock.query.edges import Edge, EdgeSource, EdgeTarget
from penstock.query.format_1 import former_group_id
from penstock.query.jobs_plan import GroupMember, JobSelection, JobsPlan, SharedSelection, TemplateGroup
from penstock.query.logical import StreamDefinition
from penstock.query.physical import OutputPlan, Plan, ScanPlan, Stage
from penstock.query.steps import Step
from penstock.sinks.contract import Sink

#: begins the names of sub-queries that work on jobs of one form
_GROUP = "template-group-"
#: from so many jobs on that differ in constants only, a join with their constants finds their events
FEW = 4


@dataclass(frozen=True)
class PlannedJob:
    """A job on its way into the plan."""

    job: CompiledJob
    life: Life
    sinks: tuple[Sink, ...]
    recovery: Semantics | None = None


def plan_jobs(name: str, jobs: Sequence[PlannedJob], app: Plan | None = None) -> Plan:
    """The plan in which these jobs run together, beside what runs of an `app`. One that is paused, or failed, gets no
    events and emits nothing, while time continues in its state."""
    if app is not None and not jobs:
        return app
    plan = _PlanBuilder(name, jobs).plan()
    return plan if app is None else _beside(app, plan)


def _beside(app: Plan, jobs: Plan) -> Plan:
    """The plan of jobs, and that of an app before it."""
    shared = {name: _both(scan, jobs.scans[name]) for name, scan in app.scans.items() if name in jobs.scans}
    edges = (*app.edges, *jobs.edges)
    return replace(
        jobs,
        scans={**app.scans, **jobs.scans, **shared},
        stages={**app.stages, **jobs.stages},
        edges=tuple(replace(edge, id=number) for number, edge in enumerate(edges)),
        outputs={**app.outputs, **jobs.outputs},
        levels=max(app.levels, jobs.levels),
        idle_outputs=app.idle_outputs,
    )


def _both(one: ScanPlan, other: ScanPlan) -> ScanPlan:
    """A stream with the columns that either of two needs."""
    return replace(one, columns=_ordered(one.stream, {*one.columns, *other.columns}))


class _SelectionBuilder:
    """A `SharedSelection` under construction: lists in which equal things have one number."""

    def __init__(self) -> None:
        self._conditions: dict[Hashable, tuple[int, pl.Expr]] = {}
        self._operands: dict[Hashable, tuple[int, pl.Expr]] = {}
        self._projections: dict[Hashable, tuple[int, tuple[Step, ...]]] = {}
        self._groups: dict[str, list[tuple[JobSelection, CompiledJob]]] = {}

    def add(self, job: CompiledJob, group: str) -> None:
        said, keys = job.template, job.keys
        assert said is not None
        assert keys is not None
        conditions = tuple(sorted(map(self._condition, keys.conditions, said.conditions)))
        equal = [
            (self._operands.setdefault(key, (len(self._operands), operand))[0], value)
            for key, (operand, value) in zip(keys.operands, said.equalities, strict=True)
        ]
        projection, _ = self._projections.setdefault(keys.projection, (len(self._projections), said.steps))
        pane = None if said.aggregation is None else said.aggregation.pane
        chosen = JobSelection(
            job.number, conditions, tuple(sorted(equal, key=_operand)), projection, pane, said.ends
        )
        self._groups.setdefault(group, []).append((chosen, job))

    def selection(self, source: EdgeSource) -> SharedSelection:
        groups = tuple(
            TemplateGroup(target, tuple(self._found(members)), _ordered_events(members[0][1]))
            for target, members in self._groups.items()
        )
        return SharedSelection(
            source,
            tuple(condition for _, condition in self._conditions.values()),
            tuple(operand for _, operand in self._operands.values()),
            tuple(steps for _, steps in self._projections.values()),
            groups,
        )

    @property
    def targets(self) -> list[str]:
        """The sub-queries to which rows go."""
        return [group for group in self._groups if group]

    def _found(self, members: Sequence[tuple[JobSelection, CompiledJob]]) -> Iterator[JobSelection]:
        """A join finds many jobs at once; where there are few, their equalities are conditions like others."""
        alike = Counter(_template(chosen) for chosen, _ in members)
        for chosen, job in members:
            if not chosen.equalities or alike[_template(chosen)] >= FEW:
                yield chosen
                continue
            assert job.template is not None
            assert job.keys is not None
            more = [
                self._condition((key, "is", value), operand == pl.lit(value))
                for key, (operand, value) in zip(job.keys.operands, job.template.equalities, strict=True)
            ]
            yield replace(chosen, conditions=tuple(sorted({*chosen.conditions, *more})), equalities=())

    def _condition(self, key: Hashable, condition: pl.Expr) -> int:
        return self._conditions.setdefault(key, (len(self._conditions), condition))[0]


def _ordered_events(job: CompiledJob) -> bool:
    assert job.template is not None
    return job.template.aggregation is None or job.template.aggregation.ordered


def _template(chosen: JobSelection) -> Hashable:
    """What jobs have in common that differ in constants only."""
    return chosen.projection, chosen.conditions, tuple(operand for operand, _ in chosen.equalities)


class _PlanBuilder:
    def __init__(self, name: str, jobs: Sequence[PlannedJob]) -> None:
        self._name, self._jobs = name, jobs
        self._stages: dict[str, Stage] = {}
        self._edges: list[Edge] = []
        self._members: dict[str, dict[int, GroupMember]] = {"": {}}
        self._owners: dict[str, int] = {}
        self._selections: dict[EdgeSource, _SelectionBuilder] = {}
        self._alike: dict[Hashable, int] = {}
        self._read = {name for placed in jobs for name in placed.job.reads}

    def plan(self) -> Plan:
        groups: dict[str, list[PlannedJob]] = {}
        for placed in self._jobs:
            if placed.job.template is None:
                self._add_alone(placed)
            elif placed.job.template.aggregation is not None:
                groups.setdefault(template_group_id(placed.job.template), []).append(placed)
            elif placed.life == "running":
                self._choose(placed.job, "")
        for group, members in groups.items():
            self._add_group(group, members)
        for source in self._selections:
            self._edges += [
                Edge(0, EdgeSource("selection", source.name), (), EdgeTarget("stage", target), reduce=True)
                for target in self._selections[source].targets
            ]
        jobs = JobsPlan(
            {source: selection.selection(source) for source, selection in self._selections.items()},
            self._members,
            self._owners,
            _previous(placed.job for placed in self._jobs if placed.life == "running"),
            {id_: frozenset({number}) for id_, number in self._owners.items() if number > 0}
            | {group: frozenset(one.job.number for one in members) for group, members in groups.items()},
        )
        outputs = {placed.job.name: _output(placed) for placed in self._jobs if placed.life == "running"}
        return Plan(
            self._name,
            _scans(placed.job for placed in self._jobs),
            self._stages,
            tuple(replace(edge, id=number) for number, edge in enumerate(self._edges)),
            outputs,
            levels=max((sub.level for sub in self._stages.values()), default=0),
            jobs=jobs,
        )

    def _add_alone(self, placed: PlannedJob) -> None:
        """A job with a plan of its own."""
        plan, number = placed.job.plan, placed.job.number
        assert plan is not None
        self._stages |= plan.stages
        self._owners |= dict.fromkeys(plan.stages, number)
        running = placed.life == "running"
        self._edges += [edge for edge in plan.edges if running or _inside(edge)]

    def _add_group(self, group: str, members: Sequence[PlannedJob]) -> None:
        """Jobs that are worked on together."""
        said = members[0].job.template
        assert said is not None
        assert said.aggregation is not None
        running = [placed.job for placed in members if placed.life == "running"]
        windows = tuple(sorted((job.number, *_window(job)) for job in running))
        operator = said.aggregation.operator(windows)
        streams = (said.source.stream.name,)
        self._stages[group] = Stage(
            group,
            1,
            operator,
            streams,
            said.source.origin,
            identity=group.removeprefix(_GROUP),
            former_id=former_group_id(
                streams[0],
                said.aggregation.key_types,
                said.aggregation.aggregates,
                said.aggregation.overlapping,
            ),
        )
        self._members[group] = {}
        for job in running:
            self._choose(job, group)

    def _choose(self, job: CompiledJob, group: str) -> None:
        assert job.template is not None
        source = EdgeSource("scan", job.template.source.stream.name)
        self._selections.setdefault(source, _SelectionBuilder()).add(job, group)
        alike = None
        if job.keys is not None and job.keys.after is not None and job.name not in self._read:
            alike = self._alike.setdefault(job.keys.after, len(self._alike))
        self._members[group][job.number] = GroupMember(job.number, job.name, job.template.after, alike)


def template_group_id(said: TemplateForm) -> str:
    """The name of the sub-query that works on jobs of this form."""
    assert said.aggregation is not None
    shape: Json = [said.source.stream.name, said.aggregation.shape]
    return f"{_GROUP}{digest_of(shape)}"


def _window(job: CompiledJob) -> tuple[int, int]:
    assert job.template is not None
    aggregated = job.template.aggregation
    assert isinstance(aggregated, TemplateAggregation)
    return aggregated.window.size, aggregated.window.offset


def _inside(edge: Edge) -> bool:
    """Whether an edge leads from a job's sub-query to another of its own."""
    return edge.source.stage is not None and edge.target.stage is not None


def _output(placed: PlannedJob) -> OutputPlan:
    job = placed.job
    if job.template is not None:
        said = job.template
        made = OutputPlan(job.name, dict(said.schema), placed.sinks, said.top, said.final_steps)
    else:
        assert job.plan is not None
        made = replace(job.plan.outputs[job.name], sinks=placed.sinks)
    return replace(made, job=job.number, streams=job.streams, recovery=placed.recovery)


def _scans(jobs: Iterable[CompiledJob]) -> dict[str, ScanPlan]:
    """Every stream that a job reads, with the columns that any job needs."""
    found: dict[str, ScanPlan] = {}
    wanted: dict[str, set[str]] = {}
    for job in jobs:
        for name, scan in job.scans.items():
            found.setdefault(name, scan)
            wanted.setdefault(name, set()).update(scan.columns)
    return {name: replace(scan, columns=_ordered(scan.stream, wanted[name])) for name, scan in found.items()}


def _previous(jobs: Iterable[CompiledJob]) -> dict[str, dict[str, pl.DataType]]:
    """What is read of what jobs told an epoch before."""
    found: dict[str, dict[str, pl.DataType]] = {}
    for job in jobs:
        for name, columns in job.previous.items():
            found.setdefault(name, {}).update(columns)
    return found


def _ordered(stream: StreamDefinition, columns: Collection[str]) -> tuple[str, ...]:
    schema: Mapping[str, pl.DataType] = stream.decoder.schema()
    return tuple(column for column in schema if column in columns)


def _operand(pair: tuple[int, object]) -> int:
    return pair[0]

"""Plan all jobs together: one plan in which they share scans, conditions, computed columns and exchanges, and jobs of
one template a group with one operator. Pure.

`plan_jobs` plans jobs by their life. `plan_epoch` also suspends outputs, and puts the plan of the app beside that of
the jobs. An output is *suspended* if it runs and its own state gets no events; a job is *stopped* if it is paused or
has failed: it gets no events, emits nothing, and keeps its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.catalogue.app_plan import AppPlan, find_isolated
from penstock.catalogue.catalogue import JobEntry
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.lifecycle import Life
from penstock.catalogue.template import TemplateForm
from penstock.ha.schemes import Semantics
from penstock.operators.identity import Json, digest_of
from penstock.query.format_1 import former_group_id
from penstock.query.jobs_plan import GroupMember, JobSelection, JobsPlan, SharedSelection, TemplateGroup
from penstock.query.logical import StreamDefinition
from penstock.query.physical import OutputPlan, Plan, ScanPlan, Stage
from penstock.query.steps import Edge, EdgeSource, EdgeTarget, Step
from penstock.sinks.contract import Sink
from penstock.state.continuity import output_state_id

#: the prefix of the ids of stages of template groups
_GROUP = "template-group-"
#: from so many jobs on that differ in constants only, a join with their constants finds their events
_MIN_JOINED = 4


@dataclass(frozen=True)
class PlannedJob:
    """A job as input of the planner."""

    job: CompiledJob
    life: Life
    sinks: tuple[Sink, ...]
    recovery: Semantics | None = None

    @property
    def is_running(self) -> bool:
        return self.life == "running"


# -- an epoch ------------------------------------------------------------------------------------


def plan_epoch(
    name: str,
    jobs: Sequence[PlannedJob],
    to_suspend: Collection[str],
    app: AppPlan | None = None,
    outputs: Sequence[JobEntry] = (),
    *,
    app_alone: bool = False,
) -> Plan:
    """The plan of jobs, and of the `outputs` that share the plan of an app, which may run alone.

    Of the jobs and outputs in `to_suspend`, those are suspended that run, have state, and are not read by others that
    are not in it.
    """
    active = {entry.name for entry in outputs if entry.master.life == "running"}
    running = {one.job.name for one in jobs if one.is_running}
    # a paused job counts as a reader: it will need what it reads when it runs again
    reads = {one.job.name: one.job.reads | one.job.previous.keys() for one in jobs}
    needed = _find_needed({**dict.fromkeys(active, frozenset[str]()), **reads}, to_suspend)
    stateful = {one.job.name for one in jobs if not one.job.is_stateless}
    suspended = frozenset((stateful & set(to_suspend) & running) - needed)
    app_part, isolated = None, {}
    if app is not None:
        app_part = _plan_outputs(app, outputs, active, (active & set(to_suspend)) - needed)
        numbers = {entry.name: entry.number for entry in outputs}
        at_work = {name: number for name, number in numbers.items() if name in active}
        isolated = find_isolated(app, at_work, numbers, others=bool(running))
    plan = plan_jobs(
        name,
        [replace(one, life="paused") if one.job.name in suspended else one for one in jobs],
        app_part,
        app_alone=app_alone,
    )
    stopped = {one.job.name: one.recovery for one in jobs if one.job.name not in running}
    stopped |= {entry.name: entry.recovery for entry in outputs if entry.name not in active}
    released = (
        set[str]() if app is None else app.plan.identities.states.keys() - plan.identities.states.keys()
    )
    return replace(
        plan,
        suspended_outputs=suspended | plan.suspended_outputs,
        needed=needed,
        stopped_jobs=stopped,
        released=frozenset(released),
        isolated=isolated,
    )


def _plan_outputs(
    app: AppPlan, outputs: Sequence[JobEntry], active: set[str], suspended: set[str]
) -> Plan | None:
    """The part of an app's plan that some of its outputs need, with the recoveries of the catalogue."""
    if not outputs:
        return None
    part = app.part(active, {entry.name for entry in outputs} - active, suspended)
    recoveries = {entry.name: entry.recovery for entry in outputs}
    changed = {
        name: replace(output, recovery=recoveries[name])
        for name, output in part.outputs.items()
        if name in recoveries and output.recovery != recoveries[name]
    }
    return replace(part, outputs={**part.outputs, **changed}) if changed else part


def _find_needed(reads: Mapping[str, Collection[str]], to_suspend: Collection[str]) -> frozenset[str]:
    """The jobs to suspend whose rows a job that is not to be suspended reads, directly or by way of other jobs."""
    if not to_suspend:
        return frozenset()
    pending = [name for name in reads if name not in to_suspend]
    needed = set(pending)
    while pending:
        new = set(reads.get(pending.pop(), ())) - needed
        needed |= new
        pending += new
    return frozenset(needed.intersection(to_suspend))


# -- the plan of all jobs ------------------------------------------------------------------------


def plan_jobs(
    name: str, jobs: Sequence[PlannedJob], app: Plan | None = None, *, app_alone: bool = False
) -> Plan:
    """The plan of jobs, beside that of an `app`. A job that does not run gets no events and emits nothing, while time
    continues in its state. `app_alone`: commands have created nothing so far, so the plan is the app's as it is."""
    if app is not None and app_alone:
        return app
    plan = _PlanBuilder(name, jobs).plan()
    return plan if app is None else _join_plans(app, plan)


def _join_plans(app: Plan, jobs: Plan) -> Plan:
    """The plan of jobs, and that of an app before it."""
    shared = {
        name: replace(scan, columns=_in_order(scan.stream, {*scan.columns, *jobs.scans[name].columns}))
        for name, scan in app.scans.items()
        if name in jobs.scans
    }
    return replace(
        jobs,
        scans={**app.scans, **jobs.scans, **shared},
        stages={**app.stages, **jobs.stages},
        edges=_number([*app.edges, *jobs.edges]),
        outputs={**app.outputs, **jobs.outputs},
        levels=max(app.levels, jobs.levels),
        suspended_outputs=app.suspended_outputs,
    )


class _PlanBuilder:
    def __init__(self, name: str, jobs: Sequence[PlannedJob]) -> None:
        self._name, self._jobs = name, jobs
        self._stages: dict[str, Stage] = {}
        self._edges: list[Edge] = []
        self._members: dict[str, dict[int, GroupMember]] = {"": {}}
        self._owners: dict[str, int] = {}
        self._selections: dict[EdgeSource, _SelectionBuilder] = {}
        self._steps_ids: dict[Hashable, int] = {}
        self._read = {name for planned in jobs for name in planned.job.reads}

    def plan(self) -> Plan:
        groups: dict[str, list[PlannedJob]] = {}
        for planned in self._jobs:
            template = planned.job.template
            if template is None:
                self._add_alone(planned)
            elif template.aggregation is not None:
                groups.setdefault(template_group_id(template), []).append(planned)
            elif planned.is_running:
                self._add_member(planned.job, template, "")
        for group, members in groups.items():
            self._add_group(group, members)
        for source in self._selections:
            self._edges += [
                Edge(0, EdgeSource("selection", source.name), (), EdgeTarget("stage", target), reduce=True)
                for target in self._selections[source].targets
            ]
        running = [planned for planned in self._jobs if planned.is_running]
        outputs = {planned.job.name: _plan_output(planned) for planned in running}
        jobs = JobsPlan(
            {source: selection.selection(source) for source, selection in self._selections.items()},
            self._members,
            self._owners,
            _previous_columns(planned.job for planned in running),
            {id_: frozenset({number}) for id_, number in self._owners.items() if number > 0}
            | {group: frozenset(one.job.number for one in members) for group, members in groups.items()}
            | {
                output_state_id(one.job.name): frozenset({one.job.number})
                for one in running
                if one.job.number > 0 and outputs[one.job.name].top is not None
            },
        )
        return Plan(
            self._name,
            _merge_scans(planned.job for planned in self._jobs),
            self._stages,
            _number(self._edges),
            outputs,
            levels=max((stage.level for stage in self._stages.values()), default=0),
            jobs=jobs,
        )

    def _add_alone(self, planned: PlannedJob) -> None:
        """Add a job with a plan of its own."""
        plan = planned.job.plan
        assert plan is not None
        self._stages |= plan.stages
        self._owners |= dict.fromkeys(plan.stages, planned.job.number)
        self._edges += [edge for edge in plan.edges if planned.is_running or _is_between_stages(edge)]

    def _add_group(self, group: str, members: Sequence[PlannedJob]) -> None:
        template = members[0].job.template
        assert template is not None
        aggregation = template.aggregation
        assert aggregation is not None
        running = [planned.job for planned in members if planned.is_running]
        stream = template.source.stream.name
        self._stages[group] = Stage(
            group,
            1,
            aggregation.operator(tuple(sorted((job.number, *_window(job)) for job in running))),
            (stream,),
            template.source.origin,
            identity=group.removeprefix(_GROUP),
            former_id=former_group_id(
                stream, aggregation.key_types, aggregation.aggregates, aggregation.overlapping
            ),
        )
        self._members[group] = {}
        for job in running:
            assert job.template is not None
            self._add_member(job, job.template, group)

    def _add_member(self, job: CompiledJob, template: TemplateForm, group: str) -> None:
        source = EdgeSource("scan", template.source.stream.name)
        self._selections.setdefault(source, _SelectionBuilder()).add(job, group)
        steps_id = None
        if job.keys is not None and job.keys.result_steps is not None and job.name not in self._read:
            steps_id = self._steps_ids.setdefault(job.keys.result_steps, len(self._steps_ids))
        self._members[group][job.number] = GroupMember(job.number, job.name, template.result_steps, steps_id)


class _SelectionBuilder:
    """A `SharedSelection` under construction: lists in which equal things have one number."""

    def __init__(self) -> None:
        self._conditions: dict[Hashable, tuple[int, pl.Expr]] = {}
        self._operands: dict[Hashable, tuple[int, pl.Expr]] = {}
        self._projections: dict[Hashable, tuple[int, tuple[Step, ...]]] = {}
        self._groups: dict[str, list[tuple[JobSelection, CompiledJob]]] = {}

    def add(self, job: CompiledJob, group: str) -> None:
        template, keys = job.template, job.keys
        assert template is not None
        assert keys is not None
        conditions = tuple(sorted(map(self._condition, keys.conditions, template.conditions)))
        equalities = [
            (self._operands.setdefault(key, (len(self._operands), operand))[0], value)
            for key, (operand, value) in zip(keys.operands, template.equalities, strict=True)
        ]
        projection, _ = self._projections.setdefault(
            keys.projection, (len(self._projections), template.steps)
        )
        selection = JobSelection(
            job.number,
            conditions,
            tuple(sorted(equalities, key=lambda pair: pair[0])),
            projection,
            None if template.aggregation is None else template.aggregation.pane,
            template.extremes,
        )
        self._groups.setdefault(group, []).append((selection, job))

    def selection(self, source: EdgeSource) -> SharedSelection:
        groups = tuple(
            TemplateGroup(target, tuple(self._finish(members)), _is_ordered(members[0][1]))
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
        """The stages to which rows go."""
        return [group for group in self._groups if group]

    def _finish(self, members: Sequence[tuple[JobSelection, CompiledJob]]) -> Iterator[JobSelection]:
        """A join finds many jobs at once; where there are few, their equalities are conditions like others."""
        counts = Counter(_without_constants(selection) for selection, _ in members)
        for selection, job in members:
            if not selection.equalities or counts[_without_constants(selection)] >= _MIN_JOINED:
                yield selection
                continue
            assert job.template is not None
            assert job.keys is not None
            more = [
                self._condition((key, "is", value), operand == pl.lit(value))
                for key, (operand, value) in zip(job.keys.operands, job.template.equalities, strict=True)
            ]
            conditions = tuple(sorted({*selection.conditions, *more}))
            yield replace(selection, conditions=conditions, equalities=())

    def _condition(self, key: Hashable, condition: pl.Expr) -> int:
        return self._conditions.setdefault(key, (len(self._conditions), condition))[0]


def _is_ordered(job: CompiledJob) -> bool:
    assert job.template is not None
    return job.template.aggregation is None or job.template.aggregation.is_ordered


def _without_constants(selection: JobSelection) -> Hashable:
    """What jobs have in common that differ in constants only."""
    return selection.projection, selection.conditions, tuple(operand for operand, _ in selection.equalities)


def template_group_id(template: TemplateForm) -> str:
    """The id of the stage in which jobs of this template form run together."""
    assert template.aggregation is not None
    shape: Json = [template.source.stream.name, template.aggregation.shape]
    return f"{_GROUP}{digest_of(shape)}"


def _window(job: CompiledJob) -> tuple[int, int]:
    assert job.template is not None
    assert job.template.aggregation is not None
    window = job.template.aggregation.window
    return window.size, window.offset


def _is_between_stages(edge: Edge) -> bool:
    return edge.source.stage is not None and edge.target.stage is not None


def _number(edges: Sequence[Edge]) -> tuple[Edge, ...]:
    return tuple(replace(edge, id=number) for number, edge in enumerate(edges))


def _plan_output(planned: PlannedJob) -> OutputPlan:
    job, template = planned.job, planned.job.template
    if template is not None:
        output = OutputPlan(
            job.name, dict(template.schema), planned.sinks, template.top, template.final_steps
        )
    else:
        assert job.plan is not None
        output = replace(job.plan.outputs[job.name], sinks=planned.sinks)
    return replace(output, job=job.number, streams=job.streams, recovery=planned.recovery)


def _merge_scans(jobs: Iterable[CompiledJob]) -> dict[str, ScanPlan]:
    """Every stream that a job reads, with the columns that any job needs."""
    scans: dict[str, ScanPlan] = {}
    columns: dict[str, set[str]] = {}
    for job in jobs:
        for name, scan in job.scans.items():
            scans.setdefault(name, scan)
            columns.setdefault(name, set()).update(scan.columns)
    return {
        name: replace(scan, columns=_in_order(scan.stream, columns[name])) for name, scan in scans.items()
    }


def _previous_columns(jobs: Iterable[CompiledJob]) -> dict[str, dict[str, pl.DataType]]:
    """The columns that are read of what jobs emitted in the epoch before, by job."""
    columns: dict[str, dict[str, pl.DataType]] = {}
    for job in jobs:
        for name, read in job.previous.items():
            columns.setdefault(name, {}).update(read)
    return columns


def _in_order(stream: StreamDefinition, columns: Collection[str]) -> tuple[str, ...]:
    """Columns in the order of the stream's schema."""
    return tuple(column for column in stream.decoder.schema() if column in columns)

"""The physical plan: stages, the edges between them and their levels. Frozen; every task of an epoch executes it.

A *stage* is a stateful operator with the stateless steps after it, which are on the edges that leave it. An *edge*
leads the rows of a scan or a stage to the next stage, exchanged by its key, or to an output. A *level* is one exchange
and one round of slice tasks, which all stages of that level share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from penstock.errors import PenstockError
from penstock.ha.schemes import Semantics
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.group_top import GroupTop
from penstock.operators.identity import digest_of, encode, readable_versions, versions_of
from penstock.operators.job_windows import JobAggregation
from penstock.operators.routes import ByKey, Partitioner, Route
from penstock.operators.top_k import TopK
from penstock.origin import Origin
from penstock.query.jobs_plan import JobsPlan
from penstock.query.logical import StreamDefinition
from penstock.query.steps import Edge, EdgeSource, EdgeTarget, Step
from penstock.sinks.contract import Sink
from penstock.state.bucket_map import BucketMap, BucketMaps
from penstock.state.continuity import Identities, output_state_id
from penstock.state.manifest import Collections
from penstock.state.run import RunEntry


@dataclass(frozen=True)
class Stage:
    """A stateful operator, and its place in the plan."""

    id: str
    level: int
    operator: Operator
    streams: tuple[str, ...]
    origin: Origin
    #: the user's own, one a port; none if rows are exchanged by hash
    partitioners: tuple[Partitioner, ...] = ()
    #: a digest of everything that its state depends on
    identity: str = ""
    #: its id in a state directory of format 1
    former_id: str = ""

    def route(self, port: int = 0) -> Route:
        """How rows are assigned to buckets, by the user's own partitioner if there is one."""
        route = self.operator.route(port)
        if self.partitioners and isinstance(route, ByKey):
            return replace(route, partitioner=self.partitioners[port])
        return route


@dataclass(frozen=True)
class OutputPlan:
    """A named result: its columns and sinks, how the gather ranks the rows of all slices, and the steps after that.

    `job` is its number, if it is a job that comes and goes. `streams` are those its rows come from. `recovery` is what
    it may lose or repeat after a crash (None: as the engine's settings say).
    """

    name: str
    schema: Mapping[str, pl.DataType]
    sinks: tuple[Sink, ...]
    top: TopK | None = None
    after: tuple[Step, ...] = ()
    job: int | None = None
    streams: tuple[str, ...] = ()
    recovery: Semantics | None = None


@dataclass(frozen=True)
class ScanPlan:
    """A stream to read, and the columns to decode."""

    stream: StreamDefinition
    columns: tuple[str, ...]
    origin: Origin

    def start_log(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Start the log, or continue with what it remembers. An error names the user's line."""
        try:
            return self.stream.log.start(memory, offsets)
        except PenstockError as error:
            raise type(error)(
                error.condition,
                error.primary,
                detail=error.detail,
                hint=error.hint,
                where=error.where or str(self.origin),
            ) from error


@dataclass(frozen=True)
class Plan:
    """One application, or all jobs together, ready to run."""

    name: str
    scans: Mapping[str, ScanPlan]
    stages: Mapping[str, Stage]
    edges: tuple[Edge, ...]
    outputs: Mapping[str, OutputPlan]
    fingerprint: str = ""
    #: its fingerprint in a state directory of format 1
    former_fingerprint: str = ""
    summary: str = ""
    levels: int = field(default=0)
    #: the level at which the rows of each job that is read are made
    job_levels: Mapping[EdgeSource, int] = field(default_factory=dict)
    #: None: an application, whose plan never changes
    jobs: JobsPlan | None = None
    #: outputs that run and have state of their own, which gets no events in this plan
    suspended_outputs: frozenset[str] = frozenset()
    #: jobs that were to be suspended, but whose rows others need that are not
    needed: frozenset[str] = frozenset()
    #: jobs that are paused or failed and keep their state, with the recovery that each declares
    stopped_jobs: Mapping[str, Semantics | None] = field(default_factory=dict)
    #: state of an app that commands have released: its outputs were dropped, emptied or altered
    released: frozenset[str] = frozenset()
    #: stages and outputs of an app's plan whose code fails some outputs alone, and the numbers of these outputs: if
    #: the stage raises, or an edge to it. An error elsewhere in that plan is everybody's
    isolated: Mapping[EdgeTarget, tuple[int, ...]] = field(default_factory=dict)

    def edges_from(self, source: EdgeSource) -> list[Edge]:
        return self._by_source.get(source, [])

    def edges_to(self, stage: str) -> list[Edge]:
        return [edge for edge in self.edges if edge.target.stage == stage]

    def stage_of(self, end: EdgeSource | EdgeTarget) -> Stage | None:
        """The stage at an end of an edge; None if it is something else."""
        return None if end.stage is None else self.stages.get(end.stage)

    def at_level(self, level: int) -> list[Stage]:
        return [stage for stage in self.stages.values() if stage.level == level]

    @cached_property
    def identities(self) -> Identities:
        """The identities of the states of all stages and of the rankings of outputs, by their ids."""
        states = {stage.id: stage.identity for stage in self.stages.values()}
        for name, output in self.outputs.items():
            if output.top is not None:
                states[output_state_id(name)] = digest_of(encode(output.top))
        versions = {stage.id: versions_of(stage.operator) for stage in self.stages.values()}
        readable = {stage.id: readable_versions(stage.operator) for stage in self.stages.values()}
        return Identities(
            states,
            {id_: ones for id_, ones in versions.items() if ones},
            {id_: ones for id_, ones in readable.items() if ones},
            None if self.jobs is None else self.jobs.numbers,
            self.released,
        )

    @cached_property
    def former_ids(self) -> Mapping[str, str]:
        """The id of each stage by its id in a state directory of format 1."""
        return {stage.former_id: stage.id for stage in self.stages.values() if stage.former_id}

    @cached_property
    def recoveries(self) -> Mapping[str, Semantics | None]:
        """The recovery that each output declares, and each stopped job."""
        return {**self.stopped_jobs, **{name: output.recovery for name, output in self.outputs.items()}}

    @cached_property
    def families(self) -> list[tuple[str, ...]]:
        """The stages, grouped by edges without an exchange: those of a family share one bucket map."""
        head = {stage: stage for stage in self.stages}
        order = {stage: number for number, stage in enumerate(self.stages)}

        def find_head(stage: str) -> str:
            while head[stage] != stage:
                stage = head[stage]
            return stage

        for edge in self.edges:
            if edge.forward:
                heads = find_head(edge.source.name), find_head(edge.target.name)
                first, second = sorted(heads, key=order.__getitem__)
                head[second] = first
        families: dict[str, list[str]] = {}
        for stage in self.stages:
            families.setdefault(find_head(stage), []).append(stage)
        return [tuple(family) for family in families.values()]

    @cached_property
    def whole_result_outputs(self) -> frozenset[str]:
        """The outputs whose rows of one instant are a whole result: a ranking, or all groups of a window."""
        sources: dict[str, set[EdgeSource]] = {}
        for edge in self.edges:
            if edge.target.output is not None:
                sources.setdefault(edge.target.output, set()).add(edge.source)
        for group, members in {} if self.jobs is None else self.jobs.members.items():
            for member in members.values():
                sources.setdefault(member.output, set()).add(EdgeSource("stage", group))
        whole = {
            EdgeSource("stage", stage.id)
            for stage in self.stages.values()
            if _emits_whole_results(stage.operator)
        }
        ranked = {name for name, output in self.outputs.items() if output.top is not None}
        # in a union, one source may emit rows of an instant that another has not reached
        alone = {name for name, feeding in sources.items() if len(feeding) == 1 and feeding <= whole}
        return frozenset(ranked | alone)

    @cached_property
    def _by_source(self) -> dict[EdgeSource, list[Edge]]:
        by_source: dict[EdgeSource, list[Edge]] = {}
        for edge in self.edges:
            by_source.setdefault(edge.source, []).append(edge)
        return by_source


def _emits_whole_results(operator: Operator) -> bool:
    """Whether the rows that an operator emits for one instant are a whole result."""
    if isinstance(operator, GroupTop):  # one that emits changes emits some groups only
        return not operator.top.changes_only
    return isinstance(operator, Aggregation | JobAggregation)


def maps_by_stage(maps: BucketMaps, plan: Plan) -> dict[str, BucketMap]:
    """The map of every stage: that of the first of its family which has one."""
    return {
        stage: owners
        for family in plan.families
        for owners in [next((maps.operators[s] for s in family if s in maps.operators), maps.default)]
        for stage in family
    }


def stage_runs(plan: Plan, collections: Collections, stage: str) -> Iterator[RunEntry]:
    """The runs of a stage's state: its own, and those of the rankings of its results."""
    owners = [stage]
    for edge in plan.edges_from(EdgeSource("stage", stage)):
        output = edge.target.output
        if output is not None and plan.outputs[output].top is not None:
            owners.append(output_state_id(output))
    for owner in owners:
        for entries in collections.get(owner, {}).values():
            yield from entries

"""The physical plan: sub-queries, the edges between them and their levels; what the engine's tasks carry out.

Receives its shape from the compiler; hands every task the same frozen description.

A *sub-query* is a stateful operator with the stateless steps after it on each edge. An *edge* leads the rows
of a scan or a sub-query to the next sub-query (exchanged by its key) or to an output. A *level* is one
exchange and one slice stage: sub-queries of a level share both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from penstock.errors import PenstockError
from penstock.ha.schemes import Semantics
from penstock.operators.contract import Operator
from penstock.operators.identity import digest_of, encode, read_by, versions_of
from penstock.operators.routing import ByKey, Partitioner, Route
from penstock.operators.top_k import TopK
from penstock.query.crowd import JobsPlan
from penstock.query.ends import EdgeSource, EdgeTarget
from penstock.query.instants import tells_whole_answers
from penstock.query.logical import StreamDefinition
from penstock.query.origin import Origin
from penstock.query.steps import Step
from penstock.sinks.contract import Sink
from penstock.state.continuity import Identities, state_of_output


@dataclass(frozen=True)
class Edge:
    """Rows on their way: from where they come (of a sub-query by its `output`), through steps, to a `port` of a
    sub-query or to an output.

    `place` tells the edges of a port apart where several lead there and order matters. `forward`: the rows
    are where they belong already and stay in their slice. `reduce`: they are merged before they travel.
    `needed`: the columns the target reads (None: all).
    """

    id: int
    source: EdgeSource
    steps: tuple[Step, ...]
    target: EdgeTarget
    port: int = 0
    output: str = ""
    place: int | None = None
    forward: bool = False
    reduce: bool = False
    needed: frozenset[str] | None = None


@dataclass(frozen=True)
class SubQuery:
    """A stateful operator and, if rows are ranked right after it, the local part of a top-k."""

    id: str
    level: int
    operator: Operator
    streams: tuple[str, ...]
    origin: Origin
    #: the user's own, a port each; none where rows go by their hash
    partitioners: tuple[Partitioner, ...] = ()
    #: what tells its state from that of others: the digest of all that this depends on
    identity: str = ""
    #: its id in a state directory of format 1
    former_id: str = ""

    def route(self, port: int = 0) -> Route:
        """How rows find their buckets, by the user's own partitioner where there is one."""
        route = self.operator.route(port)
        if self.partitioners and isinstance(route, ByKey):
            return replace(route, partitioner=self.partitioners[port])
        return route


@dataclass(frozen=True)
class OutputPlan:
    """A named result: its columns, how slices' answers are gathered, the steps after that, and its sinks.

    `job` is its number among jobs that come and go; `streams` are those its rows come from; `recovery` is what it may
    lose or repeat when the engine comes back (None: as the engine's settings say).
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
    """A stream to read and the columns that are needed of it."""

    stream: StreamDefinition
    columns: tuple[str, ...]
    origin: Origin

    def started(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Have the log begin, or go on from what it remembers; an error names the user's line."""
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
    """One application, ready to run. `given`: at which level the rows of each job that is read are made."""

    name: str
    scans: Mapping[str, ScanPlan]
    subqueries: Mapping[str, SubQuery]
    edges: tuple[Edge, ...]
    outputs: Mapping[str, OutputPlan]
    fingerprint: str = ""
    #: the fingerprint that it had in a state directory of format 1
    former_fingerprint: str = ""
    summary: str = ""
    levels: int = field(default=0)
    given: Mapping[EdgeSource, int] = field(default_factory=dict)
    #: jobs that come and go, if this is a plan of such; None: a plan for life
    jobs: JobsPlan | None = None
    #: outputs with state of their own that gets no events in this plan
    rested: frozenset[str] = frozenset()
    #: jobs that were to rest, and whose rows others need that were not
    needed: frozenset[str] = frozenset()
    #: jobs that are paused or failed, and keep their state: what each says of its recovery
    waiting: Mapping[str, Semantics | None] = field(default_factory=dict)
    #: state of an app that commands have released: its outputs were dropped, emptied or altered
    released: frozenset[str] = frozenset()

    def edges_from(self, source: EdgeSource) -> list[Edge]:
        return self._by_source.get(source, [])

    def edges_to(self, subquery: str) -> list[Edge]:
        """The edges that lead to a sub-query."""
        return [edge for edge in self.edges if edge.target.stage == subquery]

    def stage_of(self, end: EdgeSource | EdgeTarget) -> SubQuery | None:
        """The sub-query at an end of an edge; None where it is something else."""
        return None if end.stage is None else self.subqueries.get(end.stage)

    def at_level(self, level: int) -> list[SubQuery]:
        return [sub for sub in self.subqueries.values() if sub.level == level]

    @cached_property
    def identities(self) -> Identities:
        """What tells the state of each sub-query, and of each output's ranking, from other state: by their ids."""
        states = {sub.id: sub.identity for sub in self.subqueries.values()}
        for name, output in self.outputs.items():
            if output.top is not None:
                states[state_of_output(name)] = digest_of(encode(output.top))
        versions = {sub.id: versions_of(sub.operator) for sub in self.subqueries.values()}
        readable = {sub.id: read_by(sub.operator) for sub in self.subqueries.values()}
        return Identities(
            states,
            {id_: found for id_, found in versions.items() if found},
            {id_: found for id_, found in readable.items() if found},
            None if self.jobs is None else self.jobs.numbers,
            self.released,
        )

    @cached_property
    def former_ids(self) -> Mapping[str, str]:
        """The id that has become of each id in a state directory of format 1."""
        return {sub.former_id: sub.id for sub in self.subqueries.values() if sub.former_id}

    @cached_property
    def recoveries(self) -> Mapping[str, Semantics | None]:
        """What each output, and each job that waits, says of its recovery."""
        return {**self.waiting, **{name: output.recovery for name, output in self.outputs.items()}}

    @cached_property
    def families(self) -> list[tuple[str, ...]]:
        """The sub-queries between which rows are handed over inside a slice, together; others by themselves."""
        head = {sub: sub for sub in self.subqueries}
        order = {sub: place for place, sub in enumerate(self.subqueries)}

        def found(sub: str) -> str:
            while head[sub] != sub:
                sub = head[sub]
            return sub

        for edge in self.edges:
            if edge.forward:
                first, second = sorted(
                    (found(edge.source.name), found(edge.target.name)), key=order.__getitem__
                )
                head[second] = first
        together: dict[str, list[str]] = {}
        for sub in self.subqueries:
            together.setdefault(found(sub), []).append(sub)
        return [tuple(family) for family in together.values()]

    @cached_property
    def by_instant(self) -> frozenset[str]:
        """The outputs whose rows of one instant are a whole answer: those that rank, or aggregate over windows."""
        sources: dict[str, set[EdgeSource]] = {}
        for edge in self.edges:
            if edge.target.output is not None:
                sources.setdefault(edge.target.output, set()).add(edge.source)
        for group, members in {} if self.jobs is None else self.jobs.members.items():
            for member in members.values():
                sources.setdefault(member.output, set()).add(EdgeSource("stage", group))
        tellers = (sub.id for sub in self.subqueries.values() if tells_whole_answers(sub.operator))
        whole = {EdgeSource("stage", id_) for id_ in tellers}
        ranked = {name for name, output in self.outputs.items() if output.top is not None}
        # of several that are united, one may tell of an instant at which another has nothing to say yet
        return frozenset(
            ranked | {name for name, found in sources.items() if len(found) == 1 and found <= whole}
        )

    @cached_property
    def _by_source(self) -> dict[EdgeSource, list[Edge]]:
        found: dict[EdgeSource, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge)
        return found

"""How jobs that come and go take part in tasks: their events in the scan, their results after it.

Receives the events of a source or the results of a group of jobs; hands rows for groups, for outputs and for the
jobs that read other jobs. A job whose own steps fail is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.epoch.job_failures import Failures
from penstock.epoch.message import Rows
from penstock.epoch.task import EpochTask
from penstock.errors import PenstockError
from penstock.operators.contract import Operator
from penstock.operators.job_windows import JOB
from penstock.operators.panes import PaneOperator
from penstock.query.edges import JOBS, Edge, EdgeSource
from penstock.query.jobs_plan import GroupMember, TemplateGroup
from penstock.query.select_events import select_events
from penstock.query.steps import run_steps, run_steps_lazily
from penstock.state.buckets import HASH


@dataclass
class Told:
    """The rows that jobs tell in one task, put together where their columns are alike."""

    frames: dict[tuple[tuple[str, str], ...], list[pl.DataFrame]] = field(default_factory=dict)

    def add(self, rows: pl.DataFrame) -> None:
        """Rows with the numbers of their jobs."""
        rows = rows[[name for name in rows.columns if name != HASH]]  # `drop` takes four times as long
        alike = tuple((name, str(dtype)) for name, dtype in rows.schema.items())
        self.frames.setdefault(alike, []).append(rows)

    def messages(self) -> Iterator[bytes]:
        for alike in self.frames.values():
            yield Rows(JOBS, pl.concat(alike)).to_bytes()


def chosen(
    task: EpochTask, source: EdgeSource, frame: pl.DataFrame, failures: Failures
) -> Iterator[tuple[TemplateGroup, pl.DataFrame]]:
    """The events of each group of jobs on a source, prepared for the group's operator if it has one."""
    assert task.plan.jobs is not None
    shared = task.plan.jobs.selections[source]
    for selection in select_events(shared, frame, failures.add):
        group = selection.group
        if not group.target:
            yield group, selection.rows
            continue
        operator = task.plan.stages[group.target].operator
        try:
            if selection.keys is None or not isinstance(operator, PaneOperator):
                yield group, operator.prepare(selection.plain())
            elif selection.partial:
                yield group, operator.decode_keys(selection.rows, selection.keys)
            else:
                yield group, operator.prepare_encoded(selection.rows, selection.keys)
        except PenstockError:
            prepared = list(_one_by_one(operator, selection.plain(), failures))
            if prepared:
                yield group, pl.concat(prepared)


def _one_by_one(operator: Operator, rows: pl.DataFrame, failures: Failures) -> Iterator[pl.DataFrame]:
    for mine in rows.partition_by(JOB):
        try:
            yield operator.prepare(mine)
        except PenstockError as error:
            failures.add(int(mine[JOB][0]), error)


def results(
    task: EpochTask, group: str, rows: pl.DataFrame, failures: Failures
) -> Iterator[tuple[GroupMember | None, pl.DataFrame]]:
    """What the jobs of a group make of the group's rows, with the jobs' numbers: those alike together, then (with its
    member) each of the others."""
    assert task.plan.jobs is not None
    members = task.plan.jobs.members[group]
    alone: list[tuple[GroupMember, pl.DataFrame]] = []
    for those, mine in _by_steps(members, rows):
        if those[0].steps_id is None:
            alone.append((those[0], mine))
            continue
        try:
            made = run_steps_lazily(those[0].steps, mine, f"the results of {group or 'jobs'}")
        except PenstockError:  # of one of them
            alone += [(member, mine.filter(pl.col(JOB) == member.job)) for member in those]
            continue
        if made.height:
            yield None, made
    for member, mine in alone:
        found = None
        with failures.of(member.job, task.job_seconds):
            found = run_steps_lazily(member.steps, mine, f"the results of {member.output}")
        if found is not None and found.height:
            yield member, found


def _by_steps(
    members: Mapping[int, GroupMember], rows: pl.DataFrame
) -> Iterator[tuple[list[GroupMember], pl.DataFrame]]:
    """The rows of the jobs that are there, dealt out by the steps they go through next."""
    there, at = np.unique(rows[JOB].to_numpy(), return_inverse=True)
    dealt: dict[int | tuple[int], list[GroupMember]] = {}
    numbers: dict[int | tuple[int], int] = {}
    place = np.full(len(there), -1)
    for number, job in enumerate(there.tolist()):
        member = members.get(job)
        if member is not None:
            steps = (job,) if member.steps_id is None else member.steps_id
            numbers.setdefault(steps, len(numbers))
            place[number] = numbers[steps]
            dealt.setdefault(steps, []).append(member)
    order = np.argsort(place[at], kind="stable")
    ordered, ends = rows[order], np.searchsorted(place[at][order], np.arange(len(dealt) + 1))
    for number, those in enumerate(dealt.values()):
        yield those, ordered.slice(ends[number], ends[number + 1] - ends[number])


def best(task: EpochTask, output: str, rows: pl.DataFrame) -> pl.DataFrame:
    """A task's candidates for an output that shows the best rows of each window."""
    top = task.plan.outputs[output].top
    return rows if top is None else top.candidates(rows)


def read_by(
    task: EpochTask, output: str, rows: pl.DataFrame, where: str, failures: Failures
) -> Iterable[tuple[Edge, pl.DataFrame]]:
    """The rows of an output on their way to the jobs that read it, prepared for those."""
    for edge in task.plan.edges_from(EdgeSource("job", output)):
        made = prepared(task, edge, rows, where, failures)
        if made is not None:
            yield edge, made


def prepared(
    task: EpochTask, edge: Edge, rows: pl.DataFrame, where: str, failures: Failures
) -> pl.DataFrame | None:
    """Rows taken through an edge's steps and made ready for the operator it leads to; None when none are left."""
    made = None
    with failures.of(task.job_of(edge), task.job_seconds):
        made = run_steps(edge.steps, rows, where)
        operator = task.operator_of(edge)
        if made.height and operator is not None:
            # the hash is that of an operator before, not of this one
            made = operator.prepare(made.drop(HASH, strict=False), edge.port)
    return made if made is not None and made.height else None

"""Applies jobs that come and go in tasks: selects their events in the scan, and finishes their results after it.

Guarantees: a job whose own steps fail is left out and recorded in `JobFailures`; other jobs have the same rows as
without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.epoch.job_failures import JobFailures
from penstock.epoch.message import encode_rows
from penstock.epoch.task import EpochTask
from penstock.errors import PenstockError, UserError
from penstock.operators.contract import Operator
from penstock.operators.job_windows import JOB
from penstock.operators.panes import PaneOperator
from penstock.query.jobs_plan import GroupMember, TemplateGroup
from penstock.query.select_events import select_events
from penstock.query.steps import JOBS, Edge, EdgeSource, run_steps, run_steps_lazily
from penstock.state.buckets import HASH


@dataclass
class JobRows:
    """The rows that jobs emit in one task, with the numbers of their jobs: one frame for each schema."""

    frames: dict[tuple[tuple[str, str], ...], list[pl.DataFrame]] = field(default_factory=dict)

    def add(self, rows: pl.DataFrame) -> None:
        rows = rows[[name for name in rows.columns if name != HASH]]  # `drop` takes four times as long
        schema = tuple((name, str(dtype)) for name, dtype in rows.schema.items())
        self.frames.setdefault(schema, []).append(rows)

    def messages(self, task: EpochTask, failures: JobFailures) -> Iterator[bytes]:
        """The rows for the driver. Jobs whose rows are too large for it fail."""
        for frames in self.frames.values():
            rows = _drop_too_large(pl.concat(frames), task.job_result_bytes, failures)
            yield from encode_rows(JOBS, rows, spill_directory=task.location.spill_directory)


def _drop_too_large(rows: pl.DataFrame, most_bytes: int, failures: JobFailures) -> pl.DataFrame:
    if not most_bytes or rows.estimated_size() <= most_bytes:
        return rows
    too_large = []
    for (job,), part in rows.partition_by(JOB, as_dict=True).items():
        if (size := part.rechunk().estimated_size()) > most_bytes:
            failures.add(int(job), _too_large_error(int(size), most_bytes))
            too_large.append(job)
    return rows.filter(~pl.col(JOB).is_in(too_large))


def _too_large_error(size: int, most_bytes: int) -> UserError:
    return UserError(
        "JOB_RESULT_TOO_LARGE",
        f"the job emits {size / 1e6:,.1f} MB in one task of an epoch, and {most_bytes / 1e6:,.1f} MB is the most",
        hint="Let it aggregate or select less: the driver collects what jobs emit; or raise job_result_bytes. Then "
        "resume it.",
    )


def select_job_events(
    task: EpochTask, source: EdgeSource, frame: pl.DataFrame, failures: JobFailures
) -> Iterator[tuple[TemplateGroup, pl.DataFrame]]:
    """The events of each template group on a source, prepared for the group's operator if it has one."""
    assert task.plan.jobs is not None
    for selection in select_events(task.plan.jobs.selections[source], frame, failures.add):
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
            frames = list(_prepare_each(operator, selection.plain(), failures))
            if frames:
                yield group, pl.concat(frames)


def _prepare_each(operator: Operator, rows: pl.DataFrame, failures: JobFailures) -> Iterator[pl.DataFrame]:
    """Prepare the rows of each job apart, to find the job that fails."""
    for job_rows in rows.partition_by(JOB):
        try:
            yield operator.prepare(job_rows)
        except PenstockError as error:
            failures.add(int(job_rows[JOB][0]), error)


def apply_job_steps(
    task: EpochTask, group: str, rows: pl.DataFrame, failures: JobFailures
) -> Iterator[tuple[GroupMember | None, pl.DataFrame]]:
    """Apply each job's own steps to the rows of its group. Jobs with equal steps come together, then each of the others
    with its member; rows have the jobs' numbers."""
    assert task.plan.jobs is not None
    members = task.plan.jobs.members[group]
    single: list[tuple[GroupMember, pl.DataFrame]] = []
    for same, group_rows in _group_by_steps(members, rows):
        if same[0].steps_id is None:
            single.append((same[0], group_rows))
            continue
        try:
            results = run_steps_lazily(same[0].steps, group_rows, f"the results of {group or 'jobs'}")
        except PenstockError:  # of one of them
            single += [(member, group_rows.filter(pl.col(JOB) == member.job)) for member in same]
            continue
        if results.height:
            yield None, results
    for member, job_rows in single:
        job_results = None
        with failures.isolate((member.job,), task.job_seconds):
            job_results = run_steps_lazily(member.steps, job_rows, f"the results of {member.output}")
        if job_results is not None and job_results.height:
            yield member, job_results


def _group_by_steps(
    members: Mapping[int, GroupMember], rows: pl.DataFrame
) -> Iterator[tuple[list[GroupMember], pl.DataFrame]]:
    """Group the rows of the jobs that are present by the steps that come next."""
    present, index = np.unique(rows[JOB].to_numpy(), return_inverse=True)
    groups: dict[int | tuple[int], list[GroupMember]] = {}
    numbers: dict[int | tuple[int], int] = {}
    group_of = np.full(len(present), -1)
    for number, job in enumerate(present.tolist()):
        member = members.get(job)
        if member is not None:
            steps = (job,) if member.steps_id is None else member.steps_id
            group_of[number] = numbers.setdefault(steps, len(numbers))
            groups.setdefault(steps, []).append(member)
    order = np.argsort(group_of[index], kind="stable")
    ordered, ends = rows[order], np.searchsorted(group_of[index][order], np.arange(len(groups) + 1))
    for number, same in enumerate(groups.values()):
        yield same, ordered.slice(ends[number], ends[number + 1] - ends[number])


def _check_size(task: EpochTask, edge: Edge, rows: pl.DataFrame) -> None:
    """Raise if the rows of a job's own edge to its output are too large for the driver."""
    name, most = edge.target.output, task.job_result_bytes
    is_ranked = name is not None and task.plan.outputs[name].top is not None
    if most and not is_ranked and task.jobs_of(edge.target) and (size := rows.estimated_size()) > most:
        raise _too_large_error(int(size), most)


def rank_rows(task: EpochTask, output: str, rows: pl.DataFrame) -> pl.DataFrame:
    """A task's candidates for an output that has the best rows of each window; all rows for another output."""
    top = task.plan.outputs[output].top
    return rows if top is None else top.candidates(rows)


def route_to_readers(
    task: EpochTask, output: str, rows: pl.DataFrame, where: str, failures: JobFailures
) -> Iterable[tuple[Edge, pl.DataFrame]]:
    """The rows of an output for the jobs that read it, prepared for these."""
    for edge in task.plan.edges_from(EdgeSource("job", output)):
        prepared = prepare_rows(task, edge, rows, where, failures)
        if prepared is not None:
            yield edge, prepared


def prepare_rows(
    task: EpochTask, edge: Edge, rows: pl.DataFrame, where: str, failures: JobFailures
) -> pl.DataFrame | None:
    """Apply an edge's steps, and prepare the rows for the operator that it leads to; None when none are left."""
    prepared = None
    with failures.isolate(task.jobs_of(edge.target), task.job_seconds):
        prepared = run_steps(edge.steps, rows, where)
        operator = task.operator_of(edge)
        if prepared.height and operator is not None:
            # the hash is that of the operator before
            prepared = operator.prepare(prepared.drop(HASH, strict=False), edge.port)
        elif operator is None:
            _check_size(task, edge, prepared)
    return prepared if prepared is not None and prepared.height else None

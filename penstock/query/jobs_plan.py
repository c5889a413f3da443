"""The part of a plan that is about jobs: how their events are selected, in which template groups they run, and what
becomes of a group's results.

A job whose first part selects events of a stream is a row of tables, not an operator. Equal conditions of several jobs
are evaluated once. Jobs that differ only in the constants of equalities (`page == "a"`, `page == "b"`) are found by one
join with the table of their constants. Columns computed from the events (keys, values) are shared by all jobs that need
them. `select_events` executes this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.job_windows import JOB
from penstock.query.pane_totals import PaneOf
from penstock.query.steps import EdgeSource, MapStep, Step

#: a column of a source, and the type it is cast to, if any
PlainColumn = tuple[str, pl.DataType | None]


@dataclass(frozen=True)
class JobSelection:
    """How one job's events are found. Numbers are positions in the lists of the `SharedSelection`."""

    job: int
    #: all must hold
    conditions: tuple[int, ...] = ()
    #: operands, and the constants they must equal
    equalities: tuple[tuple[int, object], ...] = ()
    projection: int = 0
    #: how its panes are named, if its results can be totalled while events are selected; None: they cannot
    pane: PaneOf | None = None
    #: of each value, whether the job needs its least or greatest
    extremes: tuple[bool, ...] = ()


@dataclass(frozen=True)
class TemplateGroup:
    """Jobs that run together in the stage `target`, or, with an empty `target`, need no stage.

    `ordered`: the stage depends on the order of events, not only on their times.
    """

    target: str
    members: tuple[JobSelection, ...]
    ordered: bool = True


@dataclass(frozen=True)
class SharedSelection:
    """All jobs that select events of one source, with the lists that they share."""

    source: EdgeSource
    conditions: tuple[pl.Expr, ...]
    operands: tuple[pl.Expr, ...]
    #: steps that compute the columns of a group's rows, for all events
    projections: tuple[tuple[Step, ...], ...]
    groups: tuple[TemplateGroup, ...]

    @cached_property
    def tables(self) -> list[dict[int, JobTable]]:
        """The jobs of each group and projection, by how they are found."""
        return [
            {
                number: JobTable.of([member for member in group.members if member.projection == number])
                for number in dict.fromkeys(member.projection for member in group.members)
            }
            for group in self.groups
        ]

    @cached_property
    def masks(self) -> list[pl.Expr]:
        """The conditions, each in a column named by its number; null counts as false."""
        return [c.fill_null(False).alias(f"_{n}") for n, c in enumerate(self.conditions)]

    @cached_property
    def single_column_conditions(self) -> dict[str, list[int]]:
        """The conditions that depend on the value of one column alone, by that column."""
        by_column: dict[str, list[int]] = {}
        for number, condition in enumerate(self.conditions):
            roots = set(condition.meta.root_names())
            if len(roots) == 1 and ".python_udf(" not in str(condition) and _is_row_wise(condition):
                by_column.setdefault(roots.pop(), []).append(number)
        return by_column

    @cached_property
    def plain_columns(self) -> list[list[tuple[str, PlainColumn]] | None]:
        """For each projection, the source columns that its columns are; None if some are computed."""
        return [_plain_columns(steps) for steps in self.projections]


@dataclass(frozen=True)
class JobTable:
    """Jobs by how they are found: by conditions alone, or by a join with their constants."""

    #: by number, the jobs found by conditions alone whose results can be totalled
    totalled: Mapping[int, JobSelection]
    #: the jobs by their conditions
    by_conditions: Mapping[tuple[int, ...], npt.NDArray[np.uint32]]
    #: by conditions and operands: the constants (columns named by operand) and the jobs
    by_constants: Mapping[tuple[tuple[int, ...], tuple[int, ...]], pl.DataFrame]

    @staticmethod
    def of(members: Sequence[JobSelection]) -> JobTable:
        by_conditions: dict[tuple[int, ...], list[int]] = {}
        by_constants: dict[tuple[tuple[int, ...], tuple[int, ...]], list[JobSelection]] = {}
        for member in members:
            if member.equalities:
                operands = tuple(operand for operand, _ in member.equalities)
                by_constants.setdefault((member.conditions, operands), []).append(member)
            else:
                by_conditions.setdefault(member.conditions, []).append(member.job)
        return JobTable(
            {member.job: member for member in members if member.pane is not None},
            {conditions: np.array(jobs, dtype=np.uint32) for conditions, jobs in by_conditions.items()},
            {key: _constants(ones) for key, ones in by_constants.items()},
        )


def _constants(members: Sequence[JobSelection]) -> pl.DataFrame:
    columns: dict[str, list[object]] = {}
    for member in members:
        for operand, value in member.equalities:
            columns.setdefault(str(operand), []).append(value)
    jobs = pl.Series(JOB, [member.job for member in members], dtype=pl.UInt32)
    return pl.DataFrame(columns).with_columns(jobs)


def _is_row_wise(expr: pl.Expr) -> bool:
    """Whether the value for a row depends on that row alone. Polars answers that for the last step only."""
    return expr.meta.is_row_separable() and all(map(_is_row_wise, expr.meta.pop()))


def _plain_columns(steps: Sequence[Step]) -> list[tuple[str, PlainColumn]] | None:
    computed = steps[0].columns if len(steps) == 2 and isinstance(steps[0], MapStep) else ()
    plain = [(name, column) for name, expr in computed if (column := _plain_column(expr)) is not None]
    return plain if computed and len(plain) == len(computed) else None


def _plain_column(expr: pl.Expr) -> PlainColumn | None:
    """The column that an expression reads, and the cast, if it does nothing else."""
    roots = expr.meta.root_names()
    if len(roots) != 1:
        return None
    if expr.meta.is_column():
        return roots[0], None
    for dtype in (pl.String(), pl.Int64()):
        if expr.meta.eq(pl.col(roots[0]).cast(dtype)):
            return roots[0], dtype
    return None


@dataclass(frozen=True)
class GroupMember:
    """A job of a template group: its output, and the steps that make its results of the group's rows.

    Members with the same `steps_id` have the same steps, which are applied once for all; None: applied for it alone.
    """

    job: int
    output: str
    steps: tuple[Step, ...]
    steps_id: int | None = None


@dataclass(frozen=True)
class JobsPlan:
    """What a plan knows of jobs that come and go."""

    selections: Mapping[EdgeSource, SharedSelection]
    #: by the stage of their group ("" for jobs that need none) and number
    members: Mapping[str, Mapping[int, GroupMember]]
    #: the job to which a stage belongs alone
    owners: Mapping[str, int]
    #: the columns read of the results that jobs emitted in the epoch before
    previous: Mapping[str, Mapping[str, pl.DataType]] = field(default_factory=dict)
    #: the numbers of all jobs whose state each stage keeps, also of those that are paused or failed; and of the job of
    #: each ranking
    numbers: Mapping[str, frozenset[int]] = field(default_factory=dict)

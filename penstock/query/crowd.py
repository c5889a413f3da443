"""A crowd: the jobs on one stream whose first part is a choice of events. They are rows of tables, not programs.

Receives its shape from the planner of jobs; hands it to the tasks. How events are chosen is in `choosing`.

A job's events are those that pass its conditions. Equal conditions of several jobs are one. Jobs that differ only in
the constants of equalities (`page == "a"`, `page == "b"`) are found by one join with the table of their constants.
What is computed of the events (keys, what is summed) is one for all jobs that ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.job_windows import JOB
from penstock.query.ends import EdgeSource
from penstock.query.steps import MapStep, Step
from penstock.query.tally import PaneOf

#: a column of a source, and as which type it is read, if another
PlainColumn = tuple[str, pl.DataType | None]


@dataclass(frozen=True)
class Chosen:
    """How one job's events are found: they pass the conditions and have these values; numbers are of the crowd's
    lists."""

    job: int
    conditions: tuple[int, ...] = ()
    #: the operand, and the value it must have
    equal: tuple[tuple[int, object], ...] = ()
    projection: int = 0
    #: how its panes are named, where its answers can be tallied, and of which values it asks for least or greatest
    pane: PaneOf | None = None
    ends: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Group:
    """Jobs that are worked on together: by the sub-query of this name, or (with no name) by none.

    `ordered`: what works on them reads the order of events, not only their times.
    """

    target: str
    members: tuple[Chosen, ...]
    ordered: bool = True


@dataclass(frozen=True)
class Crowd:
    """All jobs that choose among the events of a source."""

    source: EdgeSource
    conditions: tuple[pl.Expr, ...]
    operands: tuple[pl.Expr, ...]
    #: steps over all events after which the columns of a group's rows are there
    projections: tuple[tuple[Step, ...], ...]
    groups: tuple[Group, ...]

    @cached_property
    def tables(self) -> list[dict[int, Table]]:
        """For each group and projection, its jobs by how they are found."""
        return [
            {
                number: Table.of([member for member in group.members if member.projection == number])
                for number in dict.fromkeys(member.projection for member in group.members)
            }
            for group in self.groups
        ]

    @cached_property
    def masks(self) -> list[pl.Expr]:
        """The conditions, each in a column of its number, false where nothing is known."""
        return [c.fill_null(False).alias(f"_{n}") for n, c in enumerate(self.conditions)]

    @cached_property
    def of_one(self) -> dict[str, list[int]]:
        """The conditions that say something of a column's value alone, by that column."""
        found: dict[str, list[int]] = {}
        for number, condition in enumerate(self.conditions):
            roots = set(condition.meta.root_names())
            if len(roots) == 1 and ".python_udf(" not in str(condition) and _row_by_row(condition):
                found.setdefault(roots.pop(), []).append(number)
        return found

    @cached_property
    def plain_columns(self) -> list[list[tuple[str, PlainColumn]] | None]:
        """For each projection, the columns of the source that its own are; None where some are not."""
        return [_plain_columns(steps) for steps in self.projections]


@dataclass(frozen=True)
class Table:
    """Jobs by how they are found: by conditions alone, or by a join with their constants."""

    #: those jobs, by number, whose answers can be tallied
    tallied: Mapping[int, Chosen]
    #: by conditions: those jobs
    alone: Mapping[tuple[int, ...], npt.NDArray[np.uint32]]
    #: by conditions and operands: the constants (columns named by operand) and the jobs
    joined: Mapping[tuple[tuple[int, ...], tuple[int, ...]], pl.DataFrame]

    @staticmethod
    def of(members: Sequence[Chosen]) -> Table:
        alone: dict[tuple[int, ...], list[int]] = {}
        joined: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Chosen]] = {}
        for member in members:
            if member.equal:
                operands = tuple(operand for operand, _ in member.equal)
                joined.setdefault((member.conditions, operands), []).append(member)
            else:
                alone.setdefault(member.conditions, []).append(member.job)
        return Table(
            {member.job: member for member in members if member.pane is not None},
            {conditions: np.array(jobs, dtype=np.uint32) for conditions, jobs in alone.items()},
            {key: _constants(found) for key, found in joined.items()},
        )


def _constants(members: Sequence[Chosen]) -> pl.DataFrame:
    columns: dict[str, list[object]] = {}
    for member in members:
        for operand, value in member.equal:
            columns.setdefault(str(operand), []).append(value)
    jobs = pl.Series(JOB, [member.job for member in members], dtype=pl.UInt32)
    return pl.DataFrame(columns).with_columns(jobs)


def _row_by_row(expr: pl.Expr) -> bool:
    """Whether an expression says of a row what it would if it were alone; Polars tells that of its last step only."""
    return expr.meta.is_row_separable() and all(map(_row_by_row, expr.meta.pop()))


def _plain_columns(steps: Sequence[Step]) -> list[tuple[str, PlainColumn]] | None:
    said = steps[0].columns if len(steps) == 2 and isinstance(steps[0], MapStep) else ()
    plain = [(name, meant) for name, expr in said if (meant := _plain_column(expr)) is not None]
    return plain if said and len(plain) == len(said) else None


def _plain_column(expr: pl.Expr) -> PlainColumn | None:
    """The column that an expression is, and the type as which, if that is all it is."""
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
class Member:
    """A job of a group: the output its results go to, and the steps that make them of the group's rows.

    Jobs with the same number `alike` have the same steps, and are worked on in one go; None: it is worked on alone.
    """

    job: int
    output: str
    steps: tuple[Step, ...]
    alike: int | None = None


@dataclass(frozen=True)
class JobsPlan:
    """What a plan knows of jobs that come and go: crowds by source, the members of groups by their
    sub-query ("" for those that need none) and number, the job to whom a sub-query belongs alone, and the columns
    that are read of what jobs told in the epoch before."""

    crowds: Mapping[EdgeSource, Crowd]
    members: Mapping[str, Mapping[int, Member]]
    owners: Mapping[str, int]
    previous: Mapping[str, Mapping[str, pl.DataType]] = field(default_factory=dict)
    #: the numbers of all jobs whose state each sub-query keeps, also of those that are paused or failed
    numbers: Mapping[str, frozenset[int]] = field(default_factory=dict)

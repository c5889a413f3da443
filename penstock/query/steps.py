"""Stateless steps: what each does to a frame, and how several are applied; and the edges of a plan, which they are on.

`EdgeSource` and `EdgeTarget` are frozen and small, as they are keys and travel in messages. Their `str` is for people,
and part of the identity of a state, which is persisted; nothing parses it.

On failure of a step: the error names the line of the user's program that declared the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

import polars as pl

from penstock.errors import PenstockError, UserError
from penstock.operators.contract import INPUT, ORDER
from penstock.operators.job_windows import JOB
from penstock.operators.strict import number_siblings
from penstock.origin import Origin, innermost_line
from penstock.state.buckets import HASH

#: columns that travel with the rows and are never the user's
INTERNAL_COLUMNS = (*ORDER, HASH, INPUT, JOB)
#: what computing rows raises: a panic in Polars, as of a date beyond its calendar, is no `Exception`
COMPUTING_RAISES: tuple[type[BaseException], ...] = (Exception, pl.exceptions.PanicException)


def compute(frame: pl.DataFrame, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
    """Add columns, whose values are the same whether a row is alone in the frame or not.

    Polars divides a column by a constant by multiplying with its reciprocal, but really divides a column of one row. So
    a single row is computed beside a null one.
    """
    if frame.height != 1 or _calls_python(expressions):
        return frame.with_columns(expressions)
    return pl.concat([frame, frame.shift(1)], rechunk=True).with_columns(expressions).head(1)


def filter_rows(frame: pl.DataFrame, predicates: Sequence[pl.Expr]) -> pl.DataFrame:
    """Keep the rows for which all predicates hold, with the same guarantee as `compute`."""
    if frame.height != 1 or _calls_python(predicates):
        return frame.filter(*predicates)
    mask = compute(frame, [pl.all_horizontal(predicates).alias("_passes")])["_passes"]
    return frame if mask[0] else frame.clear()


def _calls_python(expressions: Sequence[pl.Expr]) -> bool:
    return any(".python_udf(" in str(expr) for expr in expressions)


@dataclass(frozen=True)
class MapStep:
    """Compute columns."""

    columns: tuple[tuple[str, pl.Expr], ...]
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return compute(frame, [expr.alias(name) for name, expr in self.columns])


@dataclass(frozen=True)
class KeepStep:
    """Keep some columns."""

    names: tuple[str, ...]
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(*(name for name in INTERNAL_COLUMNS if name in frame.columns), *self.names)


@dataclass(frozen=True)
class FilterStep:
    """Keep some rows."""

    predicate: pl.Expr
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return filter_rows(frame, [self.predicate])


@dataclass(frozen=True)
class FunctionStep:
    """Call a function of the user's on a batch. `renumber`: it makes several rows of one, and each needs a position of
    its own in strict order."""

    function: Callable[[pl.DataFrame], pl.DataFrame]
    schema: Mapping[str, pl.DataType]
    origin: Origin
    renumber: bool = False

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        result = self.function(frame)
        internal = [name for name in INTERNAL_COLUMNS if name in frame.columns]
        missing = [name for name in (*internal, *self.schema) if name not in result.columns]
        if missing:
            raise UserError(
                "FUNCTION_LOST_COLUMNS",
                f"the function returned rows without the columns {', '.join(missing)}",
                where=str(self.origin),
                hint="Return the frame you were given with columns added or rows left out; keep the columns "
                "whose names start with an underscore.",
            )
        rows = result.select(*internal, *(pl.col(name).cast(dtype) for name, dtype in self.schema.items()))
        return number_siblings(rows) if self.renumber else rows


@dataclass(frozen=True)
class MergedStep:
    """Several filters, or several maps that do not read each other's columns, applied at once."""

    parts: tuple[FilterStep | MapStep, ...]

    @property
    def origin(self) -> Origin:
        return self.parts[0].origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        predicates = [part.predicate for part in self.parts if isinstance(part, FilterStep)]
        if predicates:
            return filter_rows(frame, predicates)
        columns = [column for part in self.parts if isinstance(part, MapStep) for column in part.columns]
        return compute(frame, [expr.alias(name) for name, expr in columns])


@dataclass(frozen=True)
class ExplodeStep:
    """Make a row for every value of list columns; none where there is no value."""

    columns: tuple[str, ...]
    origin: Origin
    renumber: bool = True

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.explode(*self.columns, empty_as_null=False, keep_nulls=False)
        return number_siblings(rows) if self.renumber else rows


Step = MapStep | KeepStep | FilterStep | FunctionStep | ExplodeStep | MergedStep


def is_renumbering(step: Step) -> TypeGuard[FunctionStep | ExplodeStep]:
    """Whether a step makes several rows of one and gives each a position of its own."""
    return isinstance(step, FunctionStep | ExplodeStep) and step.renumber


def run_steps(steps: tuple[Step, ...], frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Apply steps. An error names the user's line, and in `where` what was being worked on."""
    for step in steps:
        if not frame.height and isinstance(step, FunctionStep):
            frame = frame.select(
                *(name for name in INTERNAL_COLUMNS if name in frame.columns),
                *(pl.lit(None, dtype).alias(name) for name, dtype in step.schema.items()),
            )
            continue
        try:
            frame = step.apply(frame)
        except PenstockError as error:
            raise locate_error(error, error.where, where) from error
        except COMPUTING_RAISES as failure:
            if isinstance(step, MergedStep):
                # one by one: a filter may guard the one after it; if not, this finds the one that fails
                frame = run_steps(step.parts, frame, where)
                continue
            raise _step_error(step, failure, where) from failure
    return frame


def run_steps_lazily(steps: tuple[Step, ...], frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """As `run_steps`, but in one lazy query where all steps are expressions, which costs less."""
    if frame.height < 2 or not all(isinstance(step, MapStep | KeepStep | FilterStep) for step in steps):
        return run_steps(steps, frame, where)
    lazy, names = frame.lazy(), frame.columns
    for step in steps:
        match step:
            case MapStep():
                lazy = lazy.with_columns(expr.alias(name) for name, expr in step.columns)
                names = list(dict.fromkeys([*names, *(name for name, _ in step.columns)]))
            case KeepStep():
                names = [*(name for name in INTERNAL_COLUMNS if name in names), *step.names]
                lazy = lazy.select(names)
            case FilterStep():
                lazy = lazy.filter(step.predicate)
    try:
        return lazy.collect()
    except COMPUTING_RAISES:  # one by one, to find which it was
        return run_steps(steps, frame, where)


def locate_error(error: PenstockError, line: str | None, where: str) -> PenstockError:
    """The same error with the user's line, unless it has one, and what was being worked on."""
    detail = f"{error.detail}; while working on {where}" if error.detail else f"while working on {where}"
    return type(error)(
        error.condition,
        error.primary,
        detail=detail,
        hint=error.hint,
        where=error.where or line,
        is_transient=error.is_transient,
    )


def _step_error(step: Step, failure: BaseException, where: str) -> UserError:
    code = getattr(step.function, "__code__", None) if isinstance(step, FunctionStep) else None
    line = innermost_line(failure, () if code is None else (code.co_filename,)) or step.origin
    return UserError(
        "USER_FUNCTION_FAILED" if isinstance(step, FunctionStep) else "EXPRESSION_FAILED",
        f"{type(failure).__name__}: {failure}",
        where=str(line),
        detail=f"while working on {where}",
        hint="Nothing is lost: fix it and start again with the same state directory; the epoch is repeated.",
    )


SourceKind = Literal["scan", "late", "job", "previous", "selection", "stage"]
TargetKind = Literal["stage", "output", "jobs"]


@dataclass(frozen=True)
class EdgeSource:
    """Where rows come from: a stream (`scan`) or its late events (`late`), a job's rows of this epoch (`job`) or of the
    one before (`previous`), the events that jobs select of a stream (`selection`), or a `stage`."""

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "stage" else f"{self.kind}:{self.name}"

    @property
    def stage(self) -> str | None:
        """The id of the stage, if it is one."""
        return self.name if self.kind == "stage" else None


@dataclass(frozen=True)
class EdgeTarget:
    """Where rows go: to a `stage`, to an `output`, or to the outputs of all `jobs` whose numbers are with the rows."""

    kind: TargetKind
    name: str = ""

    def __str__(self) -> str:
        return f"out:{self.name}" if self.kind == "output" else self.name or "jobs"

    @property
    def stage(self) -> str | None:
        """The id of the stage, if it is one."""
        return self.name if self.kind == "stage" else None

    @property
    def output(self) -> str | None:
        """The name of the output, if it is one."""
        return self.name if self.kind == "output" else None


#: the outputs of jobs, whose numbers are in the rows
JOBS = EdgeTarget("jobs")


@dataclass(frozen=True)
class Edge:
    """Rows on their way from a source to a `port` of a stage or to an output, through stateless steps.

    `output` names the source's output, where a stage has several. `place` is the edge's position among those of its
    port, if order matters there. `forward`: the rows stay in their slice, without an exchange. `reduce`: they are
    merged before the exchange. `needed`: the columns the target reads (None: all).
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

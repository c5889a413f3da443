"""Steps without state, which run on the rows of an edge: what each does to a frame, and how several are run.

Receives a frame and steps; returns a frame. A failure names the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import polars as pl

from penstock.errors import PenstockError, UserError
from penstock.operators.contract import INPUT, ORDER, TIME
from penstock.operators.job_windows import JOB
from penstock.operators.strict import number_siblings
from penstock.origin import innermost_line
from penstock.query.origin import Origin
from penstock.state.buckets import HASH

#: columns that travel with the rows and are never the user's
CARRIED = (*ORDER, HASH, INPUT, JOB)


def computed(frame: pl.DataFrame, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
    """The frame with these columns, which are the same whether a row is alone in it or not.

    Polars divides a column by a constant by multiplying with its reciprocal, but divides a column of one row; so a row
    is never left alone.
    """
    if frame.height != 1 or any(".python_udf(" in str(expr) for expr in expressions):
        return frame.with_columns(expressions)
    return pl.concat([frame, frame.shift(1)], rechunk=True).with_columns(expressions).head(1)


def passed(frame: pl.DataFrame, predicates: Sequence[pl.Expr]) -> pl.DataFrame:
    """The rows that pass, of which the same is true."""
    if frame.height != 1 or any(".python_udf(" in str(expr) for expr in predicates):
        return frame.filter(*predicates)
    mask = computed(frame, [pl.all_horizontal(predicates).alias("_passes")])["_passes"]
    return frame if mask[0] else frame.clear()


@dataclass(frozen=True)
class MapStep:
    """Compute columns."""

    columns: tuple[tuple[str, pl.Expr], ...]
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return computed(frame, [expr.alias(name) for name, expr in self.columns])


@dataclass(frozen=True)
class KeepStep:
    """Keep some columns."""

    names: tuple[str, ...]
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(*(name for name in CARRIED if name in frame.columns), *self.names)


@dataclass(frozen=True)
class FilterStep:
    """Keep some rows."""

    predicate: pl.Expr
    origin: Origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        return passed(frame, [self.predicate])


@dataclass(frozen=True)
class FunctionStep:
    """The user's own function on a batch. `apart`: it makes several rows of one, and they get places of their own."""

    function: Callable[[pl.DataFrame], pl.DataFrame]
    schema: Mapping[str, pl.DataType]
    origin: Origin
    apart: bool = False

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        result = self.function(frame)
        carried = [name for name in CARRIED if name in frame.columns]
        lost = [name for name in (*carried, *self.schema) if name not in result.columns]
        if lost:
            raise UserError(
                "FUNCTION_LOST_COLUMNS",
                f"the function returned rows without the columns {', '.join(lost)}",
                where=str(self.origin),
                hint="Return the frame you were given with columns added or rows left out; keep the columns "
                "whose names begin with an underscore.",
            )
        made = result.select(*carried, *(pl.col(name).cast(dtype) for name, dtype in self.schema.items()))
        return number_siblings(made) if self.apart else made


@dataclass(frozen=True)
class MergedStep:
    """Filters, or maps that do not need each other, done in one go."""

    parts: tuple[FilterStep | MapStep, ...]

    @property
    def origin(self) -> Origin:
        return self.parts[0].origin

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        predicates = [part.predicate for part in self.parts if isinstance(part, FilterStep)]
        if predicates:
            return passed(frame, predicates)
        columns = [column for part in self.parts if isinstance(part, MapStep) for column in part.columns]
        return computed(frame, [expr.alias(name) for name, expr in columns])


@dataclass(frozen=True)
class ExplodeStep:
    """One row for every value of list columns; none where there is no value."""

    columns: tuple[str, ...]
    origin: Origin
    apart: bool = True

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        made = frame.explode(*self.columns, empty_as_null=False, keep_nulls=False)
        return number_siblings(made) if self.apart else made


Step = MapStep | KeepStep | FilterStep | FunctionStep | ExplodeStep | MergedStep


def multiplies(step: Step) -> TypeGuard[FunctionStep | ExplodeStep]:
    """Whether a step makes several rows of one and gives them places of their own."""
    return isinstance(step, FunctionStep | ExplodeStep) and step.apart


def run_steps(steps: tuple[Step, ...], frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Apply steps; a failure names the user's line and `where` it happened."""
    for step in steps:
        if not frame.height and isinstance(step, FunctionStep):
            frame = frame.select(
                *(name for name in CARRIED if name in frame.columns),
                *(pl.lit(None, dtype).alias(name) for name, dtype in step.schema.items()),
            )
            continue
        try:
            frame = step.apply(frame)
        except PenstockError as error:
            raise located(error, error.where, where) from error
        except Exception as failure:
            if isinstance(step, MergedStep):
                # one by one: a filter may have been there to guard the one after it; else, to tell which it was
                frame = run_steps(step.parts, frame, where)
                continue
            raise step_failed(step, failure, where) from failure
    return frame


def run_at_once(steps: tuple[Step, ...], frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """The same in one go, where all steps are simple: sparing what each costs by itself."""
    if frame.height < 2 or not all(isinstance(step, MapStep | KeepStep | FilterStep) for step in steps):
        return run_steps(steps, frame, where)
    lazy, names = frame.lazy(), frame.columns
    for step in steps:
        match step:
            case MapStep():
                lazy = lazy.with_columns(expr.alias(name) for name, expr in step.columns)
                names = list(dict.fromkeys([*names, *(name for name, _ in step.columns)]))
            case KeepStep():
                names = [*(name for name in CARRIED if name in names), *step.names]
                lazy = lazy.select(names)
            case FilterStep():
                lazy = lazy.filter(step.predicate)
    try:
        return lazy.collect()
    except Exception:  # one by one, to tell which it was
        return run_steps(steps, frame, where)


def located(error: PenstockError, at: str | None, where: str) -> PenstockError:
    """The same error, saying the user's line and where in the stream it happened."""
    detail = f"{error.detail}; while working on {where}" if error.detail else f"while working on {where}"
    return type(error)(
        error.condition, error.primary, detail=detail, hint=error.hint, where=error.where or at
    )


def step_failed(step: Step, failure: Exception, where: str) -> UserError:
    """What to tell when a user's expression or function raises."""
    code = getattr(step.function, "__code__", None) if isinstance(step, FunctionStep) else None
    at = innermost_line(failure, () if code is None else (code.co_filename,)) or step.origin
    return UserError(
        "USER_FUNCTION_FAILED" if isinstance(step, FunctionStep) else "EXPRESSION_FAILED",
        f"{type(failure).__name__}: {failure}",
        where=str(at),
        detail=f"while working on {where}",
        hint="Nothing is lost: mend it and start again with the same state directory; the epoch is repeated.",
    )


def user_columns(frame: pl.DataFrame) -> list[str]:
    """The columns that are the user's."""
    return [name for name in frame.columns if name not in CARRIED and name != TIME]

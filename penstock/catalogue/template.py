"""The standard form of a job: events chosen by conditions, aggregated over windows of time or not at all, and results
made of that. Jobs of this form are worked on together.

Receives a job's optimised plan; hands its standard form, or None where it says something else. Pure.

Columns get plain names (`k0`, `v0`, `a0`), so that jobs that differ in what they call things are still alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.operators.aggregate import Aggregation
from penstock.operators.functions import AggregateFunction
from penstock.operators.functions.count_sum import Count
from penstock.operators.functions.extremes import Max, Min
from penstock.operators.functions.summary import ROWS, Summary, is_in_summary, read_summary, summarize_column
from penstock.operators.functions.user import User
from penstock.operators.identity import Json, digest_of, encode
from penstock.operators.job_windows import (
    JOB,
    JobAggregation,
    JobGapAggregation,
    JobSlidingAggregation,
    JobWindows,
)
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import TimeWindow
from penstock.operators.top_k import TopK
from penstock.query import logical
from penstock.query.check import empty_frame
from penstock.query.pane_totals import PaneOf
from penstock.query.rules.push_projections import find_roots, prune
from penstock.query.rules.share_equal import value_key
from penstock.query.steps import FilterStep, KeepStep, MapStep, Step

#: types of which constants can be looked up in a table
_COMPARED = (pl.String, pl.Boolean, pl.Date)


@dataclass(frozen=True)
class TemplateAggregation:
    """What a job aggregates, in plain names: keys and values by type, functions, windows."""

    key_types: tuple[pl.DataType, ...]
    aggregates: tuple[AggregateFunction, ...]
    window: TimeWindow

    @property
    def keys(self) -> tuple[str, ...]:
        return (JOB, *(f"k{number}" for number in range(len(self.key_types))))

    @property
    def overlapping(self) -> TimeWindow | None:
        """The window, if others share events with it or there are gaps between them."""
        return None if self.window.size == self.window.advance else self.window

    @property
    def shape(self) -> Json:
        """What jobs have in common that can be worked on together; windows may differ where none overlap."""
        return {
            "keys": encode(self.key_types),
            "aggregates": encode(self.aggregates),
            "window": encode(self.overlapping),
        }

    @property
    def ordered(self) -> bool:
        """Whether it reads the order of events."""
        return any(aggregate.sequential for aggregate in self.aggregates)

    @property
    def pane(self) -> PaneOf | None:
        """How panes are named, where all that is asked for can be tallied; else None."""
        size, advance, offset = self.window.size, self.window.advance, self.window.offset
        simple = all(
            isinstance(a, Summary) or (type(a) is Count and a.alias == ROWS) for a in self.aggregates
        )
        if not simple or size % advance:
            return None
        return advance, offset, size if size == advance else 0

    def operator(self, windows: tuple[tuple[int, int, int], ...]) -> Aggregation | JobAggregation:
        """What works on jobs of this shape; `windows` are number, size and offset of each."""
        if self.window.size == self.window.advance:
            return JobAggregation(self.keys, JobWindows(windows), self.aggregates)
        kind = JobGapAggregation if self.window.is_disjoint else JobSlidingAggregation
        return kind(self.keys, self.window, self.aggregates)


@dataclass(frozen=True)
class TemplateForm:
    """A job in standard form.

    `steps` make the plain columns (or those needed) of the events; `after` makes its rows of the group's rows;
    `finally_` what is left to do once they are ranked.
    """

    source: logical.Source
    conditions: tuple[pl.Expr, ...]
    equalities: tuple[tuple[pl.Expr, object], ...]
    steps: tuple[Step, ...]
    aggregation: TemplateAggregation | None
    after: tuple[Step, ...]
    top: TopK | None
    final_steps: tuple[Step, ...]
    schema: Mapping[str, pl.DataType]
    #: the columns before the rows are ranked, and those needed of the source
    unranked: Mapping[str, pl.DataType]
    needed: frozenset[str]
    #: of which of its values it asks for the least or the greatest
    ends: tuple[bool, ...] = ()

    @property
    def signature(self) -> str:
        """What its state depends on: kept as long as this stays the same."""
        if self.aggregation is None:
            return "stateless"
        steps: list[Json] = [_encoded(step) for step in (*self.steps, self.after[0])]
        stream = self.source.stream.name
        return digest_of([stream, self.aggregation.shape, encode(self.aggregation.window), *steps])

    @property
    def projection(self) -> Hashable:
        """What tells its steps from those of others."""
        return steps_key(self.steps)


def find_template(output: logical.Output) -> TemplateForm | None:
    """The standard form of a job's plan; None also where it calls Python, which is not to hold up others."""
    found = _standard(output)
    return None if found is None or any(map(_calls_python, _expressions(found))) else found


def _expressions(said: TemplateForm) -> Iterator[pl.Expr]:
    yield from said.conditions
    yield from (operand for operand, _ in said.equalities)
    for step in said.steps:
        if isinstance(step, MapStep):
            yield from (expr for _, expr in step.columns)


def steps_key(steps: tuple[Step, ...]) -> Hashable:
    """What tells steps from others."""
    return tuple(
        value_key(
            getattr(step, "columns", None) or getattr(step, "names", None) or getattr(step, "predicate", None)
        )
        for step in steps
    )


def calls_python(steps: tuple[Step, ...]) -> bool:
    """Whether steps call a function of the user's."""
    made = [expr for step in steps if isinstance(step, MapStep) for _, expr in step.columns]
    asked = [step.predicate for step in steps if isinstance(step, FilterStep)]
    return any(map(_calls_python, [*made, *asked]))


def _calls_python(expr: pl.Expr) -> bool:
    return ".python_udf(" in str(expr)


def _standard(output: logical.Output) -> TemplateForm | None:
    node, finally_ = _peeled(output.node) if _ranked(output.node) else (output.node, ())
    top = None
    if isinstance(node, logical.Top):
        top, node = node.top, node.input
    unranked = node.schema
    aggregate, after = _peeled(node)
    if not isinstance(aggregate, logical.Stateful):
        if top is not None or not isinstance(aggregate, logical.Source):
            return None
        return _stateless(output, aggregate, after)
    found = aggregate.operator
    if type(found) not in (Aggregation, SlidingAggregation) or (top is not None and top.running):
        return None
    assert isinstance(found, Aggregation)
    if any(isinstance(a, User) for a in found.aggregates):
        return None
    source, before = _peeled(aggregate.parts[0])
    if not isinstance(source, logical.Source) or any(isinstance(s, FilterStep) for s in _rest(before)):
        return None
    plain = _plain(found, aggregate.parts[0].schema)
    last = (
        MapStep(plain.columns, aggregate.origin),
        KeepStep(tuple(name for name, _ in plain.columns), aggregate.origin),
    )
    wanted = {name for name, _ in plain.columns}
    steps = prune((*_rest(before), *last), wanted)
    named = MapStep(plain.named, aggregate.origin), KeepStep(tuple(aggregate.schema), aggregate.origin)
    conditions, equal = _conditions(before, source.schema)
    return TemplateForm(
        source,
        conditions,
        equal,
        steps,
        plain.aggregation,
        (*named, *after),
        top,
        finally_,
        output.node.schema,
        unranked,
        _columns(source, (*_first(before), *steps), wanted),
        plain.ends,
    )


@dataclass(frozen=True)
class _Plain:
    """An aggregate in plain names: the columns it reads, what is aggregated, and its answers in the job's own names."""

    columns: tuple[tuple[str, pl.Expr], ...]
    aggregation: TemplateAggregation
    named: tuple[tuple[str, pl.Expr], ...]
    ends: tuple[bool, ...] = ()


def _plain(found: Aggregation, given: Mapping[str, pl.DataType]) -> _Plain:
    """The plain form: the fewer forms there are, the more jobs can be worked on together. So whole numbers that are
    keys are texts in it, and of whole numbers all that is simple is computed, whichever of it a job asked for."""
    columns: list[tuple[str, pl.Expr]] = []
    named: list[tuple[str, pl.Expr]] = []
    types: list[pl.DataType] = []
    for number, key in enumerate(found.keys):
        dtype, name = given[key], f"k{number}"
        whole = dtype.is_integer()
        types.append(pl.String() if whole else dtype)
        columns.append((name, pl.col(key).cast(pl.String) if whole else pl.col(key)))
        named.append((key, pl.col(name).cast(dtype) if whole else pl.col(name)))
    aggregates: list[AggregateFunction] = []
    ends: tuple[bool, ...] = ()
    if all(type(a) is Count or is_in_summary(a) for a in found.aggregates):
        values = list(dict.fromkeys(a.column for a in found.aggregates if a.column is not None))
        columns += [(f"v{n}", pl.col(column).cast(pl.Int64)) for n, column in enumerate(values)]
        aggregates = [Count(ROWS, None), *(summarize_column(f"a{n}", f"v{n}") for n in range(len(values)))]
        extreme = {a.column for a in found.aggregates if isinstance(a, Min | Max)}
        ends = tuple(column in extreme for column in values)
        for a in found.aggregates:
            told = pl.col(ROWS) if a.column is None else read_summary(a, f"a{values.index(a.column)}")
            named.append((a.alias, told))
    else:
        columns += [(f"v{n}", pl.col(a.column)) for n, a in enumerate(found.aggregates) if a.column]
        aggregates = [
            replace(a, alias=f"a{n}", column=a.column and f"v{n}") for n, a in enumerate(found.aggregates)
        ]
        named += [(a.alias, pl.col(f"a{n}")) for n, a in enumerate(found.aggregates)]
    aggregated = TemplateAggregation(tuple(types), tuple(aggregates), found.window)
    return _Plain(tuple(columns), aggregated, tuple(named), ends)


def _stateless(output: logical.Output, source: logical.Source, steps: tuple[Step, ...]) -> TemplateForm:
    conditions, equal = _conditions(steps, source.schema)
    rest = prune(_rest(steps), set(output.node.schema))
    used = _columns(source, rest, set(output.node.schema))
    keep = KeepStep(tuple(name for name in source.schema if name in used), source.origin)
    needed = used | _columns(source, _first(steps), set())
    return TemplateForm(
        source,
        conditions,
        equal,
        (keep,),
        None,
        rest,
        None,
        (),
        output.node.schema,
        output.node.schema,
        needed,
    )


def _columns(source: logical.Source, steps: tuple[Step, ...], needed: set[str]) -> frozenset[str]:
    return frozenset(find_roots(steps, needed, set(source.schema)))


def _ranked(node: logical.Node) -> bool:
    while isinstance(node, logical.Map):
        node = node.input
    return isinstance(node, logical.Top)


def _peeled(node: logical.Node) -> tuple[logical.Node, tuple[Step, ...]]:
    """The node below maps and filters, and those as steps."""
    steps: list[Step] = []
    while isinstance(node, logical.Map | logical.Filter):
        if isinstance(node, logical.Filter):
            steps.append(FilterStep(node.predicate, node.origin))
        else:
            if node.only:
                steps.append(KeepStep(tuple(name for name, _ in node.columns), node.origin))
            steps.append(MapStep(node.columns, node.origin))
        node = node.input
    return node, tuple(reversed(steps))


def _first(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The filters before anything is computed."""
    count = next((n for n, step in enumerate(steps) if not isinstance(step, FilterStep)), len(steps))
    return steps[:count]


def _rest(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return steps[len(_first(steps)) :]


def _conditions(
    steps: tuple[Step, ...], schema: Mapping[str, pl.DataType]
) -> tuple[tuple[pl.Expr, ...], tuple[tuple[pl.Expr, object], ...]]:
    """Conditions to compute, and pairs of an expression and the constant it must be equal to, each operand once."""
    conditions: list[pl.Expr] = []
    equal: dict[str, tuple[pl.Expr, object]] = {}
    for step in _first(steps):
        assert isinstance(step, FilterStep)
        pair = _equality(step.predicate, schema)
        if pair is not None and str(pair[0]) not in equal:
            equal[str(pair[0])] = pair
        else:
            conditions.append(step.predicate)
    return tuple(conditions), tuple(equal[name] for name in sorted(equal))


def _equality(predicate: pl.Expr, schema: Mapping[str, pl.DataType]) -> tuple[pl.Expr, object] | None:
    """The two sides of `expression == constant`, where a table can find the constant as the comparison would."""
    sides = predicate.meta.pop()
    if len(sides) != 2:
        return None
    for operand, constant in (sides, sides[::-1]):
        either = any(predicate.meta.eq(made) for made in (operand == constant, constant == operand))
        if not either or not constant.meta.is_literal() or operand.meta.is_literal():
            continue
        if not operand.meta.root_names() or _calls_python(operand):
            continue
        kind = empty_frame(schema).select(operand.alias("x")).schema["x"]
        value = pl.select(constant.alias("x")).to_series()
        if value[0] is None or not (kind in _COMPARED or kind.is_integer()):
            continue
        if kind != value.dtype and not (kind.is_integer() and value.dtype.is_integer()):
            continue
        if kind.is_integer() and value.cast(kind, strict=False)[0] != value[0]:
            continue
        return operand, value[0]
    return None


def _encoded(step: Step) -> Json:
    """What a step does. It is compared with others in one process only, so every detail of an expression counts."""
    match step:
        case MapStep():
            return ["map", {name: _exactly(expr) for name, expr in step.columns}]
        case KeepStep():
            return ["keep", *step.names]
        case FilterStep():
            return ["filter", _exactly(step.predicate)]
    raise AssertionError(f"{step} is no step of a job in standard form")


def _exactly(expr: pl.Expr) -> str:
    try:
        return hashlib.sha256(expr.meta.serialize()).hexdigest()
    except pl.exceptions.PolarsError:  # a function of Python's
        return str(expr)

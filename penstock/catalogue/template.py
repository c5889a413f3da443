"""Find the template form of a job: conditions that select events of one stream, an aggregation over windows of time or
none, and steps that make its results. Jobs with equal templates run together as a template group: `planner.py`
puts them into it. Pure.

Columns get plain names (`k0`, `v0`, `a0`), so that jobs that only name things differently have equal templates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

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

#: types whose constants can be looked up in a table
_LOOKUP_TYPES = (pl.String, pl.Boolean, pl.Date)


@dataclass(frozen=True)
class TemplateAggregation:
    """The aggregation of a job, in plain names: the types of keys, functions and windows."""

    key_types: tuple[pl.DataType, ...]
    aggregates: tuple[AggregateFunction, ...]
    window: TimeWindow

    @property
    def keys(self) -> tuple[str, ...]:
        return (JOB, *(f"k{number}" for number in range(len(self.key_types))))

    @property
    def overlapping(self) -> TimeWindow | None:
        """The window, if windows overlap or there are gaps between them; else None."""
        return None if self.window.size == self.window.advance else self.window

    @property
    def shape(self) -> Json:
        """What jobs of one template group have in common; windows may differ where none overlap."""
        return {
            "keys": encode(self.key_types),
            "aggregates": encode(self.aggregates),
            "window": encode(self.overlapping),
        }

    @property
    def is_ordered(self) -> bool:
        """Whether it depends on the order of events."""
        return any(aggregate.sequential for aggregate in self.aggregates)

    @property
    def pane(self) -> PaneOf | None:
        """How panes are named, if all aggregates can be totalled while events are selected; else None."""
        size, advance, offset = self.window.size, self.window.advance, self.window.offset
        can_total = all(
            isinstance(a, Summary) or (type(a) is Count and a.alias == ROWS) for a in self.aggregates
        )
        if not can_total or size % advance:
            return None
        return advance, offset, size if size == advance else 0

    def operator(self, windows: tuple[tuple[int, int, int], ...]) -> Aggregation | JobAggregation:
        """The operator for all jobs of this shape; `windows` are number, size and offset of each job."""
        if self.window.size == self.window.advance:
            return JobAggregation(self.keys, JobWindows(windows), self.aggregates)
        kind = JobGapAggregation if self.window.is_disjoint else JobSlidingAggregation
        return kind(self.keys, self.window, self.aggregates)


@dataclass(frozen=True)
class TemplateForm:
    """A job in template form.

    `steps` make the plain columns (or those needed) of the events, `result_steps` make the job's rows of the group's
    rows, and `final_steps` follow the ranking.
    """

    source: logical.Source
    conditions: tuple[pl.Expr, ...]
    #: expressions and the constants that they must equal
    equalities: tuple[tuple[pl.Expr, object], ...]
    steps: tuple[Step, ...]
    aggregation: TemplateAggregation | None
    result_steps: tuple[Step, ...]
    top: TopK | None
    final_steps: tuple[Step, ...]
    schema: Mapping[str, pl.DataType]
    #: the columns that it needs of the source
    columns_read: frozenset[str]
    #: of each value, whether the job needs its least or greatest
    extremes: tuple[bool, ...] = ()

    @property
    def signature(self) -> str:
        """A digest of what its state depends on: state is kept as long as this stays the same."""
        if self.aggregation is None:
            return "stateless"
        steps: list[Json] = [_encode_step(step) for step in (*self.steps, self.result_steps[0])]
        stream = self.source.stream.name
        return digest_of([stream, self.aggregation.shape, encode(self.aggregation.window), *steps])


def find_template(output: logical.Output) -> TemplateForm | None:
    """The template form of a job's optimised plan; None if it has none or calls Python, which must not delay others."""
    template = _find_template(output)
    return None if template is None or any(map(_calls_python, _expressions(template))) else template


def _expressions(template: TemplateForm) -> Iterator[pl.Expr]:
    yield from template.conditions
    yield from (operand for operand, _ in template.equalities)
    for step in template.steps:
        if isinstance(step, MapStep):
            yield from (expr for _, expr in step.columns)


def steps_key(steps: tuple[Step, ...]) -> Hashable:
    """A hashable key that equal steps share."""
    return tuple(
        value_key(
            getattr(step, "columns", None) or getattr(step, "names", None) or getattr(step, "predicate", None)
        )
        for step in steps
    )


def calls_python(steps: tuple[Step, ...]) -> bool:
    """Whether steps call a function of the user's."""
    columns = [expr for step in steps if isinstance(step, MapStep) for _, expr in step.columns]
    predicates = [step.predicate for step in steps if isinstance(step, FilterStep)]
    return any(map(_calls_python, [*columns, *predicates]))


def _calls_python(expr: pl.Expr) -> bool:
    return ".python_udf(" in str(expr)


def _find_template(output: logical.Output) -> TemplateForm | None:
    node, final_steps = _peel(output.node) if _is_ranked(output.node) else (output.node, ())
    top = None
    if isinstance(node, logical.Top):
        top, node = node.top, node.input
    aggregate, result_steps = _peel(node)
    if isinstance(aggregate, logical.Source) and top is None:
        return _stateless_template(output, aggregate, result_steps)
    if not isinstance(aggregate, logical.Stateful):
        return None
    operator = aggregate.operator
    if type(operator) not in (Aggregation, SlidingAggregation) or (top is not None and top.running):
        return None
    assert isinstance(operator, Aggregation)
    if any(isinstance(a, User) for a in operator.aggregates):
        return None
    source, before = _peel(aggregate.parts[0])
    if not isinstance(source, logical.Source) or any(isinstance(s, FilterStep) for s in _rest(before)):
        return None
    plain = _plain(operator, aggregate.parts[0].schema)
    last = (
        MapStep(plain.columns, aggregate.origin),
        KeepStep(tuple(name for name, _ in plain.columns), aggregate.origin),
    )
    needed = {name for name, _ in plain.columns}
    steps = prune((*_rest(before), *last), needed)
    to_own_names = (
        MapStep(plain.results, aggregate.origin),
        KeepStep(tuple(aggregate.schema), aggregate.origin),
    )
    conditions, equalities = _split_conditions(before, source.schema)
    return TemplateForm(
        source,
        conditions,
        equalities,
        steps,
        plain.aggregation,
        (*to_own_names, *result_steps),
        top,
        final_steps,
        output.node.schema,
        _source_columns(source, (*_first_filters(before), *steps), needed),
        plain.extremes,
    )


@dataclass(frozen=True)
class _Plain:
    """An aggregation in plain names: the columns it reads, and its results in the job's own names."""

    columns: tuple[tuple[str, pl.Expr], ...]
    aggregation: TemplateAggregation
    results: tuple[tuple[str, pl.Expr], ...]
    extremes: tuple[bool, ...] = ()


def _plain(operator: Aggregation, schema: Mapping[str, pl.DataType]) -> _Plain:
    """The plain form of an aggregation. The fewer forms there are, the more jobs run together: keys that are whole
    numbers become texts, and of whole numbers every simple aggregate is computed, whichever of them a job needs."""
    columns: list[tuple[str, pl.Expr]] = []
    results: list[tuple[str, pl.Expr]] = []
    types: list[pl.DataType] = []
    for number, key in enumerate(operator.keys):
        dtype, name = schema[key], f"k{number}"
        whole = dtype.is_integer()
        types.append(pl.String() if whole else dtype)
        columns.append((name, pl.col(key).cast(pl.String) if whole else pl.col(key)))
        results.append((key, pl.col(name).cast(dtype) if whole else pl.col(name)))
    aggregates: list[AggregateFunction] = []
    extremes: tuple[bool, ...] = ()
    if all(type(a) is Count or is_in_summary(a) for a in operator.aggregates):
        values = list(dict.fromkeys(a.column for a in operator.aggregates if a.column is not None))
        columns += [(f"v{n}", pl.col(column).cast(pl.Int64)) for n, column in enumerate(values)]
        aggregates = [Count(ROWS, None), *(summarize_column(f"a{n}", f"v{n}") for n in range(len(values)))]
        in_extremes = {a.column for a in operator.aggregates if isinstance(a, Min | Max)}
        extremes = tuple(column in in_extremes for column in values)
        for a in operator.aggregates:
            result = pl.col(ROWS) if a.column is None else read_summary(a, f"a{values.index(a.column)}")
            results.append((a.alias, result))
    else:
        columns += [(f"v{n}", pl.col(a.column)) for n, a in enumerate(operator.aggregates) if a.column]
        aggregates = [
            replace(a, alias=f"a{n}", column=a.column and f"v{n}") for n, a in enumerate(operator.aggregates)
        ]
        results += [(a.alias, pl.col(f"a{n}")) for n, a in enumerate(operator.aggregates)]
    aggregation = TemplateAggregation(tuple(types), tuple(aggregates), operator.window)
    return _Plain(tuple(columns), aggregation, tuple(results), extremes)


def _stateless_template(
    output: logical.Output, source: logical.Source, steps: tuple[Step, ...]
) -> TemplateForm:
    conditions, equalities = _split_conditions(steps, source.schema)
    rest = prune(_rest(steps), set(output.node.schema))
    used = _source_columns(source, rest, set(output.node.schema))
    keep = KeepStep(tuple(name for name in source.schema if name in used), source.origin)
    return TemplateForm(
        source,
        conditions,
        equalities,
        (keep,),
        None,
        rest,
        None,
        (),
        output.node.schema,
        used | _source_columns(source, _first_filters(steps), set()),
    )


def _source_columns(source: logical.Source, steps: tuple[Step, ...], needed: set[str]) -> frozenset[str]:
    return frozenset(find_roots(steps, needed, set(source.schema)))


def _is_ranked(node: logical.Node) -> bool:
    while isinstance(node, logical.Map):
        node = node.input
    return isinstance(node, logical.Top)


def _peel(node: logical.Node) -> tuple[logical.Node, tuple[Step, ...]]:
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


def _first_filters(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The filters before the first step that computes something."""
    return tuple(takewhile(lambda step: isinstance(step, FilterStep), steps))


def _rest(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return steps[len(_first_filters(steps)) :]


def _split_conditions(
    steps: tuple[Step, ...], schema: Mapping[str, pl.DataType]
) -> tuple[tuple[pl.Expr, ...], tuple[tuple[pl.Expr, object], ...]]:
    """Conditions to evaluate, and pairs of an expression and the constant that it must equal, each expression once."""
    conditions: list[pl.Expr] = []
    equalities: dict[str, tuple[pl.Expr, object]] = {}
    for step in _first_filters(steps):
        assert isinstance(step, FilterStep)
        pair = _find_equality(step.predicate, schema)
        if pair is not None and str(pair[0]) not in equalities:
            equalities[str(pair[0])] = pair
        else:
            conditions.append(step.predicate)
    return tuple(conditions), tuple(equalities[name] for name in sorted(equalities))


def _find_equality(predicate: pl.Expr, schema: Mapping[str, pl.DataType]) -> tuple[pl.Expr, object] | None:
    """The two sides of `expression == constant`, if a lookup in a table of constants gives the same result."""
    sides = predicate.meta.pop()
    if len(sides) != 2:
        return None
    for operand, constant in (sides, sides[::-1]):
        is_equality = any(predicate.meta.eq(expr) for expr in (operand == constant, constant == operand))
        if not is_equality or not constant.meta.is_literal() or operand.meta.is_literal():
            continue
        if not operand.meta.root_names() or _calls_python(operand):
            continue
        dtype = empty_frame(schema).lazy().select(operand.alias("x")).collect_schema()["x"]
        value = pl.select(constant.alias("x")).to_series()
        if value[0] is None or not (dtype in _LOOKUP_TYPES or dtype.is_integer()):
            continue
        if dtype != value.dtype and not (dtype.is_integer() and value.dtype.is_integer()):
            continue
        if dtype.is_integer() and value.cast(dtype, strict=False)[0] != value[0]:
            continue
        return operand, value[0]
    return None


def _encode_step(step: Step) -> Json:
    """A step as JSON. It is compared within one process only, so every detail of an expression counts."""
    match step:
        case MapStep():
            return ["map", {name: _digest_expression(expr) for name, expr in step.columns}]
        case KeepStep():
            return ["keep", *step.names]
        case FilterStep():
            return ["filter", _digest_expression(step.predicate)]
    raise AssertionError(f"{step} is no step of a job in template form")


def _digest_expression(expr: pl.Expr) -> str:
    try:
        return hashlib.sha256(expr.meta.serialize()).hexdigest()
    except pl.exceptions.PolarsError:  # it calls a Python function
        return str(expr)

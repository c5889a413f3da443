"""Every aggregate function against plain Python, by every way from events to an answer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.operators.functions import AggregateFunction
from tests.operators.function_ways import Event, Oracle, check_many, check_ways, frame_of, resolve, same
from tests.operators.harness import modestly

# -- oracles ---------------------------------------------------------------------------------------------


def values(events: list[Event]) -> list[Any]:
    return [value for _, value in events if value is not None]


def total(numbers: list[Any]) -> Fraction:
    """The exact sum; of floats below 2**54 rounded to 2**-72."""
    return sum((rounded(number) for number in numbers), start=Fraction(0))


def rounded(number: Any) -> Fraction:
    exact = Fraction(number)
    small = isinstance(number, float) and abs(number) < 2**54
    return Fraction(round(exact * 2**72), 2**72) if small else exact


def as_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def odd(numbers: list[Any]) -> float | None:
    """What infinities and NaN add up to."""
    strange = {repr(number) for number in numbers if isinstance(number, float) and not math.isfinite(number)}
    if not strange:
        return None
    return float(strange.pop()) if len(strange) == 1 else math.nan


def int_sum(events: list[Event]) -> int | None:
    exact = sum(values(events))
    return exact if -(2**63) <= exact < 2**63 else None


def float_sum(events: list[Event]) -> float:
    strange = odd(values(events))
    return as_float(total(values(events))) if strange is None else strange


def mean(events: list[Event]) -> float | None:
    numbers = values(events)
    strange = odd(numbers)
    if not numbers or strange is not None:
        return strange
    return as_float(total(numbers) / len(numbers))


def variance(events: list[Event]) -> float | None:
    numbers = values(events)
    if len(numbers) < 2:
        return None
    if odd(numbers) is not None:
        return math.nan
    middle = total(numbers) / len(numbers)
    return as_float(sum((rounded(n) - middle) ** 2 for n in numbers) / (len(numbers) - 1))


def stddev(events: list[Event]) -> float | None:
    found = variance(events)
    return None if found is None else math.sqrt(found)


def extreme(of: Callable[..., Any]) -> Oracle:
    def oracle(events: list[Event]) -> Any:
        known = [0.0 if value == 0 and isinstance(value, float) else value for value in values(events)]
        numbers = [value for value in known if value == value]
        return of(numbers) if numbers else known[0] if known else None

    return oracle


def quantile(share: float) -> Oracle:
    def oracle(events: list[Event]) -> float | None:
        numbers = sorted(float(value) or 0.0 for value in values(events) if value == value)
        if not numbers:
            return None
        place = share * (len(numbers) - 1)
        lower = int(place)
        one, other = numbers[lower], numbers[min(lower + 1, len(numbers) - 1)]
        if one == other or place == lower:
            return one
        return one * (1 - (place - lower)) + other * (place - lower)

    return oracle


def different(events: list[Event]) -> int:
    return len({"nan" if value != value else value for value in values(events)})


def in_order(events: list[Event]) -> list[Any]:
    return [value for _, value in sorted(events, key=lambda event: event[0])]


# -- cases -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A function of a column of a type, and what it should answer."""

    function: AggregateFunction
    dtype: pl.DataType
    drawn: st.SearchStrategy[Any]
    oracle: Oracle
    #: how far an answer may be off, relatively: for the rounding of exact sums to floats
    off: float = 0.0

    def check(self, found: Any, events: list[Event]) -> None:
        expected = self.oracle(events)
        if isinstance(expected, float) and self.off and math.isfinite(expected) and found is not None:
            assert math.isclose(found, expected, rel_tol=self.off, abs_tol=1e-300), (found, expected)
        else:
            assert same(found, expected), (found, expected)


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1]) | st.integers(max(low, -9), 9)


ANY_FLOAT = st.floats() | st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 2.0**54, -(2.0**54), 1e18, 0.5])
MOST_FLOATS = st.floats(-1e9, 1e9) | st.integers(-40, 40).map(lambda quarters: quarters / 4)
TEXTS = st.text("abé\x00", max_size=3)
TIMES = st.datetimes(datetime(1969, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
SPANS = st.timedeltas(timedelta(-99), timedelta(99))
CENTS = st.integers(-(10**20), 10**20).map(lambda cents: Decimal(cents).scaleb(-2))
INTEGERS: dict[type[pl.DataType], st.SearchStrategy[int]] = {
    pl.Int8: whole(-(2**7), 2**7 - 1),
    pl.UInt16: whole(0, 2**16 - 1),
    pl.Int32: whole(-(2**31), 2**31 - 1),
    pl.UInt32: whole(0, 2**32 - 1),
    pl.Int64: whole(-(2**63), 2**63 - 1),
    pl.UInt64: whole(0, 2**64 - 1),
}
EVERYTHING: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    **{dtype.__name__: (dtype(), drawn) for dtype, drawn in INTEGERS.items()},
    "Float64": (pl.Float64(), ANY_FLOAT),
    "Float32": (pl.Float32(), st.floats(width=32)),
    "String": (pl.String(), TEXTS),
    "Boolean": (pl.Boolean(), st.booleans()),
    "Datetime": (pl.Datetime("us", "UTC"), TIMES),
    "Duration": (pl.Duration("us"), SPANS),
    "Decimal": (pl.Decimal(38, 2), CENTS),
}
ULPS = 5e-16


def cases() -> dict[str, Case]:
    made = {"count": Case(ps.count("y"), pl.Int64(), whole(-9, 9), len)}
    for name, (dtype, drawn) in EVERYTHING.items():
        made[f"min {name}"] = Case(ps.min_("x", "y"), dtype, drawn, extreme(min))
        made[f"max {name}"] = Case(ps.max_("x", "y"), dtype, drawn, extreme(max))
        made[f"first {name}"] = Case(ps.first("x", "y"), dtype, drawn, lambda events: in_order(events)[0])
        made[f"last {name}"] = Case(ps.last("x", "y"), dtype, drawn, lambda events: in_order(events)[-1])
        made[f"collect {name}"] = Case(ps.collect("x", "y"), dtype, drawn, in_order)
        made[f"count_distinct {name}"] = Case(ps.count_distinct("x", "y"), dtype, drawn, different)
        made[f"approx_count_distinct {name}"] = Case(
            ps.approx_count_distinct("x", "y"), dtype, drawn, different
        )
    for integer, numbers in INTEGERS.items():
        made[f"sum {integer.__name__}"] = Case(ps.sum_("x", "y"), integer(), numbers, int_sum)
    numeric = {
        name: EVERYTHING[name]
        for name in ("Int8", "Int32", "UInt32", "Int64", "UInt64", "Float64", "Float32", "Decimal")
    }
    numeric["some floats"] = (pl.Float64(), MOST_FLOATS)
    for name, (dtype, drawn) in numeric.items():
        made[f"median {name}"] = Case(ps.median("x", "y"), dtype, drawn, quantile(0.5))
        made[f"quantile {name}"] = Case(ps.quantile("x", 0.9, "y"), dtype, drawn, quantile(0.9))
        made[f"avg {name}"] = Case(ps.avg("x", "y"), dtype, drawn, mean, 2 * ULPS)
        if name != "Decimal":
            made[f"variance {name}"] = Case(ps.variance("x", "y"), dtype, drawn, variance, 4 * ULPS)
            made[f"stddev {name}"] = Case(ps.stddev("x", "y"), dtype, drawn, stddev, 4 * ULPS)
    for name in ("Float64", "Float32", "some floats"):
        dtype, drawn = numeric[name]
        made[f"sum {name}"] = Case(ps.sum_("x", "y"), dtype, drawn, float_sum, ULPS)
    made["sum Decimal"] = Case(
        ps.sum_("x", "y"), pl.Decimal(30, 2), CENTS, lambda events: sum(values(events), start=Decimal("0.00"))
    )
    made["sum Duration"] = Case(
        ps.sum_("x", "y"), pl.Duration("us"), SPANS, lambda events: sum(values(events), start=timedelta())
    )
    return made


CASES = cases()


@st.composite
def histories(draw: st.DrawFn, drawn: st.SearchStrategy[Any]) -> list[Event]:
    """Events in any order, with nulls; no two at the same place."""
    found = draw(st.lists(st.tuples(st.integers(-2, 2), st.none() | drawn | drawn), min_size=1, max_size=14))
    events = [((time, at % 2, at), value) for at, (time, value) in enumerate(found)]
    return draw(st.permutations(events))


FUNCTIONS = sorted({name.split()[0] for name in CASES})


def drawn_case(data: st.DataObject, name: str) -> tuple[Case, list[Event]]:
    """One of a function's cases, and events for it."""
    case = CASES[data.draw(st.sampled_from([known for known in CASES if known.split()[0] == name]))]
    return case, data.draw(histories(case.drawn))


@pytest.mark.parametrize("name", FUNCTIONS)
@modestly
@given(st.data(), st.randoms(use_true_random=False))
def test_an_answer_depends_on_the_events_alone(name: str, data: st.DataObject, chance: random.Random) -> None:
    case, events = drawn_case(data, name)
    function = resolve(case.function, case.dtype)
    case.check(check_ways(function, frame_of(events, case.dtype), chance), events)


@pytest.mark.parametrize("name", FUNCTIONS)
@modestly
@given(st.data(), st.randoms(use_true_random=False))
def test_ranges_runs_and_joins_hold_exactly_their_events(
    name: str, data: st.DataObject, chance: random.Random
) -> None:
    case, events = drawn_case(data, name)
    check_many(resolve(case.function, case.dtype), case.dtype, events, chance, case.check)

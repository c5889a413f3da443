"""What functions make of nulls, NaN, infinities, numbers too large, and columns that do not fit."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.operators.functions import AggregateFunction
from tests.operators.function_ways import answer, at_once, frame_of, merge, resolve

NAN, INF = math.nan, math.inf


def compute(function: AggregateFunction, dtype: pl.DataType, *values: Any) -> Any:
    """The answer for these values, each an event of its own, merged."""
    frame = frame_of([((at, 0, at), value) for at, value in enumerate(values)], dtype)
    known = resolve(function, dtype)
    parts = at_once(known, frame, list(range(frame.height)))
    return answer(known, merge(known, parts, [0] * frame.height))[0]


FLOATS: dict[str, tuple[AggregateFunction, list[float | None], Any]] = {
    "min passes over NaN": (ps.min_("x"), [NAN, 2.0, 1.0], 1.0),
    "max passes over NaN": (ps.max_("x"), [NAN, 2.0, 1.0], 2.0),
    "min of NaN alone": (ps.min_("x"), [NAN, None], NAN),
    "min with infinities": (ps.min_("x"), [INF, -INF], -INF),
    "min of nothing": (ps.min_("x"), [None, None], None),
    "sum with NaN": (ps.sum_("x"), [1.0, NAN], NAN),
    "sum with infinity": (ps.sum_("x"), [1.0, -INF], -INF),
    "sum of both infinities": (ps.sum_("x"), [INF, -INF], NAN),
    "sum of nothing": (ps.sum_("x"), [None], 0.0),
    "sum of the largest": (ps.sum_("x"), [1e308, 1e308], INF),
    "sum that cancels": (ps.sum_("x"), [1e300, 0.25, -1e300, 2.0**60], 2.0**60 + 0.25),
    "sum that cancels to little": (ps.sum_("x"), [2.0**54, 0.5, -(2.0**54)], 0.5),
    "sum of small values": (ps.sum_("x"), [0.1] * 10, 1.0),
    "avg with NaN": (ps.avg("x"), [1.0, NAN], NAN),
    "avg of nothing": (ps.avg("x"), [None], None),
    "avg leaves nulls out": (ps.avg("x"), [1.0, None, 2.0], 1.5),
    "variance of one": (ps.variance("x"), [1.0, None], None),
    "variance of equals": (ps.variance("x"), [0.1] * 3, 0.0),
    "variance far from zero": (ps.variance("x"), [1e9, 1e9 + 1, 1e9 + 2], 1.0),
    "variance with NaN": (ps.variance("x"), [1.0, NAN, 2.0], NAN),
    "variance with infinity": (ps.variance("x"), [1.0, INF, 2.0], NAN),
    "variance of large values": (ps.variance("x"), [1e18, 1e18 + 1024, 1e18 + 2048], 1024.0**2),
    "stddev of the largest": (ps.stddev("x"), [1e300, -1e300], INF),
    "median passes over NaN": (ps.median("x"), [NAN, 3.0, 1.0], 2.0),
    "median of NaN alone": (ps.median("x"), [NAN], None),
    "median with an infinity": (ps.median("x"), [INF, 1.0, 0.0], 1.0),
    "median between infinities": (ps.median("x"), [INF, -INF], NAN),
    "median of the largest": (ps.median("x"), [1.7e308, 1.7e308], 1.7e308),
    "sketch passes over NaN": (ps.approx_quantile("x", 0.5), [NAN, 0.0, None], 0.0),
    "sketch of infinity": (ps.approx_quantile("x", 1.0), [INF, 0.0], INF),
    "first is as it is": (ps.first("x"), [None, 1.0], None),
    "last is as it is": (ps.last("x"), [1.0, NAN], NAN),
    "collect is as it is": (ps.collect("x"), [1.0, None, NAN, -0.0], [1.0, None, NAN, -0.0]),
    "one NaN and one zero": (ps.count_distinct("x"), [NAN, NAN, 0.0, -0.0, None], 2),
    "one NaN and one zero in a sketch": (ps.approx_count_distinct("x"), [NAN, NAN, 0.0, -0.0, None], 2),
    "count counts nulls": (ps.count(), [None, NAN], 2),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_of_all_kinds(name: str) -> None:
    function, values, expected = FLOATS[name]
    assert repr(compute(function, pl.Float64(), *values)) == repr(expected)


def test_sums_that_do_not_fit_are_null_and_come_back_when_they_fit_again() -> None:
    top = 2**63 - 1
    assert compute(ps.sum_("x"), pl.Int64(), top, 0) == top
    assert compute(ps.sum_("x"), pl.Int64(), top, 1) is None
    assert compute(ps.sum_("x"), pl.Int64(), top, top, top, -top, -top) == top
    assert compute(ps.sum_("x"), pl.Int64(), -top - 1, -1) is None
    assert compute(ps.sum_("x"), pl.UInt64(), 2**64 - 1) is None
    assert compute(ps.avg("x"), pl.UInt64(), 2**64 - 1, 2**64 - 1) == float(2**64 - 1)
    cents, debts = Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")
    assert compute(ps.sum_("x"), pl.Decimal(38, 2), cents, Decimal("-0.01")) == Decimal("9" * 36 + ".98")
    assert compute(ps.sum_("x"), pl.Decimal(38, 2), cents, Decimal("0.01")) is None
    assert compute(ps.sum_("x"), pl.Decimal(38, 2), debts, Decimal("-0.01")) is None
    assert compute(ps.sum_("x"), pl.Decimal(38, 2), debts, Decimal(0)) == debts


@pytest.mark.parametrize("function", [ps.sum_("x", "y"), ps.avg("x", "y"), ps.variance("x", "y")])
@pytest.mark.parametrize("value", [0.1, -0.3, -(2.0**53), 1.8e16, 1e17])
def test_sums_outlive_a_billion_events(function: AggregateFunction, value: float) -> None:
    known = resolve(function, pl.Float64())
    parts = at_once(known, pl.DataFrame({"x": [value] * 4}), [0] * 4)
    for _ in range(29):
        parts = merge(known, pl.concat([parts, parts]), [0, 0])
    expected = {"sum": value * 2**31, "avg": value, "variance": 0.0}[known.name]
    assert answer(known, parts)[0] == expected


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.UInt64()])
def test_sums_of_whole_numbers_outlive_a_billion_events(dtype: pl.DataType) -> None:
    known = resolve(ps.avg("x", "y"), dtype)
    value = 2**63 - 1 if dtype == pl.Int64 else 2**64 - 1
    parts = at_once(known, pl.DataFrame({"x": pl.Series([value], dtype=dtype)}), [0])
    for _ in range(30):
        parts = merge(known, pl.concat([parts, parts]), [0, 0])
    assert answer(known, parts)[0] == float(value)


def test_ranges_of_sums_may_wrap_around_in_between() -> None:
    known = resolve(ps.sum_("x", "y"), pl.Int32())
    parts = pl.DataFrame({"_y.s": [2**62, 2**62, 2**62, -(2**62), 5]})
    found = known.merge_ranges(parts, np.array([3, 0, 4]), np.array([5, 1, 5]))
    assert found[0].to_list() == [5 - 2**62, 2**62, 5]


MISFITS: dict[str, tuple[AggregateFunction, pl.DataType]] = {
    "sum of texts": (ps.sum_("x"), pl.String()),
    "sum of booleans": (ps.sum_("x"), pl.Boolean()),
    "sum of instants": (ps.sum_("x"), pl.Datetime("us")),
    "sum of lists": (ps.sum_("x"), pl.List(pl.Int64())),
    "sum of 128 bits": (ps.sum_("x"), pl.Int128()),
    "mean of durations": (ps.avg("x"), pl.Duration("us")),
    "spread of texts": (ps.stddev("x"), pl.String()),
    "median of instants": (ps.median("x"), pl.Datetime("us")),
    "least list": (ps.min_("x"), pl.List(pl.Int64())),
    "least category": (ps.min_("x"), pl.Categorical()),
    "different structs": (ps.count_distinct("x"), pl.Struct({"a": pl.Int64()})),
    "different lists": (ps.approx_count_distinct("x"), pl.List(pl.Int64())),
    "collected 128 bits": (ps.collect("x"), pl.Int128()),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_column_that_does_not_fit_is_refused_with_a_hint(name: str) -> None:
    function, dtype = MISFITS[name]
    with pytest.raises(UserError) as refused:
        function.resolve({"x": dtype})
    assert refused.value.condition == "TYPE_MISMATCH"
    assert ".cast(" in (refused.value.hint or "")


@pytest.mark.parametrize("dtype", [pl.Enum(["b", "a"]), pl.Categorical(), pl.List(pl.Int64()), pl.Binary()])
def test_any_value_can_be_kept(dtype: pl.DataType) -> None:
    values: list[Any] = ["b", "a", None]
    if isinstance(dtype, pl.List):
        values = [[1], [], None]
    if dtype == pl.Binary:
        values = [b"b", b"", None]
    assert compute(ps.first("x"), dtype, *values) == values[0]
    assert compute(ps.last("x"), dtype, *values) is None
    assert compute(ps.collect("x"), dtype, *values) == values
    if not isinstance(dtype, pl.List):
        assert compute(ps.count_distinct("x"), dtype, *values, values[0]) == 2
        assert compute(ps.approx_count_distinct("x"), dtype, *values, values[0]) == 2


def test_events_of_one_place_are_ordered_by_value() -> None:
    events = [((1, 0, 0), value) for value in ("b", None, "a")]
    for order in (events, events[::-1], events[1:] + events[:1]):
        frame = frame_of(order, pl.String())
        for function, expected in (
            (ps.first("x"), None),
            (ps.last("x"), "b"),
            (ps.collect("x"), [None, "a", "b"]),
        ):
            known = resolve(function, pl.String())
            assert answer(known, at_once(known, frame, [0, 0, 0])) == [expected]


def test_functions_are_plain_descriptions() -> None:
    every = [
        ps.count(),
        ps.sum_("x"),
        ps.stddev("x"),
        ps.first("x"),
        ps.quantile("x", 0.9),
        ps.approx_quantile("x", 0.9),
        ps.approx_count_distinct("x"),
        ps.collect("x"),
    ]
    for function in every:
        known = function.resolve({"x": pl.Int32()})
        assert pickle.loads(pickle.dumps(known)) == known
        assert repr(known) == repr(function.resolve({"x": pl.Int32()}))
        assert function.column is None or repr(known) != repr(function.resolve({"x": pl.Int64()}))
        assert all(part.startswith(f"_{known.alias}.") for part in known.parts())
        assert known.alias in known.describe()
    assert [f.sequential for f in every] == [False, False, False, True, False, False, False, True]
    assert [f.subtracts for f in every] == [True, True, True, False, False, False, False, False]
    assert ps.quantile("x", 0.9).describe() == "quantile(x, 0.9) as quantile_x"
    assert ps.stddev("x").describe() == "stddev(x) as stddev_x"

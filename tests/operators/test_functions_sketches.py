"""Sketches: within their error, and the same whatever the order and the cuts."""

from __future__ import annotations

import math
import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import UserError
from penstock.operators.functions import AggregateFunction
from penstock.operators.functions.quantiles import SketchBuckets
from tests.operators.function_ways import (
    Event,
    answer,
    at_once,
    check_many,
    check_ways,
    frame_of,
    merge,
    resolve,
)
from tests.operators.harness import modestly

NUMBERS = st.floats(allow_nan=False, allow_subnormal=False) | st.floats(-1e6, 1e6, allow_subnormal=False)


def exact(events: list[Event], q: float) -> float | None:
    """The value at the quantile's place, without anything between values."""
    known = sorted(value for _, value in events if value is not None and value == value)
    return known[int(q * (len(known) - 1))] if known else None


def close(found: float | None, expected: float | None, error: float) -> bool:
    if found is None or expected is None or math.isinf(expected):
        return found == expected
    return abs(found - expected) <= abs(expected) * error * (1 + 1e-9)


@modestly
@given(
    st.lists(st.none() | NUMBERS | st.just(math.nan), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]),
    st.sampled_from([0.01, 0.1, 0.001]),
    st.randoms(use_true_random=False),
)
def test_a_quantile_of_a_sketch_is_within_its_error(
    numbers: list[float | None], q: float, error: float, chance: random.Random
) -> None:
    events: list[Event] = [((at, 0, at), number) for at, number in enumerate(numbers)]
    function = resolve(ps.approx_quantile("x", q, "y", error=error), pl.Float64())
    found = check_ways(function, frame_of(events, pl.Float64()), chance)
    assert close(found, exact(events, q), error)

    def check(found: float | None, some: list[Event]) -> None:
        assert close(found, exact(some, q), error)

    check_many(function, pl.Float64(), events, chance, check)


@modestly
@given(st.lists(NUMBERS, min_size=2, max_size=50), st.sampled_from([0.00001, 0.01, 0.5]))
def test_buckets_keep_the_order_of_values_and_their_middle_is_close(
    numbers: list[float], error: float
) -> None:
    buckets, ordered = SketchBuckets(error), pl.Series(sorted(numbers))
    found = buckets.of(ordered)
    assert found.is_sorted()
    for middle, number in zip(buckets.value(found.to_numpy()).tolist(), ordered.to_list(), strict=True):
        assert close(middle, number, error)


def test_the_buckets_of_some_values_never_change() -> None:
    numbers = pl.Series([0.0, 1.0, 1.5, 2.0, -2.0, 1e300, 5e-324, math.inf, -math.inf, math.nan, None])
    found = SketchBuckets(0.01).of(numbers).to_list()
    assert found == [0, 53750, 53774, 53799, -53799, 103573, 51, 2**31 - 1, 1 - 2**31, None, None]


def test_a_sketch_of_a_million_values_stays_small() -> None:
    numbers = np.random.default_rng(7).lognormal(3, 2, 1_000_000)
    frame = pl.DataFrame({"x": numbers})
    function = resolve(ps.approx_quantile("x", 0.99, "y"), pl.Float64())
    parts = frame.group_by(pl.lit(0)).agg(function.from_events())
    assert parts["_y.t"].list.len().item() < 2_000
    assert answer(function, parts)[0] == pytest.approx(np.quantile(numbers, 0.99), rel=0.011)


# -- count distinct --------------------------------------------------------------------------------------


def parted(function: AggregateFunction, frame: pl.DataFrame, pieces: int, seed: int) -> pl.DataFrame:
    """All events shuffled, cut into pieces of different size, and merged two at a time in any order."""
    chance = random.Random(seed)
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    number = np.sort(np.random.default_rng(seed).integers(0, pieces**2, mixed.height)).tolist()
    parts = at_once(function, mixed, [math.isqrt(at) for at in number])
    while parts.height > 1:
        parts = parts.sample(fraction=1.0, shuffle=True, seed=chance.randrange(2**31))
        parts = merge(function, parts, [row // 2 for row in range(parts.height)])
    return parts


@pytest.mark.parametrize("count", [200, 4_096, 4_097, 60_000])
@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_theta_sketch_is_the_same_in_any_order(count: int, kind: str) -> None:
    distinct = pl.Series("x", np.random.default_rng(3).integers(-(2**62), 2**62, count))
    frame = pl.concat([distinct, distinct.sample(count // 3, seed=1)]).to_frame()
    if kind == "texts":
        frame = frame.cast(pl.String)
    function = resolve(ps.approx_count_distinct("x", "y"), frame.schema["x"])
    straight = at_once(function, frame, [0] * frame.height)
    for seed, pieces in enumerate((1, 2, 5, 12)):
        assert parted(function, frame, pieces, seed).equals(straight)
    # one by one, over ranges, joined to one another
    (low, high) = (np.array([0, 5]), np.array([frame.height, frame.height]))
    single = frame.select(function.from_event())
    assert pl.DataFrame(function.merge_ranges(single, low, high))[:1].equals(straight)
    halves = at_once(function, frame, [row % 2 for row in range(frame.height)])
    both = halves[:1].hstack(halves[1:].rename({"_y.d": "_y.d.b"})).select(function.merge_columns(".b"))
    assert both.equals(straight)
    found = answer(function, straight)[0]
    assert found == count if count <= 4_096 else abs(found - count) < 0.05 * count


def test_a_sketch_of_few_values_counts_exactly_and_then_estimates() -> None:
    function = resolve(ps.approx_count_distinct("x", "y", lg_k=5), pl.Int64())
    for count in (1, 31, 32, 33, 1_000):
        frame = pl.DataFrame({"x": range(count)})
        found = answer(function, at_once(function, frame, [0] * count))[0]
        assert found == count if count <= 32 else 0.4 * count < found < 2.5 * count


@pytest.mark.parametrize(
    "build",
    [
        lambda: ps.approx_quantile("x", 1.1),
        lambda: ps.quantile("x", -0.1),
        lambda: ps.quantile("x", math.nan),
        lambda: ps.approx_quantile("x", 0.5, error=0.0),
        lambda: ps.approx_count_distinct("x", lg_k=3),
    ],
)
def test_what_a_sketch_cannot_do_is_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(UserError) as refused:
        build()
    assert refused.value.condition in ("BAD_QUANTILE", "BAD_SKETCH")

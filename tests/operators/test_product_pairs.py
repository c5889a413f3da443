"""Pairs found in tiles and blocks against a cross join, for any predicate; the filter loses none."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators import product_pairs
from penstock.operators.join_candidates import SortedRows
from penstock.operators.join_columns import JoinCondition
from penstock.operators.pair_filter import build_pair_filter, split_conjuncts
from penstock.operators.product_pairs import PairFinder, ranges_within
from penstock.operators.routes import Grid
from tests.operators.harness import modestly

col = pl.col
NAN, INF = float("nan"), float("inf")

VALUES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "s": (pl.String(), ["a", "b", "", None]),
    "n": (pl.Int64(), [-2, 0, 1, 2, 2**62, -(2**63), None]),
    "i": (pl.Int32(), [-1, 0, 7, 2**31 - 1, None]),
    "u": (pl.UInt64(), [0, 1, 2**64 - 1, None]),
    "x": (pl.Float64(), [-0.0, 0.0, 1.5, -1.5, NAN, INF, -INF, None]),
    "f": (pl.Float32(), [0.0, 1.5, NAN, None]),
    "b": (pl.Boolean(), [True, False, None]),
    "t": (pl.Datetime("us", "UTC"), [0, 1_000_000, 10**12, None]),
    "d": (pl.Date(), [0, 1, 20_000, None]),
    "c": (pl.Categorical(), ["a", "b", None]),
}


def _series(name: str, dtype: pl.DataType, values: list[Any]) -> pl.Series:
    plain = pl.Int64() if isinstance(dtype, pl.Datetime | pl.Date) else dtype
    return pl.Series(name, values, dtype=plain).cast(dtype)


def _side(suffix: str) -> st.SearchStrategy[pl.DataFrame]:
    row = st.tuples(*(st.sampled_from(of) for _, of in VALUES.values()))
    return st.lists(row, max_size=12).map(
        lambda rows: pl.DataFrame(
            [
                _series(f"{name}{suffix}", dtype, [row[at] for row in rows])
                for at, (name, (dtype, _)) in enumerate(VALUES.items())
            ]
        )
    )


FRAMES = st.tuples(_side(""), _side("_r"))


def numbers() -> st.SearchStrategy[pl.Expr]:
    names = [f"{name}{suffix}" for name in ("n", "i", "x", "f") for suffix in ("", "_r")]
    leaves = st.sampled_from(names).map(lambda n: col(n)) | st.sampled_from([0, 1, -2, 1.5, 0.5]).map(
        lambda v: pl.lit(v)
    )
    return st.recursive(
        leaves,
        lambda of: st.tuples(of, of, st.sampled_from("+-*")).map(_computed) | of.map(lambda e: e.abs()),
        max_leaves=3,
    )


def _computed(parts: tuple[pl.Expr, pl.Expr, str]) -> pl.Expr:
    one, other, how = parts
    return one + other if how == "+" else one - other if how == "-" else one * other


def _compared(parts: tuple[pl.Expr, pl.Expr, str]) -> pl.Expr:
    one, other, how = parts
    return {
        "==": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
        "missing": one.eq_missing(other),
        "not missing": one.ne_missing(other),
        "between": one.is_between(other - 1, other),
    }[how]


HOW = ["==", "!=", "<", "<=", ">", ">="]


OTHERS = [col("s").str.starts_with(col("s_r")), col("b_r"), col("n").is_in([1, 2]), col("x_r").is_null()]


def _alike(parts: tuple[str, str]) -> pl.Expr:
    name, how = parts
    if name in "bc" and how in ("<", "<=", ">", ">="):
        how = "not missing"
    return _compared((col(name), col(f"{name}_r"), how))


LEAVES = (
    st.tuples(st.sampled_from([*VALUES]), st.sampled_from([*HOW, "missing"])).map(_alike)
    | st.tuples(numbers(), numbers(), st.sampled_from([*HOW, "between"])).map(_compared)
    | st.sampled_from([1, 10**9]).map(lambda span: col("t") - col("t_r") < pl.duration(microseconds=span))
    | st.integers(0, len(OTHERS) - 1).map(lambda at: OTHERS[at])
)
PREDICATES = st.recursive(
    LEAVES,
    lambda of: (
        st.tuples(of, of).map(lambda p: p[0] & p[1])
        | st.tuples(of, of).map(lambda p: p[0] | p[1])
        | of.map(lambda e: ~e)
    ),
    max_leaves=5,
)


def crossed(left: pl.DataFrame, right: pl.DataFrame, where: pl.Expr) -> list[tuple[int, int]]:
    both = left.with_row_index("one").join(right.with_row_index("other"), how="cross")
    return sorted(both.filter(where).select("one", "other").rows())


@modestly
@given(FRAMES, PREDICATES, st.sampled_from([1, 4, 1 << 10]), st.sampled_from([2, 7, 1 << 16]), st.booleans())
def test_the_pairs_are_those_of_a_cross_join(
    sides: tuple[pl.DataFrame, pl.DataFrame], where: pl.Expr, least: int, block: int, search: bool
) -> None:
    left, right = sides
    low, high = np.zeros(left.height, dtype=np.int64), np.full(left.height, right.height)
    with pytest.MonkeyPatch.context() as patch:
        # tiles and blocks of all sizes
        patch.setattr(product_pairs, "LEAST", least)
        patch.setattr(product_pairs, "BLOCK", block)
        patch.setattr(product_pairs, "STRETCH", max(2, block))
        if search:
            patch.setattr(product_pairs, "SEARCH", 0)
            patch.setattr(product_pairs, "FEW", 0)
        ones, others = PairFinder(left, JoinCondition.of(where), right.schema).find(right, low, high)
    assert sorted(zip(ones.tolist(), others.tolist(), strict=True)) == crossed(left, right, where)


@modestly
@given(st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.integers(0, 20), st.integers(0, 20))
def test_a_range_is_what_lies_near_in_the_same_bucket(
    lefts: list[int], rights: list[int], below: int, above: int
) -> None:
    def side(times: list[int], left: bool) -> SortedRows:
        frame = pl.DataFrame(
            {"_time": times, "id": range(len(times))}, schema={"_time": pl.Int64, "id": pl.Int64}
        )
        return SortedRows.sorted(Grid(left).add_hash(frame, 64))

    outer, inner = side(lefts, True), side(rights, False)
    low, high = ranges_within(outer, inner, 64, below, above)
    found = []
    for at in range(outer.rows.height):
        for other in range(low[at], high[at]):
            found.append((outer.rows["id"][at], inner.rows["id"][other]))
    assert sorted(found) == [
        (one, other)
        for one, mine in enumerate(lefts)
        for other, theirs in enumerate(rights)
        if mine - below <= theirs <= mine + above
    ]


@pytest.mark.parametrize("search", [0, 1 << 30])
def test_ranges_that_move_are_not_left(search: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_pairs, "SEARCH", search)
    monkeypatch.setattr(product_pairs, "FEW", 1)
    count, width = 3_000, 300
    low = np.arange(count)
    frame = pl.DataFrame({"n": low % 7})
    other = pl.DataFrame({"m": np.arange(count + width) % 11})
    ones, others = PairFinder(frame, JoinCondition.of(col("n") == col("m")), other.schema).find(
        other, low, low + width
    )
    expected = [(i, j) for i in range(count) for j in range(i, i + width) if i % 7 == j % 11]
    assert sorted(zip(ones.tolist(), others.tolist(), strict=True)) == expected


def test_what_is_understood() -> None:
    schema = {f"{name}{s}": dtype for name, (dtype, _) in VALUES.items() for s in ("", "_r")}
    understood = [
        col("s") == col("s_r"),
        (col("s") == col("s_r")) & col("s").str.starts_with("x"),
        (col("n") - col("n_r")).abs() < 3,
        ~((col("x") < col("x_r")) | (col("n") == col("n_r"))),
        col("i") <= col("n_r"),
        col("t") - col("t_r") < pl.duration(seconds=3),
        col("n").is_between(col("n_r"), col("n_r") + 5),
    ]
    for predicate in understood:
        assert build_pair_filter(predicate, schema) is not None, predicate
    for predicate in (
        (col("s") == col("s_r")) | col("s").str.starts_with("x"),
        col("c") == col("c_r"),
        pl.lit(1) < pl.lit(2),
    ):
        assert build_pair_filter(predicate, schema) is None, predicate


def test_what_is_equal_is_searched() -> None:
    schema = {f"{name}{s}": dtype for name, (dtype, _) in VALUES.items() for s in ("", "_r")}
    shared = (col("s") == col("s_r")) | (col("n") == col("i_r"))
    for predicate, equal_pairs in [
        (shared & (col("x") < col("x_r")), (("#s", "#s_r"), ("#n", "#i_r"))),
        (shared & (col("b") == col("b_r")), (("#b", "#b_r"),)),
        (shared | (col("x") < col("x_r")), ()),
        (~shared, ()),
    ]:
        pair_filter = build_pair_filter(predicate, schema)
        assert (pair_filter.equal_pairs if pair_filter else ()) == equal_pairs


def test_conjuncts_are_the_conditions_that_must_all_hold() -> None:
    one, two, three = col("n") == 1, (col("s") == "a") | (col("i") > 2), col("x") < 3
    found = split_conjuncts(one & two & three)
    assert [str(part) for part in found] == [str(one), str(two), str(three)]
    assert [str(part) for part in split_conjuncts(two)] == [str(two)]

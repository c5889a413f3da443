"""Routes: where rows come to lie, for any number of buckets."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.contract import PARTITION, SEQUENCE, TIME
from penstock.operators.routes import Grid, RoundRobin, grid_bits
from penstock.state.buckets import HASH, buckets_of
from tests.operators.harness import modestly

POWERS = [1 << bits for bits in range(16)]
places = st.lists(
    st.tuples(st.integers(-(2**61), 2**61), st.integers(0, 3), st.integers(0, 99)), max_size=30, unique=True
)


def rows_at(where: list[tuple[int, int, int]]) -> pl.DataFrame:
    schema = {TIME: pl.Int64, PARTITION: pl.UInt32, SEQUENCE: pl.Int64}
    return pl.DataFrame(where, schema=schema, orient="row").with_row_index("id")


def cells_of(route: Grid, rows: pl.DataFrame, buckets: int) -> dict[int, set[int]]:
    """The rows of every bucket."""
    hashed = route.add_hash(rows, buckets)
    found: dict[int, set[int]] = {}
    for row, bucket in zip(hashed["id"], buckets_of(hashed[HASH].to_numpy(), buckets), strict=True):
        assert row not in found.setdefault(int(bucket), set()), "a row lies twice in one bucket"
        found[int(bucket)].add(row)
    return found


@modestly
@given(places, places, st.sampled_from(POWERS), st.sampled_from([1, 2, 4, 16, 64]))
def test_every_pair_meets_in_exactly_one_bucket(
    left: list[tuple[int, int, int]], right: list[tuple[int, int, int]], buckets: int, cells: int
) -> None:
    lefts = cells_of(Grid(True, cells), rows_at(left), buckets)
    rights = cells_of(Grid(False, cells), rows_at(right), buckets)
    met = [(one, other) for b in lefts for one in lefts[b] for other in rights.get(b, ())]
    assert sorted(met) == [(one, other) for one in range(len(left)) for other in range(len(right))]
    assert len({*lefts, *rights}) <= min(buckets, cells)


@modestly
@given(places, st.sampled_from(POWERS), st.booleans())
def test_within_a_bucket_the_hash_follows_time(
    where: list[tuple[int, int, int]], buckets: int, left: bool
) -> None:
    hashed = Grid(left).add_hash(rows_at(where), buckets).sort(TIME)
    bucket = buckets_of(hashed[HASH].to_numpy(), buckets)
    for number in set(bucket.tolist()):
        assert hashed.filter(pl.Series(bucket == number))[HASH].is_sorted()


@pytest.mark.parametrize("buckets", [1, 2, 4, 8, 16, 32, 64])
def test_a_grid_spreads_its_rows_and_copies_them_as_often_as_its_other_side_is_wide(buckets: int) -> None:
    rows = rows_at([(at * 1_000, at % 2, at) for at in range(4_000)])
    high, low = grid_bits(min(buckets, 16))
    for left, other in ((True, low), (False, high)):
        found = cells_of(Grid(left), rows, buckets)
        sizes = [len(found[bucket]) for bucket in found]
        assert sum(sizes) == rows.height << other
        assert len(sizes) == min(buckets, 16)
        assert max(sizes) < 1.2 * min(sizes)


def test_round_robin_is_even() -> None:
    rows = pl.DataFrame({"n": np.arange(6_400)})
    for buckets in (1, 8, 64):
        found = np.bincount(buckets_of(RoundRobin().add_hash(rows, buckets)[HASH].to_numpy(), buckets))
        assert len(found) == buckets
        assert found.max() <= 1.1 * found.min()

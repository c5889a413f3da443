"""The hash of keys is part of the state's format: pinned, and checked against an implementation of xxHash64 here."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.state.buckets import (
    HASH,
    assign_evenly,
    buckets_of,
    check_bucket_count,
    first_hash_of,
    key_hash,
    with_hash,
)

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


GOLDEN: dict[str, list[int]] = {
    "user": [0xD36C3934091206D0, 0x92878A3B42BAD03B, 0x6E756C6C6E756C6C],
    "user, n": [0x5E5BE3DED85FA904, 0x1C59A17B58710FE1, 0x96FDF83FC2EEACDF],
    "n, user, x": [0x354D174C8D58DAAE, 0x3042178FD939D91C, 0x6EE9C20D118D1606],
}


def rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mix(lane: int, word: int) -> int:
    return rotate_left((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    """xxHash64 with seed 0, from its published description."""
    offset = 0
    if len(data) >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while offset + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, offset)
            lanes = [mix(lane, word) for lane, word in zip(lanes, words, strict=True)]
            offset += 32
        digest = sum(rotate_left(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            digest = ((digest ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        digest = P5
    digest = (digest + len(data)) & MASK
    while offset + 8 <= len(data):
        digest = (
            rotate_left(digest ^ mix(0, struct.unpack_from("<Q", data, offset)[0]), 27) * P1 + P4
        ) & MASK
        offset += 8
    if offset + 4 <= len(data):
        digest ^= struct.unpack_from("<I", data, offset)[0] * P1 & MASK
        digest = (rotate_left(digest, 23) * P2 + P3) & MASK
        offset += 4
    for byte in data[offset:]:
        digest = rotate_left(digest ^ byte * P5 & MASK, 11) * P1 & MASK
    digest = (digest ^ digest >> 33) * P2 & MASK
    digest = (digest ^ digest >> 29) * P3 & MASK
    return digest ^ digest >> 32


def hash_of(value: object, dtype: pl.DataType | type[pl.DataType]) -> int:
    return int(key_hash(pl.DataFrame({"k": [value]}, schema={"k": dtype}), ["k"])[0])


def float_bits(value: float) -> bytes:
    return str(struct.unpack("<q", struct.pack("<d", value))[0]).encode()


def test_the_oracle_returns_the_published_values_of_xxhash64() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


@pytest.mark.parametrize(
    ("value", "dtype", "pinned"),
    [
        ("", pl.String, 0xEF46DB3751D8E999),
        ("a", pl.String, 0xD24EC4F1A98C6E5B),
        ("abc", pl.String, 0x44BC2CF5AD770999),
        (None, pl.String, 0x6E756C6C6E756C6C),
        (None, pl.Int64, 0x6E756C6C6E756C6C),
        (None, pl.Float64, 0x6E756C6C6E756C6C),
        (7, pl.Int64, xxh64(b"7")),
        (7, pl.UInt8, xxh64(b"7")),
        (-12345678901, pl.Int64, xxh64(b"-12345678901")),
        (2**64 - 1, pl.UInt64, xxh64(b"18446744073709551615")),
        (True, pl.Boolean, xxh64(b"1")),
        (False, pl.Boolean, xxh64(b"0")),
        (0.0, pl.Float64, xxh64(b"0")),
        (-0.0, pl.Float64, xxh64(b"0")),
        (1.5, pl.Float64, xxh64(float_bits(1.5))),
        (1.5, pl.Float32, xxh64(float_bits(1.5))),
        (float("nan"), pl.Float64, xxh64(b"9221120237041090560")),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pl.Datetime("us", "UTC"), xxh64(b"1000000")),
        (datetime(1970, 1, 1, 0, 0, 1), pl.Datetime("ms"), xxh64(b"1000")),
        (date(1970, 1, 3), pl.Date, xxh64(b"2")),
        (timedelta(seconds=-1), pl.Duration("us"), xxh64(b"-1000000")),
        ("ada", pl.Categorical, xxh64(b"ada")),
        ("ada", pl.Enum(["bob", "ada"]), xxh64(b"ada")),
    ],
)
def test_the_hash_of_a_value_never_changes(value: object, dtype: pl.DataType, pinned: int) -> None:
    assert hash_of(value, dtype) == pinned


def test_the_hashes_of_keys_never_change() -> None:
    frame = pl.DataFrame({"user": ["ada", "bob", None], "n": [1, None, 3], "x": [-0.0, 2.5, float("nan")]})
    assert [int(h) for h in key_hash(frame, ["user"])] == GOLDEN["user"]
    assert [int(h) for h in key_hash(frame, ["user", "n"])] == GOLDEN["user, n"]
    assert [int(h) for h in key_hash(frame, ["n", "user", "x"])] == GOLDEN["n, user, x"]


def test_every_nan_is_one_key() -> None:
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF8000000000000], dtype=np.uint64)
    frame = pl.DataFrame({"k": nans.view(np.float64)})
    assert len(set(key_hash(frame, ["k"]).tolist())) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=90), min_size=1, max_size=5))
def test_texts_of_any_length_are_hashed_by_xxhash64(texts: list[str]) -> None:
    frame = pl.DataFrame({"k": texts}, schema={"k": pl.String})
    assert key_hash(frame, ["k"]).tolist() == [xxh64(text.encode()) for text in texts]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | st.integers(-9, 9)), min_size=1))
def test_several_columns_are_mixed_in_their_order(keys: list[tuple[str | None, int | None]]) -> None:
    def hash_part(value: object) -> int:
        return 0x6E756C6C6E756C6C if value is None else xxh64(str(value).encode())

    def combine_parts(key: Sequence[Any]) -> int:
        first = hash_part(key[0])
        return ((first ^ first >> 29) * 0x9E3779B97F4A7C15 + hash_part(key[1])) & MASK

    frame = pl.DataFrame(keys, schema={"a": pl.String, "b": pl.Int64}, orient="row")
    assert key_hash(frame, ["a", "b"]).tolist() == [combine_parts(key) for key in keys]


def test_without_keys_every_row_is_in_the_first_bucket() -> None:
    frame = with_hash(pl.DataFrame({"n": [1, 2, 3]}), [])
    assert frame[HASH].to_list() == [0, 0, 0]
    assert buckets_of(frame[HASH].to_numpy(), 64).tolist() == [0, 0, 0]


def test_a_key_of_a_type_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        key_hash(pl.DataFrame({"k": [[1]]}), ["k"])
    assert refused.value.condition == "BAD_KEY_TYPE"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, MASK), min_size=1), st.integers(0, 15).map(lambda power: 1 << power))
def test_a_bucket_is_a_range_of_hashes(hashes: list[int], count: int) -> None:
    for hash_, bucket in zip(hashes, buckets_of(np.array(hashes, np.uint64), count).tolist(), strict=True):
        assert first_hash_of(bucket, count) <= hash_ < first_hash_of(bucket + 1, count)
        assert 0 <= bucket < count
    assert first_hash_of(0, count) == 0
    assert first_hash_of(count, count) == 2**64


@pytest.mark.parametrize("count", [0, -1, 3, 65, 1 << 16])
def test_bucket_counts_that_are_not_a_power_of_two_are_refused(count: int) -> None:
    with pytest.raises(UserError) as refused:
        check_bucket_count(count)
    assert refused.value.condition == "BAD_BUCKET_COUNT"


@pytest.mark.parametrize("count", [1, 2, 64, 1 << 15])
def test_powers_of_two_are_bucket_counts(count: int) -> None:
    assert check_bucket_count(count) == count


@given(st.integers(0, 10).map(lambda power: 1 << power), st.integers(1, 70))
def test_buckets_are_assigned_to_slices_evenly_and_in_order(buckets: int, slices: int) -> None:
    slices = min(slices, buckets)
    owners = assign_evenly(buckets, slices)
    assert list(owners) == sorted(owners)
    sizes = [owners.count(slice_) for slice_ in range(slices)]
    assert sum(sizes) == buckets
    assert max(sizes) - min(sizes) <= 1

"""Plain values as bytes: the same value and the same types come back, and nothing else goes in."""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.plain import from_bytes, to_bytes

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.timedeltas()
    | st.datetimes(
        timezones=st.none() | st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-3))])
    )
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(lambda values: deque(values, 7))
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.text() | st.just("~"), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(k, j) and same(v, w) for (k, v), (j, w) in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return (
        bool(one == other) and repr(one) == repr(other)
        if not isinstance(one, set | frozenset)
        else one == other
    )


@given(VALUES)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert same(from_bytes(to_bytes(value)), value)


def test_a_deque_keeps_its_length() -> None:
    assert from_bytes(to_bytes(deque([1, 2], 2))).maxlen == 2


def test_frames_and_arrays_anywhere() -> None:
    frame = pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1.5], []]})
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = from_bytes(to_bytes({"frame": [frame, frame], 3: (array, b"bytes")}))
    assert found["frame"][0].equals(frame)
    assert found["frame"][1].schema == frame.schema
    assert found[3][0].dtype == np.float32
    assert found[3][0].tolist() == array.tolist()
    assert found[3][1] == b"bytes"


@pytest.mark.parametrize(
    "value",
    [object(), OrderedDict(), {"a": {1: print}}, np.int64(1), np.array([object()]), pl.Series([1]), type],
    ids=["object", "ordered dict", "function", "numpy number", "object array", "series", "class"],
)
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="plain value"):
        to_bytes(value)


def test_sets_have_one_spelling() -> None:
    assert to_bytes({"a", "b", "c", 1, 2}) == to_bytes({2, "c", 1, "b", "a"})


def test_dates_and_instants_stay_apart() -> None:
    assert type(from_bytes(to_bytes(date(2020, 1, 1)))) is date
    assert type(from_bytes(to_bytes(datetime(2020, 1, 1)))) is datetime
    assert from_bytes(to_bytes(Decimal("1.50"))).as_tuple() == Decimal("1.50").as_tuple()

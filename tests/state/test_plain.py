"""Plain values as bytes: a value is read with the same types, and no other objects are written or read."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InternalError
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


def equals(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            equals(k, j) and equals(v, w) for (k, v), (j, w) in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(equals(a, b) for a, b in zip(one, other, strict=True))
    return (
        bool(one == other) and repr(one) == repr(other)
        if not isinstance(one, set | frozenset)
        else one == other
    )


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    assert equals(from_bytes(to_bytes(value)), value)


def test_a_deque_is_read_with_its_maximum_length() -> None:
    assert from_bytes(to_bytes(deque([1, 2], 2))).maxlen == 2


def test_frames_and_arrays_inside_other_values_are_read() -> None:
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
    [
        object(),
        OrderedDict(),
        {"a": {1: print}},
        np.int64(1),
        np.array([object()]),
        pl.Series([1]),
        type,
        deque,
        [datetime, datetime(2020, 1, 1)],
        bytearray(b"a"),
        to_bytes,
        [deque([Path("a")])],
    ],
    ids=[
        "object",
        "ordered dict",
        "function",
        "numpy number",
        "object array",
        "series",
        "class",
        "class of plain values",
        "class before its value",
        "bytearray",
        "function of penstock",
        "deep inside",
    ],
)
def test_values_that_are_not_plain_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="plain value"):
        to_bytes(value)


def test_an_object_that_is_referenced_twice_is_read_as_one_object() -> None:
    entry = [1, "a"]
    found = from_bytes(to_bytes({"by name": {"a": entry}, "ranking": [entry], "copy": [1, "a"]}))
    found["by name"]["a"][0] = 2
    assert found["ranking"] == [[2, "a"]]
    assert found["copy"] == [1, "a"]


@pytest.mark.parametrize(
    "value",
    [os.system, eval, getattr, subprocess.Popen, OrderedDict([("a", 1)]), pl.Series([1]), np.int64(1)],
    ids=["system", "eval", "getattr", "process", "ordered dict", "series", "numpy number"],
)
def test_pickles_of_other_objects_are_refused(value: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert_refused(
            pickle.dumps([1, value], protocol), "plain value" if protocol == 4 else "another prefix"
        )


def test_bytes_that_call_a_function_do_not_call_it(tmp_path: Path) -> None:
    created = tmp_path / "created"

    class CallsMkdir:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(created),)

    assert_refused(pickle.dumps(CallsMkdir(), 4), "plain value")
    assert not created.exists()


def push_global(module: str, name: str) -> bytes:
    """Return the instructions that push a global on the stack."""
    texts = (pickle.SHORT_BINUNICODE + bytes((len(text),)) + text.encode() for text in (module, name))
    return b"".join(texts) + pickle.STACK_GLOBAL


@pytest.mark.parametrize("maker", ["_frame", "_array", "_zone"])
@pytest.mark.parametrize(
    "changed", ["__qualname__", "__name__", "__module__", "__reduce__", "__class__", "new"]
)
def test_bytes_cannot_change_the_functions_that_read_them(maker: str, changed: str) -> None:
    values = pl.DataFrame({"a": [1]}), np.arange(3), ZoneInfo("Europe/Berlin")
    before = to_bytes(values)
    slots = pickle.dumps((None, {changed: "os"}), 4)[2:-1]
    attributes = pickle.dumps({changed: "os"}, 4)[2:-1]
    for state in (slots, attributes):
        assert_refused(
            PROTOCOL + push_global("penstock.state.plain", maker) + state + pickle.BUILD + pickle.STOP,
            "Error",
        )
    assert to_bytes(values) == before


PROTOCOL = pickle.PROTO + b"\4"
OTHER_OBJECTS = {
    "reader": push_global("penstock.state.plain", "_frame"),
    "class": push_global("datetime", "datetime"),
    "function": push_global("penstock.state.plain", "to_bytes"),
    "bytearray": pickle.BYTEARRAY8 + (2).to_bytes(8, "little") + b"ab",
}


@pytest.mark.parametrize("kind", OTHER_OBJECTS)
def test_bytes_of_other_objects_are_refused(kind: str) -> None:
    assert_refused(PROTOCOL + OTHER_OBJECTS[kind] + pickle.STOP, "not a plain value")


def test_bytes_of_later_protocols_are_refused() -> None:
    assert_refused(pickle.dumps([bytearray(b"ab")], 5), "another prefix")


def test_an_archive_of_arrays_is_refused() -> None:
    archive = io.BytesIO()
    np.savez(archive, np.arange(3))
    argument = pickle.dumps((archive.getvalue(),), 4)[2:-1]
    maker = push_global("penstock.state.plain", "_array")
    assert_refused(PROTOCOL + maker + argument + pickle.REDUCE + pickle.STOP, "magic")


def assert_refused(data: bytes, why: str) -> None:
    with pytest.raises(InternalError, match=why) as refusal:
        from_bytes(data)
    assert refusal.value.condition == "STATE_DAMAGED"


@pytest.mark.parametrize("data", [b'\0{"n":3}', b"\0[]", b"\1" + bytes(17)])
def test_state_of_an_older_version_is_reported_as_such(data: bytes) -> None:
    with pytest.raises(InternalError) as refusal:
        from_bytes(data)
    assert refusal.value.condition == "STATE_OF_OLDER_FORMAT"
    assert "empty state directory" in str(refusal.value.hint)


@given(st.binary(max_size=40))
def test_any_other_bytes_are_reported_as_damaged(data: bytes) -> None:
    with pytest.raises(InternalError, match=r"STATE_DAMAGED|STATE_OF_OLDER_FORMAT"):
        from_bytes(data)


@given(VALUES, st.data())
def test_truncated_bytes_are_reported_as_damaged(value: Any, data: st.DataObject) -> None:
    whole = to_bytes(value)
    assert_refused(whole[: data.draw(st.integers(0, len(whole) - 1))], "STATE_DAMAGED")


def test_dates_datetimes_and_decimals_keep_their_types() -> None:
    assert type(from_bytes(to_bytes(date(2020, 1, 1)))) is date
    assert type(from_bytes(to_bytes(datetime(2020, 1, 1)))) is datetime
    assert from_bytes(to_bytes(Decimal("1.50"))).as_tuple() == Decimal("1.50").as_tuple()

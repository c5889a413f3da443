"""Plain Python values as bytes and back: what a state may be made of without the user writing a format for it.

Receives None, booleans, whole numbers, floats, texts, bytes, dates and times, lists, tuples, dictionaries, sets, deques
of these, Polars frames and NumPy arrays; hands bytes, and from them an equal value of the same types.

The bytes are a pickle, since states are written and read in every epoch and nothing else in Python is as fast. They
name nothing but the types above, and a reader knows no others: bytes from anywhere can only become such values. What
is in a value twice is one object afterwards as it was before, so that a function which changes it in place does the
same wherever epochs are cut.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import FunctionType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from penstock.state.ipc import from_stream, stream_bytes

#: the last one that has no bytearrays and buffers of its own: so they are refused like all that is not named here
_PROTOCOL = 4


def to_bytes(value: Any) -> bytes:
    """A plain value as bytes; raises `TypeError` for what is not plain."""
    out = io.BytesIO()
    _Writer(out, _PROTOCOL).dump(value)
    return out.getvalue()


def from_bytes(data: bytes) -> Any:
    """The value that became these bytes."""
    return _Reader(io.BytesIO(data)).load()


def _frame(data: bytes) -> pl.DataFrame:
    return from_stream(data)


def _array(data: bytes) -> np.ndarray:
    found: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def _zone(key: str) -> ZoneInfo:
    return ZoneInfo(key)


#: written the way they say themselves
_AS_THEY_ARE = (date, datetime, timedelta, timezone, Decimal, deque)
_KNOWN = {(one.__module__, one.__qualname__): one for one in (*_AS_THEY_ARE, _frame, _array, _zone)}


class _Writer(pickle.Pickler):
    """Refuses what is not plain."""

    def reducer_override(self, obj: Any) -> Any:
        """Asked about all but numbers, texts, bytes, lists, tuples, dictionaries and sets."""
        kind = type(obj)
        if kind in _AS_THEY_ARE or (kind in (type, FunctionType) and obj in _KNOWN.values()):
            return NotImplemented
        if kind is pl.DataFrame:
            return _frame, (stream_bytes(obj).to_pybytes(),)
        if kind is np.ndarray:
            return _array, (_array_bytes(obj),)
        if kind is ZoneInfo and obj.key is not None:
            return _zone, (obj.key,)
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not a plain value")


class _Reader(pickle.Unpickler):
    """Knows the plain types alone."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _KNOWN[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not a plain value") from None


def _array_bytes(array: np.ndarray) -> bytes:
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects is not a plain value")
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()

"""Encode plain Python values as bytes and decode them: the user's state that needs no format of its own.

Plain values are None, booleans, whole numbers, floats, texts, bytes, dates and times, lists, tuples, dictionaries, sets
and deques of these, Polars frames and NumPy arrays. A decoded value is equal and has the same types.

The bytes are a pickle, since state is written and read in every epoch and nothing else in Python is as fast. They name
nothing but the types above, and the reader knows no others: bytes from anywhere can call and change nothing else. An
object that is in a value twice is one object after decoding too, so a function that changes it in place does the same
wherever epochs start and end. The bytes name this module, which therefore cannot be renamed.

Does not guarantee: that bytes made by hand have no bytearray, and none of the classes named here, deep inside; nor that
the writer refuses such a class after a value of it. Looking for them would take longer than to read the rest.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from penstock.errors import InternalError
from penstock.state.ipc import from_stream, stream_bytes

#: the last protocol without bytearrays and buffers of its own, so that they are refused like all other types
_PROTOCOL = 4
#: the first bytes of this encoding, and of the former one in JSON
_PREFIX, _JSON_PREFIXES = bytes((0x80, _PROTOCOL)), (b"\0", b"\1")


def to_bytes(value: Any) -> bytes:
    """A plain value as bytes; raises `TypeError` for what is not plain."""
    out = io.BytesIO()
    _Writer(out, _PROTOCOL).dump(value)
    return out.getvalue()


def from_bytes(data: bytes) -> Any:
    """The value of these bytes."""
    if data[:2] != _PREFIX:
        raise (
            _older_format_error()
            if data.startswith(_JSON_PREFIXES)
            else _damaged_error("they have another prefix")
        )
    try:
        value = _Reader(io.BytesIO(data)).load()
    except MemoryError:
        raise
    except Exception as failure:  # bytes from anywhere may fail in any way
        raise _damaged_error(f"{type(failure).__name__}: {failure}") from failure
    if isinstance(value, _NOT_PLAIN):
        raise _damaged_error(f"a {type(value).__qualname__} is not a plain value")
    return value


class _Maker:
    """Makes a value when it is read. Not a function: bytes that name a function could change it."""

    __slots__ = ()


class _Frame(_Maker):
    __slots__ = ()

    def __call__(self, data: bytes) -> pl.DataFrame:
        return from_stream(data)

    def __reduce__(self) -> str:
        return "_frame"


class _Array(_Maker):
    __slots__ = ()

    def __call__(self, data: bytes) -> np.ndarray:
        found: np.ndarray = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        return found

    def __reduce__(self) -> str:
        return "_array"


class _Zone(_Maker):
    __slots__ = ()

    def __call__(self, key: str) -> ZoneInfo:
        return ZoneInfo(key)

    def __reduce__(self) -> str:
        return "_zone"


_frame, _array, _zone = _MAKERS = _Frame(), _Array(), _Zone()
#: classes that are pickled in their own way
_SELF_PICKLING = (date, datetime, timedelta, timezone, Decimal, deque)
_KNOWN: dict[tuple[str, str], Any] = {
    **{(one.__module__, one.__qualname__): one for one in _SELF_PICKLING},
    **{(__name__, one.__reduce__()): one for one in _MAKERS},
}
#: types that bytes could have as their value, but that are no plain values
_NOT_PLAIN = (type, _Maker, bytearray)


class _Writer(pickle.Pickler):
    """Refuses values that are not plain."""

    #: the class of the value being written: the pickler asks about the class next, the first time
    _of: type | None = None

    def reducer_override(self, obj: Any) -> Any:
        """Called for all but numbers, texts, bytes, lists, tuples, dictionaries and sets."""
        kind = type(obj)
        if kind in _SELF_PICKLING:
            self._of = kind
            return NotImplemented
        if obj is self._of or isinstance(obj, _Maker):
            return NotImplemented
        if kind is pl.DataFrame:
            return _frame, (stream_bytes(obj).to_pybytes(),)
        if kind is np.ndarray:
            return _array, (_array_bytes(obj),)
        if kind is ZoneInfo and obj.key is not None:
            return _zone, (obj.key,)
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not a plain value")


class _Reader(pickle.Unpickler):
    """Knows only the plain types."""

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


def _older_format_error() -> InternalError:
    return InternalError(
        "STATE_OF_OLDER_FORMAT",
        "the state of an operator was written by an older Penstock, in a format that this one does not read",
        hint="Start with an empty state directory, or continue with the Penstock that wrote this one.",
    )


def _damaged_error(why: str) -> InternalError:
    return InternalError(
        "STATE_DAMAGED",
        "the bytes of an operator's state were not written by Penstock",
        detail=why,
        hint="If the operator had a serialize of its own, it needs the deserialize that goes with it; else start with "
        "an empty state directory.",
    )

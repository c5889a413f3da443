"""Plain Python values as bytes and back: what a state may be made of without the user writing a format for it.

Receives None, booleans, whole numbers, floats, texts, bytes, dates and times, lists, tuples, dictionaries, sets, deques
of these, Polars frames and NumPy arrays; hands bytes, and from them an equal value of the same types.

The bytes are a pickle, since states are written and read in every epoch and nothing else in Python is as fast. They
name nothing but the types above, and a reader knows no others: bytes from anywhere can call and change nothing else.
What is in a value twice is one object afterwards as it was before, so that a function which changes it in place does
the same wherever epochs are cut.

Does not guarantee: that bytes made by hand have no bytearray, and no class of those named here, deep inside; nor that
such a class is refused by the writer after a value of it. To look for them would take longer than to read the rest.
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

#: the last one that has no bytearrays and buffers of its own: so they are refused like all that is not named here
_PROTOCOL = 4
#: how its bytes begin, and how those did that were JSON
_BEGINS, _JSON = bytes((0x80, _PROTOCOL)), (b"\0", b"\1")


def to_bytes(value: Any) -> bytes:
    """A plain value as bytes; raises `TypeError` for what is not plain."""
    out = io.BytesIO()
    _Writer(out, _PROTOCOL).dump(value)
    return out.getvalue()


def from_bytes(data: bytes) -> Any:
    """The value that became these bytes."""
    if data[:2] != _BEGINS:
        raise _older() if data.startswith(_JSON) else _damaged("they begin otherwise")
    try:
        value = _Reader(io.BytesIO(data)).load()
    except MemoryError:
        raise
    except Exception as failure:  # bytes from anywhere may fail in any way
        raise _damaged(f"{type(failure).__name__}: {failure}") from failure
    if isinstance(value, _NO_VALUES):
        raise _damaged(f"a {type(value).__qualname__} is not a plain value")
    return value


class _Maker:
    """Makes a value when it is read. Not a function, since those can be changed, and by the bytes that name them."""

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
#: written the way they say themselves
_AS_THEY_ARE = (date, datetime, timedelta, timezone, Decimal, deque)
_KNOWN: dict[tuple[str, str], Any] = {
    **{(one.__module__, one.__qualname__): one for one in _AS_THEY_ARE},
    **{(__name__, one.__reduce__()): one for one in _MAKERS},
}
#: what bytes could name, or hold, that is no value
_NO_VALUES = (type, _Maker, bytearray)


class _Writer(pickle.Pickler):
    """Refuses what is not plain."""

    #: of which class a value is being written: its class comes next, the first time
    _of: type | None = None

    def reducer_override(self, obj: Any) -> Any:
        """Asked about all but numbers, texts, bytes, lists, tuples, dictionaries and sets."""
        kind = type(obj)
        if kind in _AS_THEY_ARE:
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


def _older() -> InternalError:
    return InternalError(
        "STATE_OF_OLDER_FORMAT",
        "the state of an operator was written by an older Penstock, in a format that this one does not read",
        hint="Begin with an empty state directory, or go on with the Penstock that wrote this one.",
    )


def _damaged(why: str) -> InternalError:
    return InternalError(
        "STATE_DAMAGED",
        "the bytes of an operator's state are none that Penstock has written",
        detail=why,
        hint="If the operator had a serialize of its own, it needs the deserialize that goes with it; else begin with "
        "an empty state directory.",
    )

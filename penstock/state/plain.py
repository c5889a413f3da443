"""Plain Python values as bytes and back: what a state may be made of without the user writing a format for it.

Receives None, booleans, whole numbers, floats, texts, bytes, dates and times, lists, tuples, dictionaries, sets, deques
of these, Polars frames and NumPy arrays; hands bytes, and from them an equal value of the same types. Nothing is
pickled: bytes from anywhere can only become such values.

The bytes: a 0 and JSON; or a 1, the lengths, JSON, and the frames, arrays and bytes that it names by their number.
"""

from __future__ import annotations

import io
import json
import struct
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from penstock.state.ipc import from_stream, stream_bytes

#: the one key of the JSON object that stands for a value JSON has no word for: its kind and its contents
_MARK = "~"
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
_DECODE = json.JSONDecoder().raw_decode


def to_bytes(value: Any) -> bytes:
    """A plain value as bytes; raises `TypeError` for what is not plain."""
    blobs: list[bytes] = []
    text = _ENCODE(_packed(value, blobs)).encode()
    if not blobs:
        return b"\0" + text
    sizes = struct.pack(f">B{len(blobs) + 2}Q", 1, len(text), len(blobs), *map(len, blobs))
    return b"".join((sizes, text, *blobs))


def from_bytes(data: bytes) -> Any:
    """The value that became these bytes."""
    if data[0] == 0:
        return _unpacked(_DECODE(data[1:].decode())[0], [])
    length, count = struct.unpack_from(">QQ", data, 1)
    at = 17 + 8 * count
    text, at = data[at : at + length], at + length
    blobs = []
    for size in struct.unpack_from(f">{count}Q", data, 17):
        blobs.append(data[at : at + size])
        at += size
    return _unpacked(_DECODE(text.decode())[0], blobs)


def _packed(value: Any, blobs: list[bytes]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_packed(one, blobs) for one in value]
    if kind is dict:
        if all(type(key) is str for key in value) and _MARK not in value:
            return {key: _packed(one, blobs) for key, one in value.items()}
        return {_MARK: ["dict", [[_packed(k, blobs), _packed(v, blobs)] for k, v in value.items()]]}
    if kind not in _PACK:
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not a plain value")
    name, pack = _PACK[kind]
    return {_MARK: [name, pack(value, blobs)]}


def _unpacked(value: Any, blobs: list[bytes]) -> Any:
    if type(value) is list:
        return [_unpacked(one, blobs) for one in value]
    if type(value) is not dict:
        return value
    if _MARK not in value:
        return {key: _unpacked(one, blobs) for key, one in value.items()}
    name, contents = value[_MARK]
    return _UNPACK[name](contents, blobs)


def _all(values: Any, blobs: list[bytes]) -> list[Any]:
    return [_packed(one, blobs) for one in values]


def _any_order(values: Any, blobs: list[bytes]) -> list[Any]:
    """The members of a set in an order that depends on nothing but them."""
    return sorted(_all(values, blobs), key=_ENCODE)


def _blob(data: bytes, blobs: list[bytes]) -> int:
    blobs.append(data)
    return len(blobs) - 1


def _array_bytes(array: np.ndarray) -> bytes:
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects is not a plain value")
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _array(data: bytes) -> np.ndarray:
    found: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def _zone(zone: tzinfo | None) -> str | float | None:
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is timezone:
        return zone.utcoffset(None).total_seconds()
    raise TypeError(f"a time in the zone {zone!r} is not a plain value")


def _datetime(contents: list[Any]) -> datetime:
    text, fold, zone = contents
    where = None
    if zone is not None:
        where = ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(seconds=zone))
    return datetime.fromisoformat(text).replace(tzinfo=where, fold=fold)


_PACK: dict[type, tuple[str, Callable[[Any, list[bytes]], Any]]] = {
    tuple: ("tuple", _all),
    set: ("set", _any_order),
    frozenset: ("frozenset", _any_order),
    deque: ("deque", lambda value, blobs: [_all(value, blobs), value.maxlen]),
    bytes: ("bytes", _blob),
    datetime: (
        "datetime",
        lambda value, _: [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)],
    ),
    date: ("date", lambda value, _: value.isoformat()),
    timedelta: ("timedelta", lambda value, _: [value.days, value.seconds, value.microseconds]),
    Decimal: ("decimal", lambda value, _: str(value)),
    pl.DataFrame: ("frame", lambda value, blobs: _blob(stream_bytes(value).to_pybytes(), blobs)),
    np.ndarray: ("array", lambda value, blobs: _blob(_array_bytes(value), blobs)),
}
_UNPACK: dict[str, Callable[[Any, list[bytes]], Any]] = {
    "dict": lambda contents, blobs: {_unpacked(k, blobs): _unpacked(v, blobs) for k, v in contents},
    "tuple": lambda contents, blobs: tuple(_unpacked(contents, blobs)),
    "set": lambda contents, blobs: set(_unpacked(contents, blobs)),
    "frozenset": lambda contents, blobs: frozenset(_unpacked(contents, blobs)),
    "deque": lambda contents, blobs: deque(_unpacked(contents[0], blobs), contents[1]),
    "bytes": lambda contents, blobs: blobs[contents],
    "datetime": lambda contents, _: _datetime(contents),
    "date": lambda contents, _: date.fromisoformat(contents),
    "timedelta": lambda contents, _: timedelta(*contents),
    "decimal": lambda contents, _: Decimal(contents),
    "frame": lambda contents, blobs: from_stream(blobs[contents]),
    "array": lambda contents, blobs: _array(blobs[contents]),
}

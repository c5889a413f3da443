"""Encode what an operator's state depends on, its kind and its settings, as canonical JSON data.

Anything with a `kind` can be encoded: an operator, an aggregate function, a window. A class is named by its `kind`, a
setting by the name of its field or by the name that `stored_as` gives it, so that renaming classes and fields or
reordering fields does not change the encoding. A setting that equals the default of its field is left out, so that a
new setting can come with a default that means what was done before. Fields marked `NOT_STATE` are left out.

Guarantees: equal settings have equal encodings in every process, with every Python and on every machine. Different
settings have different ones, except for functions, of which only the name counts, and for what the textual form of a
Polars expression does not show.
On failure: `InternalError` NO_IDENTITY for a value of an unknown type.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from penstock.errors import InternalError
from penstock.operators.custom import PLAIN, CustomOperator

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_STORED_AS = "stored_as"
#: metadata of a field that does not change what state means: a hint, an origin, a function
NOT_STATE: Mapping[str, Any] = {_STORED_AS: None}
#: the length of a digest
DIGITS = 16


def stored_as(name: str) -> Mapping[str, Any]:
    """Metadata of a field that is encoded by another name, the one it had when state was first written."""
    return {_STORED_AS: name}


def kind_of(value: object) -> str | None:
    """The kind that a value's class declares; None where it declares none."""
    kind = getattr(type(value), "kind", None)
    return kind if isinstance(kind, str) else None


def settings_of(value: Any) -> dict[str, Any]:
    """The settings of a value that are encoded, by their encoded names."""
    return {
        name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if (name := field.metadata.get(_STORED_AS, field.name)) is not None
    }


def encode(value: Any) -> Json:
    """A value as JSON data."""
    match value:
        case CustomOperator():
            return encode_custom(value)
        case Enum():
            return {"enum": encode(value.value)}
        case None | bool() | str():
            return value if value is None or isinstance(value, bool) else str(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"float": str(value)}
        case tuple() | list() | deque():
            return [encode(item) for item in value]
        case pl.DataType():
            return {"type": _encode_type(value)}
        case pl.Expr():
            return {"expression": str(value)}
        case type() if issubclass(value, pl.DataType):
            return {"type": _encode_type(value())}
    if kind_of(value) is not None and dataclasses.is_dataclass(value):
        return {"kind": kind_of(value), **_encode_settings(value)}
    return _encode_value(value)


def digest_of(value: Json) -> str:
    """A short digest of encoded data."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:DIGITS]


def canonical(value: Json) -> str:
    """Encoded data as text, in its only form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def versions_of(value: Any) -> dict[str, int]:
    """The state version of every kind in an operator, where it is not 1."""
    return {kind: version for kind, version in sorted(_versions(value)) if version != 1}


def readable_versions(value: Any) -> dict[str, frozenset[int]]:
    """For every kind in an operator the other state versions that it can read."""
    versions: dict[str, frozenset[int]] = {
        _name_of(one): getattr(type(one), "reads_versions", frozenset()) for one in _parts(value)
    }
    return {kind: readable for kind, readable in versions.items() if readable}


def reads_state_of(now: Any, then: Any) -> bool:
    """Whether an operator can read the state of one with equal settings but perhaps another state version."""
    versions, former, readable = versions_of(now), versions_of(then), readable_versions(now)
    return all(
        former.get(kind, 1) == versions.get(kind, 1) or former.get(kind, 1) in readable.get(kind, ())
        for kind in versions.keys() | former.keys()
    )


def _versions(value: Any) -> Iterator[tuple[str, int]]:
    for one in _parts(value):
        yield _name_of(one), int(getattr(type(one), "state_version", 1))


def _name_of(value: object) -> str:
    """The kind of a value, or the class name of a user's operator without a kind."""
    return kind_of(value) or type(value).__qualname__


def _parts(value: Any) -> Iterator[Any]:
    """A value and the values in its settings that have a kind."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, CustomOperator):
        yield value
    elif kind_of(value) is not None and dataclasses.is_dataclass(value):
        yield value
        for setting in settings_of(value).values():
            yield from _parts(setting)


def _encode_settings(value: Any) -> dict[str, Json]:
    encoded_settings: dict[str, Json] = {}
    for field in dataclasses.fields(value):
        name = field.metadata.get(_STORED_AS, field.name)
        if name is None:
            continue
        encoded = encode(getattr(value, field.name))
        if field.default is not dataclasses.MISSING and encoded == encode(field.default):
            continue
        encoded_settings[name] = encoded
    return encoded_settings


def encode_custom(given: Any) -> Json:
    """An object of a user's class: its kind, or else its class name, and its attributes.

    Of attributes that are no plain values, only the names are encoded.
    """
    kind = kind_of(given)
    of = {"kind": kind} if kind else {"class": type(given).__qualname__}
    attributes: Mapping[str, Any] = getattr(given, "__dict__", {})
    return {**of, "attributes": {name: _encode_plain(value) for name, value in attributes.items()}}


def _encode_plain(value: Any) -> Json:
    if not isinstance(value, PLAIN):
        return {"value": "any"}
    try:
        return encode(value)
    except InternalError:
        return {"value": "any"}


def _encode_value(value: Any) -> Json:
    """Plain values that JSON lacks, and functions."""
    match value:
        case Mapping():
            pairs = [[encode(key), encode(item)] for key, item in value.items()]
            return {"map": sorted(pairs, key=canonical)}
        case set() | frozenset():
            return {"set": sorted((encode(item) for item in value), key=canonical)}
        case bytes():
            return {"bytes": value.hex()}
        case timedelta():
            return {"microseconds": value // timedelta(microseconds=1)}
        case datetime() | date() | time():
            return {"time": value.isoformat()}
        case timezone() | ZoneInfo():
            return {"zone": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case np.generic():
            return {"number": encode(value.item()), "type": str(value.dtype)}
        case np.ndarray():
            return {"array": encode(value.tolist()), "type": str(value.dtype)}
        case pl.Series():
            return {"series": encode(value.to_list()), "type": _encode_type(value.dtype)}
        case pl.DataFrame():
            return {"frame": [[name, encode(value[name])] for name in value.columns]}
        case functools.partial():
            return {"function": encode(value.func), "given": [encode(value.args), encode(value.keywords)]}
    name = getattr(value, "__name__", None)
    if callable(value) and isinstance(name, str):
        return {"function": name}
    raise InternalError(
        "NO_IDENTITY",
        f"a {type(value).__name__} cannot be part of the identity of an operator's state",
        hint="Give its class a kind, or mark the field that holds it as NOT_STATE.",
    )


def _encode_type(dtype: pl.DataType) -> Json:
    """A Polars type: its name and its parameters."""
    name = type(dtype).__name__
    match dtype:
        case pl.Datetime():
            return [name, dtype.time_unit, dtype.time_zone]
        case pl.Duration():
            return [name, dtype.time_unit]
        case pl.Decimal():
            return [name, dtype.precision, dtype.scale]
        case pl.Array():
            return [name, _encode_type(dtype.inner), list(dtype.shape)]  # type: ignore[arg-type]
        case pl.List():
            return [name, _encode_type(dtype.inner)]  # type: ignore[arg-type]
        case pl.Struct():
            return [name, [[field.name, _encode_type(field.dtype)] for field in dtype.fields]]  # type: ignore[arg-type]
        case pl.Enum():
            return [name, dtype.categories.to_list()]
    return name

"""Ids and fingerprints of state directories of format 1, which were made of names of classes and their `repr`.

Those names are frozen in this module: renaming a class or a field changes nothing here. It is needed only to open a
directory of format 1 (see `penstock.state.upgrade`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from penstock.operators.custom import PLAIN, CustomOperator
from penstock.operators.identity import kind_of, settings_of

_AGGREGATE = "alias column of"
#: kind of operator -> the class and its fields, in order
_CLASSES: Mapping[str, tuple[str, str]] = {
    "approx-count-distinct": ("ApproxCountDistinct", _AGGREGATE + " lg_k"),
    "approx-quantile": ("ApproxQuantile", _AGGREGATE + " q error"),
    "avg": ("Avg", _AGGREGATE),
    "collect": ("Collect", _AGGREGATE),
    "condition": ("Condition", "text"),
    "count": ("Count", _AGGREGATE),
    "count-distinct": ("CountDistinct", _AGGREGATE),
    "count-values": ("CountValues", _AGGREGATE),
    "count-window": ("CountWindows", "keys aggregates size every growing partial forget_after"),
    "count-window-cross-join": ("LastProduct", "left right n before after condition distinct"),
    "count-window-join": ("CountJoin", "keys right_keys columns n condition distinct ports"),
    "custom-operator": ("Applied", "keys operator columns outputs ordering"),
    "deduplicate": ("Distinct", "keys within columns"),
    "earliest": ("Earliest", _AGGREGATE),
    "event-time-order": ("Ordering", "keys columns"),
    "first": ("First", _AGGREGATE),
    "group-top": ("GroupTop", "keys top columns"),
    "interval-cross-join": ("Product", "left right before after condition distinct"),
    "interval-join": ("TimeJoin", "keys right_keys columns before after condition how strict distinct ports"),
    "joined-columns": ("Columns", "left right shared"),
    "landmark-window": ("LandmarkWindows", "keys aggregates longest"),
    "last": ("Last", _AGGREGATE),
    "last-n": ("LastN", "keys n values partial"),
    "latest": ("Latest", _AGGREGATE),
    "lookup-join": ("Lookup", "keys right_keys columns how deleted broadcast ports"),
    "max": ("Max", _AGGREGATE),
    "median": ("Median", _AGGREGATE + " q"),
    "min": ("Min", _AGGREGATE),
    "pattern": ("Pattern", "keys steps within columns contiguous skip timeouts"),
    "periodic-window-aggregate": ("Updates", "keys window aggregates every"),
    "quantile": ("Quantile", _AGGREGATE + " q"),
    "range-partitioner": ("ByRange", "column bounds"),
    "reduced-at-source": ("Shipped", _AGGREGATE + " function"),
    "round-robin": ("Relay", "columns keys"),
    "row-fold": ("RowFold", "keys name initial columns outgoing forget_after"),
    "running-aggregate": ("RunningAggregation", "keys window aggregates"),
    "session-window": ("SessionWindows", "keys aggregates gap longest"),
    "sliding-window-aggregate": ("SlidingAggregation", "keys window aggregates"),
    "stddev": ("Stddev", _AGGREGATE),
    "sum": ("Sum", _AGGREGATE),
    "summary": ("Summary", _AGGREGATE),
    "template-gap-window-aggregate": ("JobGaps", "keys window aggregates"),
    "template-sliding-window-aggregate": ("JobHops", "keys window aggregates"),
    "template-window-aggregate": ("JobAggregation", "keys window aggregates"),
    "template-windows": ("JobTimes", "windows"),
    "time-window": ("TimeWindow", "size advance offset"),
    "time-window-aggregate": ("Aggregation", "keys window aggregates"),
    "top": ("TopK", "k by keys running descending changes_only"),
    "user-aggregate": ("User", _AGGREGATE + " function"),
    "user-function": ("UserFunction", "name dtype"),
    "variance": ("Variance", _AGGREGATE),
    "window-changes": ("Changes", "keys window aggregates running"),
}


def former_id(id_: str, operator: Any) -> str:
    """The id that the state of a stage had: made of the name of the operator's class."""
    kind = kind_of(operator)
    if kind is None or kind not in _CLASSES:  # the operator is newer
        return id_
    return id_.removesuffix(kind) + _CLASSES[kind][0].lower()


def former_group_id(
    stream: str, key_types: Sequence[pl.DataType], aggregates: Sequence[Any], window: Any | None
) -> str:
    """The id that the state of a template group had; `window`: None where windows do not overlap."""
    shape = f"{former_repr(tuple(key_types))}|{former_repr(tuple(aggregates))}|"
    shape += "" if window is None else former_repr(window)
    return f"jobs-{hashlib.sha256(f'{stream}|{shape}'.encode()).hexdigest()[:12]}"


def former_fingerprint(
    name: str,
    streams: Iterable[str],
    stages: Iterable[tuple[str, Any, Sequence[str], Mapping[str, str], Sequence[Any]]],
    outputs: Iterable[tuple[str, Any]],
) -> str:
    """The fingerprint of an application: of its name and streams; of every stage its former id, operator, the former
    ids of its sources, the types of its columns, and partitioners; and of every output its name and ranking."""
    parts = [name, *sorted(streams)]
    for id_, operator, sources, columns, partitioners in stages:
        by = f"|{former_repr(tuple(partitioners))}" if partitioners else ""
        parts.append(f"{id_}|{former_repr(operator)}|{sorted(sources)}|{dict(columns)}{by}")
    parts += [f"{output}|{former_repr(top)}" for output, top in outputs]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def former_repr(value: Any) -> str:
    """The `repr` of a value as it was."""
    match value:
        case CustomOperator():
            return _former_custom(value)
        case tuple():
            items = [former_repr(item) for item in value]
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        case list():
            return f"[{', '.join(map(former_repr, value))}]"
        case dict():
            return (
                f"{{{', '.join(f'{former_repr(key)}: {former_repr(item)}' for key, item in value.items())}}}"
            )
    kind = kind_of(value)
    if kind is None or not dataclasses.is_dataclass(value):
        return repr(value)
    settings = settings_of(value)
    if kind == "pattern-step":
        absent = ", absent" if settings["absent"] else ""
        return f"step({settings['name']!r}, {settings['condition']}{absent})"
    if kind == "function-partitioner":
        function = getattr(settings["function"], "__name__", "a function")
        return f"ByFunction({function}, {settings['parts']})"
    if kind not in _CLASSES:  # the kind is newer
        return repr(settings)
    class_, fields = _CLASSES[kind]
    return f"{class_}({', '.join(f'{name}={former_repr(settings[name])}' for name in fields.split())})"


def _former_custom(operator: CustomOperator) -> str:
    if type(operator).__repr__ is not CustomOperator.__repr__:
        return repr(operator)  # the user's own
    settings = (f"{n}={v!r}" if isinstance(v, PLAIN) else n for n, v in sorted(vars(operator).items()))
    return f"{type(operator).__qualname__}({', '.join(settings)})"

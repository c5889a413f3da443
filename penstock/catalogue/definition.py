"""Define streams and queries of jobs as plain data, to compare them between versions of a file. Pure.

Two versions of one file have different objects for the same thing: functions and classes are equal here if their code
is, whatever line they are on.

Guarantees: what is equal here does the same.
Does not guarantee: what does the same is equal. A Python function inside an expression of Polars cannot be inspected,
so it differs as soon as its lines move.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import pickle
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import cloudpickle
import polars as pl

from penstock.query import logical
from penstock.query.logical import StreamDefinition
from penstock.sinks.contract import Sink

#: JSON data
Plain = Any
_PACKAGE = "penstock_code_"
#: before the name of the file that an engine started with (see `penstock.cli.load_app`)
_APP = "penstock_app_"
#: how deep values are inspected
_MAX_DEPTH = 40


def define_stream(stream: StreamDefinition) -> dict[str, Plain]:
    """The definition of a stream, apart from its name."""
    definer = _Definer()
    return {
        "log": type(stream.log).__name__,
        **{f"log: {name}": definer.define(value) for name, value in stream.log.settings().items()},
        "decoder": _class_name(type(stream.decoder)),
        "columns": {name: str(dtype) for name, dtype in stream.decoder.schema().items()},
        "decoder's settings": definer.define(stream.decoder),
        "event time": stream.time,
        "allowed lateness": f"{stream.lateness / 1e6:g} s",
        "idle after": None if stream.idle_after is None else f"{stream.idle_after / 1e6:g} s",
        "ahead": None if stream.ahead is None else f"{stream.ahead / 1e6:g} s",
    }


def find_differences(one: Mapping[str, Plain], other: Mapping[str, Plain]) -> list[str]:
    """How two definitions differ, for people: `name: this, not that`."""
    differences = []
    for name in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict) and name == "columns":
            differences += [
                f"column {column}: {theirs.get(column, 'none')}, not {mine.get(column, 'none')}"
                for column in dict.fromkeys([*mine, *theirs])
                if mine.get(column) != theirs.get(column)
            ] or ["the order of the columns"]
        elif isinstance(mine, str | int | float | None) and isinstance(theirs, str | int | float | None):
            differences.append(f"{name}: {theirs}, not {mine}")
        elif _is_short(mine) and _is_short(theirs):
            differences.append(f"{name}: {_format(theirs)}, not {_format(mine)}")
        else:
            differences.append(name)
    return differences


def define_output(output: logical.Output, digest: str) -> Plain:
    """The definition of a job: all steps and the code that they call, its sinks and its recovery. The code is that of a
    bundle of this digest."""
    return {
        "query": _Definer(digest).define(output.node),
        "sinks": define_sinks(output.sinks),
        "recovery": None if output.recovery is None else str(output.recovery),
    }


def define_functions(functions: Mapping[str, Any], digest: str) -> Plain:
    """The definition of functions that SQL calls."""
    return _Definer(digest).define(dict(sorted(functions.items())))


def define_sinks(sinks: tuple[Sink, ...]) -> list[str]:
    """A line for each sink."""
    return [f"{type(sink).__name__}: {sink.describe()}" for sink in sinks]


def _is_short(value: Plain) -> bool:
    return isinstance(value, str | int | float | list | None) and len(str(value)) < 200


def _format(value: Plain) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _class_name(kind: type) -> str:
    return f"{_plain_module(kind.__module__)}.{kind.__qualname__}"


def _plain_module(name: str) -> str:
    """The name of a module as its file has it, in whatever way it was loaded."""
    return name.partition(".")[2] if name.startswith(_PACKAGE) else name.removeprefix(_APP)


class _Definer:
    """Defines values; one that was seen before is named by its number."""

    def __init__(self, digest: str = "") -> None:
        self._digest = digest.encode()
        self._seen: dict[int, int] = {}
        self._keep: list[object] = []  # so that no id is used twice

    def define(self, value: Any, depth: int = 0) -> Plain:
        """A value as plain data."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, bytes):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if isinstance(value, pl.DataType) or (isinstance(value, type) and issubclass(value, pl.DataType)):
            return {"type": str(value)}
        if isinstance(value, pl.Expr):
            return {"expression": self._expression(value)}
        if id(value) in self._seen:
            return {"met": self._seen[id(value)]}
        self._seen[id(value)] = len(self._seen)
        self._keep.append(value)
        if depth > _MAX_DEPTH:
            return {"deep": _class_name(type(value))}
        return self._define_inside(value, depth + 1)

    def _define_inside(self, value: Any, depth: int) -> Plain:
        match value:
            case tuple() | list():
                return [self.define(item, depth) for item in value]
            case Mapping():
                return {
                    "map": [
                        [self.define(key, depth), self.define(item, depth)] for key, item in value.items()
                    ]
                }
            case set() | frozenset():
                return {"set": sorted(str(self.define(item, depth)) for item in value)}
            case logical.Source():
                return {"stream": value.stream.name}
            case logical.Node():
                return self._node(value, depth)
            case functools.partial():
                parts = value.func, value.args, value.keywords
                return {"partial": [self.define(part, depth) for part in parts]}
            case types.FunctionType():
                return self._function(value, depth)
            case types.MethodType():
                return {"method": [self.define(value.__func__, depth), self.define(value.__self__, depth)]}
            case types.CodeType():
                return self._code(value, depth)
            case types.ModuleType():
                return {"module": _plain_module(value.__name__)}
            case type():
                return self._class(value, depth)
            case Enum():
                return {"enum": f"{_class_name(type(value))}.{value.name}"}
            case types.BuiltinFunctionType():
                return {"function": f"{value.__module__}.{value.__qualname__}"}
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif isinstance(value, pl.DataFrame | pl.Series) or not hasattr(value, "__dict__"):
            return self._opaque(value)
        else:
            fields = vars(value)
        return {
            "object": self.define(type(value), depth),
            "with": {name: self.define(item, depth) for name, item in fields.items()},
        }

    def _opaque(self, value: Any) -> Plain:
        """A value that cannot be inspected: its pickle; without one it differs from any value of another version."""
        try:
            content = pickle.dumps(value, protocol=5)
        except Exception:  # the user's own classes may raise anything
            return {"value": _class_name(type(value)), "version": self._digest.decode()}
        return {"value": _class_name(type(value)), "bytes": hashlib.sha256(content).hexdigest()}

    def _node(self, node: logical.Node, depth: int) -> Plain:
        fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
        del fields["origin"]
        return {
            "step": type(node).__name__,
            **{name: self.define(value, depth) for name, value in fields.items()},
        }

    def _function(self, function: types.FunctionType, depth: int) -> Plain:
        if not _is_own(function):
            return {
                "function": f"{function.__module__}.{function.__qualname__}",
                **self._closure(function, depth),
            }
        return {
            "code": self.define(function.__code__, depth),
            "defaults": self.define(function.__defaults__, depth),
            "keywords": self.define(function.__kwdefaults__, depth),
            "globals": {
                name: self.define(function.__globals__[name], depth)
                for name in sorted(_names(function.__code__))
                if name in function.__globals__
            },
            **self._closure(function, depth),
        }

    def _closure(self, function: types.FunctionType, depth: int) -> Plain:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.define(cell.cell_contents, depth))
            except ValueError:  # not filled yet
                cells.append(None)
        return {"closure": cells} if cells else {}

    def _code(self, code: types.CodeType, depth: int) -> Plain:
        return {
            "name": code.co_qualname,
            "bytes": code.co_code.hex(),
            "constants": [self.define(one, depth) for one in code.co_consts],
            "names": [*code.co_names, *code.co_varnames, *code.co_freevars],
        }

    def _expression(self, expr: pl.Expr) -> str:
        """An expression. The version of a Python function in it does not count."""
        try:
            content: bytes = expr.meta.serialize()
        except pl.exceptions.PolarsError:
            return f"{expr} of version {self._digest.decode()}"
        if self._digest:
            content = content.replace(self._digest, b"0" * len(self._digest))
        return hashlib.sha256(content).hexdigest()

    def _class(self, kind: type, depth: int) -> Plain:
        if not _is_own(kind):
            return {"class": _class_name(kind)}
        left_out = ("__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl")
        own = {name: value for name, value in vars(kind).items() if name not in left_out}
        return {
            "class": kind.__qualname__,
            "bases": [self.define(base, depth) for base in kind.__bases__],
            "members": {name: self.define(_unwrap_member(value), depth) for name, value in own.items()},
        }


def _unwrap_member(member: Any) -> Any:
    """The function or value of a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    return member if not inspect.isdatadescriptor(member) else type(member).__name__


def _is_own(value: Any) -> bool:
    """Whether something was defined in a bundle, or in the file that the engine started with and its modules."""
    name = str(value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None))
    return name.startswith((_PACKAGE, _APP)) or name in cloudpickle.list_registry_pickle_by_value()


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

"""What a stream, or the query of a job, is, as plain data that can be compared between versions of a file. Pure.

Receives definitions of streams, logical plans, and what is in them; returns data of JSON. Two versions of one file have
different objects for the same thing: functions and classes are equal here if their code is, whatever line they are on.

Guarantees: what is equal here does the same.
Does not guarantee: what does the same is equal. A Python function inside an expression of Polars cannot be looked into,
so it differs as soon as its lines have moved.
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

import polars as pl

from penstock.query import logical
from penstock.query.logical import StreamDefinition
from penstock.sinks.contract import Sink

#: data of JSON, and nothing else
Plain = Any
_PACKAGE = "penstock_code_"
#: how deep values are looked into
_DEEPEST = 40


def define_stream(stream: StreamDefinition) -> dict[str, Plain]:
    """What a stream is, apart from its name."""
    look = _Look()
    return {
        "log": type(stream.log).__name__,
        **{f"log: {name}": look.at(value) for name, value in stream.log.settings().items()},
        "decoder": _named(type(stream.decoder)),
        "columns": {name: str(dtype) for name, dtype in stream.decoder.schema().items()},
        "decoder's settings": look.at(stream.decoder),
        "event time": stream.time,
        "allowed lateness": f"{stream.lateness / 1e6:g} s",
        "idle after": None if stream.idle_after is None else f"{stream.idle_after / 1e6:g} s",
        "ahead": None if stream.ahead is None else f"{stream.ahead / 1e6:g} s",
    }


def differences(one: Mapping[str, Plain], other: Mapping[str, Plain]) -> list[str]:
    """In what two definitions differ, for people: `name: this, not that`."""
    found = []
    for name in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict) and name == "columns":
            found += [
                f"column {column}: {theirs.get(column, 'none')}, not {mine.get(column, 'none')}"
                for column in dict.fromkeys([*mine, *theirs])
                if mine.get(column) != theirs.get(column)
            ] or ["the order of the columns"]
        elif isinstance(mine, str | int | float | None) and isinstance(theirs, str | int | float | None):
            found.append(f"{name}: {theirs}, not {mine}")
        elif _is_short(mine) and _is_short(theirs):
            found.append(f"{name}: {_shown(theirs)}, not {_shown(mine)}")
        else:
            found.append(name)
    return found


def define_output(output: logical.Output, digest: str) -> Plain:
    """What a job's query is: all its steps and the code that they call, where its rows go, and its recovery. The code
    is that of a bundle of this digest."""
    return {
        "query": _Look(digest).at(output.node),
        "sinks": define_sinks(output.sinks),
        "recovery": None if output.recovery is None else str(output.recovery),
    }


def define_functions(functions: Mapping[str, Any], digest: str) -> Plain:
    """What functions that SQL calls are."""
    return _Look(digest).at(dict(sorted(functions.items())))


def define_sinks(sinks: tuple[Sink, ...]) -> list[str]:
    """Where a job's rows go, a line each."""
    return [f"{type(sink).__name__}: {sink.describe()}" for sink in sinks]


def _is_short(value: Plain) -> bool:
    return isinstance(value, str | int | float | list | None) and len(str(value)) < 200


def _shown(value: Plain) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _named(kind: type) -> str:
    module = kind.__module__
    if module.startswith(_PACKAGE):
        module = module.partition(".")[2]
    return f"{module}.{kind.__qualname__}"


class _Look:
    """A look into values; what was met before is named by its number."""

    def __init__(self, digest: str = "") -> None:
        self._digest = digest.encode()
        self._met: dict[int, int] = {}
        self._keep: list[object] = []  # so that no number is given twice

    def at(self, value: Any, depth: int = 0) -> Plain:
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
        if id(value) in self._met:
            return {"met": self._met[id(value)]}
        self._met[id(value)] = len(self._met)
        self._keep.append(value)
        if depth > _DEEPEST:
            return {"deep": _named(type(value))}
        return self._inside(value, depth + 1)

    def _inside(self, value: Any, depth: int) -> Plain:
        match value:
            case tuple() | list():
                return [self.at(item, depth) for item in value]
            case Mapping():
                return {"map": [[self.at(key, depth), self.at(item, depth)] for key, item in value.items()]}
            case set() | frozenset():
                return {"set": sorted(str(self.at(item, depth)) for item in value)}
            case logical.Source():
                return {"stream": value.stream.name}
            case logical.Node():
                return self._node(value, depth)
            case functools.partial():
                parts = value.func, value.args, value.keywords
                return {"partial": [self.at(part, depth) for part in parts]}
            case types.FunctionType():
                return self._function(value, depth)
            case types.MethodType():
                return {"method": [self.at(value.__func__, depth), self.at(value.__self__, depth)]}
            case types.CodeType():
                return self._code(value, depth)
            case types.ModuleType():
                return {"module": value.__name__.partition(".")[2] if _is_own(value) else value.__name__}
            case type():
                return self._class(value, depth)
            case Enum():
                return {"enum": f"{_named(type(value))}.{value.name}"}
            case types.BuiltinFunctionType():
                return {"function": f"{value.__module__}.{value.__qualname__}"}
        if dataclasses.is_dataclass(value):
            said = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif isinstance(value, pl.DataFrame | pl.Series) or not hasattr(value, "__dict__"):
            return self._opaque(value)
        else:
            said = vars(value)
        return {
            "object": self.at(type(value), depth),
            "with": {name: self.at(item, depth) for name, item in said.items()},
        }

    def _opaque(self, value: Any) -> Plain:
        """What cannot be looked into: its pickle; without one it is equal to nothing of another version."""
        try:
            content = pickle.dumps(value, protocol=5)
        except Exception:  # of the user's own classes, too
            return {"value": _named(type(value)), "version": self._digest.decode()}
        return {"value": _named(type(value)), "bytes": hashlib.sha256(content).hexdigest()}

    def _node(self, node: logical.Node, depth: int) -> Plain:
        said = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
        del said["origin"]
        return {"step": type(node).__name__, **{name: self.at(value, depth) for name, value in said.items()}}

    def _function(self, function: types.FunctionType, depth: int) -> Plain:
        if not _is_own(function):
            return {
                "function": f"{function.__module__}.{function.__qualname__}",
                **self._closure(function, depth),
            }
        return {
            "code": self.at(function.__code__, depth),
            "defaults": self.at(function.__defaults__, depth),
            "keywords": self.at(function.__kwdefaults__, depth),
            "globals": {
                name: self.at(function.__globals__[name], depth)
                for name in sorted(_names(function.__code__))
                if name in function.__globals__
            },
            **self._closure(function, depth),
        }

    def _closure(self, function: types.FunctionType, depth: int) -> Plain:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.at(cell.cell_contents, depth))
            except ValueError:  # not filled yet
                cells.append(None)
        return {"closure": cells} if cells else {}

    def _code(self, code: types.CodeType, depth: int) -> Plain:
        return {
            "name": code.co_qualname,
            "bytes": code.co_code.hex(),
            "constants": [self.at(one, depth) for one in code.co_consts],
            "names": [*code.co_names, *code.co_varnames, *code.co_freevars],
        }

    def _expression(self, expr: pl.Expr) -> str:
        """An expression; of a function of Python's in it, it does not count which version's it is."""
        try:
            content: bytes = expr.meta.serialize()
        except pl.exceptions.PolarsError:
            return f"{expr} of version {self._digest.decode()}"
        if self._digest:
            content = content.replace(self._digest, b"0" * len(self._digest))
        return hashlib.sha256(content).hexdigest()

    def _class(self, kind: type, depth: int) -> Plain:
        if not _is_own(kind):
            return {"class": _named(kind)}
        left_out = ("__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl")
        own = {name: value for name, value in vars(kind).items() if name not in left_out}
        return {
            "class": kind.__qualname__,
            "bases": [self.at(base, depth) for base in kind.__bases__],
            "members": {name: self.at(_plainly(value), depth) for name, value in own.items()},
        }


def _plainly(member: Any) -> Any:
    """What is behind a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    return member if not inspect.isdatadescriptor(member) else type(member).__name__


def _is_own(value: Any) -> bool:
    """Whether something was defined in a bundle."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return str(name).startswith(_PACKAGE)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

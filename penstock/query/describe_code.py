"""Describes functions, classes, expressions and plain values as JSON, of which `code_digests` makes digests. Pure."""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import json
import operator
import os
import pickle
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.errors import InternalError
from penstock.operators.custom import CustomOperator
from penstock.operators.identity import Json, canonical, encode, kind_of
from penstock.state.ipc import stream_bytes

#: the name of the version of Python, if there is code of Python
PYTHON = "Python"
_LIBRARY = sysconfig.get_path("stdlib")
_PENSTOCK = str(Path(__file__).resolve().parent.parent)
#: members of a class that do not change what it does
_NOT_CODE = {
    "__module__",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__qualname__",
    "__annotations__",
    "__firstlineno__",
    "__static_attributes__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__abstractmethods__",
    "_abc_impl",
    "__parameters__",
    "__orig_bases__",
}
#: how Polars marks a function in a serialized expression, and how a pickle starts; the version of Python is in the
#: three bytes before that
_MARK, _PICKLES, _VERSION = b"PLPY", (b"\x80\x05\x95", b"\x80\x04\x95"), 3
#: digits of a digest
_DIGITS = 16


class ClassOnly:
    """An object of which only the class counts, if it is the user's: its settings may be those of one machine."""

    def __init__(self, thing: object) -> None:
        self.kind = type(thing)


class CodeDigests:
    """Collects digests. Each function and class of the user's has its own, and is named where it is used."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._names: dict[int, str] = {}
        #: described objects: as long as they are here, no other object has their id
        self._alive: list[object] = []
        #: the objects being described, to stop at one that contains itself
        self._open: set[int] = set()
        self._has_functions = False

    def digests(self) -> dict[str, str]:
        if not self._has_functions:
            return dict(sorted(self._digests.items()))
        version = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
        return {PYTHON: version, **dict(sorted(self._digests.items()))}

    def add(self, place: str, thing: object) -> None:
        if isinstance(thing, ClassOnly):
            if not _is_users_class(thing.kind):
                return
            thing = thing.kind
        try:
            self._digests[place] = _digest(self._describe(thing))
        # nested too deeply: most likely a literal, and no reason not to start
        except RecursionError:
            self._digests[place] = _digest(["deep", type(thing).__qualname__])

    # -- anything --------------------------------------------------------------------------------

    def _describe(self, thing: object) -> Json:
        if id(thing) in self._open:
            return ["again"]
        if isinstance(thing, tuple | list | set | frozenset | Mapping) or hasattr(thing, "__dict__"):
            self._open.add(id(thing))
            try:
                return self._describe_by_type(thing)
            finally:
                self._open.discard(id(thing))
        return self._describe_by_type(thing)

    def _describe_by_type(self, thing: object) -> Json:
        match thing:
            case types.FunctionType():
                return self._describe_function(thing)
            case types.MethodType():
                return ["method", self._describe(thing.__func__), self._describe(thing.__self__)]
            case functools.partial():
                parts = (thing.func, thing.args, thing.keywords)
                return ["partial", *(self._describe(part) for part in parts)]
            case staticmethod() | classmethod():
                return [type(thing).__name__, self._describe(thing.__func__)]
            case property():
                return ["property", *(self._describe(one) for one in (thing.fget, thing.fset, thing.fdel))]
            case functools.cached_property():
                return ["property", self._describe(thing.func)]
            case type():
                return self._describe_class(thing)
            case types.CodeType():
                return self._describe_code(thing, {})
            case types.ModuleType():
                return ["module", thing.__name__]
            case pl.Expr():
                return self._describe_expression(thing)
            case pl.DataFrame():
                return ["frame", hashlib.sha256(stream_bytes(thing)).hexdigest()]
            case pl.Series():
                return ["series", hashlib.sha256(stream_bytes(thing.to_frame())).hexdigest()]
            case np.ndarray() if not thing.dtype.hasobject:
                return [
                    "array",
                    str(thing.dtype),
                    list(thing.shape),
                    hashlib.sha256(thing.tobytes()).hexdigest(),
                ]
            case re.Pattern():
                return ["pattern", _constant(thing.pattern), thing.flags]
            case operator.itemgetter() | operator.attrgetter() | operator.methodcaller():
                return [type(thing).__name__, *(self._describe(part) for part in thing.__reduce__()[1])]
            case types.SimpleNamespace():
                return ["namespace", self._describe(vars(thing))]
            case os._Environ():
                return ["of", "os", "environ"]  # depends on the machine, not on the code
            case tuple() | list() | set() | frozenset() | dict() if len(thing) > _MANY and _is_plain(thing):
                return [type(thing).__name__, len(thing), _digest_plain(thing)]
            case tuple() | list():
                return [type(thing).__name__, *(self._describe(item) for item in thing)]
            case set() | frozenset():
                items: list[Json] = [self._describe(item) for item in thing]
                return ["set", *sorted(items, key=canonical)]
            case Mapping():
                pairs: list[Json] = [[self._describe(k), self._describe(v)] for k, v in thing.items()]
                return ["map", *sorted(pairs, key=canonical)]
        return self._describe_object(thing)

    def _describe_object(self, thing: object) -> Json:
        kind = type(thing)
        wrapped = getattr(thing, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType):  # by functools.cache
            return ["wrapped", kind.__qualname__, self._describe(wrapped)]
        if isinstance(thing, CustomOperator) or _is_users_class(kind):
            return [
                "object",
                self._describe_class(kind),
                self._describe(dict(getattr(thing, "__dict__", {}))),
            ]
        if kind_of(thing) is not None and dataclasses.is_dataclass(thing):
            settings = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
            return ["of", kind_of(thing), self._describe(settings)]
        if kind.__module__.startswith("polars.") and not isinstance(thing, pl.DataType):
            # it wraps a function
            return ["of", kind.__qualname__, self._describe(dict(getattr(thing, "__dict__", {})))]
        try:
            return ["value", kind.__name__, encode(thing)]
        except InternalError:
            name = getattr(thing, "__qualname__", None)
            return ["of", kind.__module__, kind.__qualname__, name if isinstance(name, str) else None]

    # -- functions -------------------------------------------------------------------------------

    def _describe_function(self, function: types.FunctionType) -> Json:
        if not _is_users(function):
            cells: list[Json] = [self._describe(one) for one in _closure_of(function).values()]
            return ["of", str(function.__module__), function.__qualname__, *cells]
        if (name := self._names.get(id(function))) is None:
            self._has_functions = True
            name = self._name(function, function.__qualname__)
            self._digests[name] = _digest(
                [
                    self._describe_code(function.__code__, function.__globals__),
                    self._describe(function.__defaults__),
                    self._describe(function.__kwdefaults__ or {}),
                    self._describe(_closure_of(function)),
                ]
            )
        return ["see", name]

    def _describe_class(self, kind: type) -> Json:
        if not _is_users_class(kind):
            return ["of", kind.__module__, kind.__qualname__]
        if (name := self._names.get(id(kind))) is None:
            self._has_functions = True
            name = self._name(kind, kind.__qualname__)
            members = {key: value for key, value in vars(kind).items() if key not in _NOT_CODE}
            self._digests[name] = _digest(
                [
                    *(self._describe_class(base) for base in kind.__bases__),
                    {key: self._describe(value) for key, value in members.items()},
                ]
            )
        return ["see", name]

    def _name(self, thing: object, qualname: str) -> str:
        """A unique name: the qualified name, with a number if it is taken."""
        base = qualname.replace("<locals>.", "")
        name, number = base, 1
        while name in self._names.values():
            number += 1
            name = f"{base} ({number})"
        self._names[id(thing)] = name
        self._alive.append(thing)
        return name

    def _describe_code(self, code: types.CodeType, scope: Mapping[str, object]) -> Json:
        """The instructions of a function, with the names and constants that they refer to."""
        instructions: list[Json] = []
        attributes = {str(one.argval) for one in dis.get_instructions(code) if one.opname in _LOOKS_UP}
        for one in dis.get_instructions(code):
            value: Json = None
            if isinstance(one.argval, types.CodeType):
                value = self._describe_code(one.argval, scope)
            elif one.opname in _NAMES_A_GLOBAL and one.argval in scope:
                value = [str(one.argval), self._describe_global(scope[str(one.argval)], attributes)]
            elif one.opname in _HAS_A_CONSTANT:
                value = _constant(one.argval)
            elif one.argval is not None:
                value = str(one.argval)
            if one.opname == "STORE_NAME" and one.argval in _NOT_CODE:  # of a class in a function
                instructions.pop()
                continue
            instructions.append([one.opname, value])
        flags = code.co_flags & ~_COMPILE_FLAGS
        counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, flags]
        return ["code", *counts, list(code.co_varnames[: sum(counts[:3])]), *instructions]

    def _describe_global(self, thing: object, attributes: Iterable[str]) -> Json:
        if isinstance(thing, types.ModuleType) and _is_users_file(
            getattr(thing, "__file__", None) or _LIBRARY
        ):
            used = {name: vars(thing)[name] for name in attributes if name in vars(thing)}
            return ["module", self._describe(used)]
        return self._describe(thing)

    # -- expressions -----------------------------------------------------------------------------

    def _describe_expression(self, expr: pl.Expr) -> Json:
        """An expression in full, and the functions in it."""
        try:
            serialized = json.loads(expr.meta.serialize(format="json"))
        except Exception:  # a function that cannot be pickled, for any reason of the user's
            return ["expression", str(expr)]
        return ["expression", self._replace_functions(serialized)]

    def _replace_functions(self, value: Any) -> Json:
        """What Polars serialized, with descriptions in the place of pickled functions."""
        if isinstance(value, dict):
            return {key: self._replace_functions(item) for key, item in value.items()}
        if isinstance(value, list) and value[: len(_MARK)] == list(_MARK):
            return self._describe_pickled(bytes(value))
        if isinstance(value, list):
            return [self._replace_functions(item) for item in value]
        return str(value) if isinstance(value, float) else value

    def _describe_pickled(self, data: bytes) -> Json:
        at = min((start for start in map(data.find, _PICKLES) if start >= 0), default=len(data))
        try:
            function = pickle.loads(data[at:])  # our own: it was pickled a moment ago, from the plan
        except Exception:  # whatever the user's objects raise
            return ["function", "any"]
        self._alive.append(function)
        return ["function", data[: max(at - _VERSION, 0)].hex(), self._describe(function)]


#: instructions that name a global, look up an attribute, have a constant
_NAMES_A_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
_LOOKS_UP = {"LOAD_ATTR", "LOAD_METHOD"}
_HAS_A_CONSTANT = {"LOAD_CONST", "KW_NAMES", "RETURN_CONST", "LOAD_SMALL_INT"}
#: a collection of more numbers or texts is described as a whole
_MANY = 1_000
_PLAIN = (bool, int, float, str, bytes, type(None))
#: flags of how code was compiled, not of what it does: from __future__ import annotations
_COMPILE_FLAGS = 0x1000000


def _constant(value: object) -> Json:
    match value:
        case tuple():
            return ["tuple", *map(_constant, value)]
        case frozenset():
            return ["set", *sorted(map(_constant, value), key=canonical)]
        case complex() | types.EllipsisType():
            return ["constant", repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case float():
            return ["float", repr(value)]
        case bool() | int():
            return [type(value).__name__, str(value)]
    return None if value is None else str(value)


def _is_plain(many: Collection[object]) -> bool:
    """Whether a collection has only numbers and texts."""
    items = [*many.keys(), *many.values()] if isinstance(many, dict) else many
    return all(type(item) in _PLAIN for item in items)


def _digest_plain(many: Collection[object]) -> str:
    """A digest of many numbers and texts, such as a lookup table, which take seconds one by one."""
    items = many.items() if isinstance(many, dict) else many
    texts = [repr(item) for item in items]
    ordered = texts if isinstance(many, tuple | list) else sorted(texts)
    return hashlib.sha256("\n".join(ordered).encode(errors="surrogatepass")).hexdigest()


def _closure_of(function: types.FunctionType) -> dict[str, object]:
    """The values that a function closes over, by name."""
    values: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not filled yet
            values[name] = None
    return values


def _is_users(function: Callable[..., object]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and _is_users_file(code.co_filename)


def _is_users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    if module is None:  # unpickled, or defined in a script
        return kind.__module__ != "builtins"
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" if file is None else _is_users_file(file)


def _is_users_file(file: str) -> bool:
    return "site-packages" not in file and not file.startswith((_LIBRARY, _PENSTOCK, "<frozen"))


def _digest(described: Json) -> str:
    return hashlib.sha256(canonical(described).encode()).hexdigest()[:_DIGITS]

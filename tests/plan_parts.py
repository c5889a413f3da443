"""The classes of a package, and those of all objects that plans are made of: what a query covers, and what it lacks."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from penstock.operators.contract import Operator
from penstock.operators.functions.contract import AggregateFunction


def classes(package: ModuleType, base: type[Any]) -> set[type[Any]]:
    """The classes below a base that can be made, in a package or module and all below it."""
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
        importlib.import_module(module.name)
    return {one for one in _below(base) if _is_of(package, one) and not inspect.isabstract(one)}


def classes_of(parts: Iterable[object]) -> frozenset[type]:
    """The classes of some objects of the package, and of all that they are made of."""
    found: dict[int, object] = {}
    for part in parts:
        _collect(part, found)
    return frozenset(map(type, found.values()))


def _is_of(package: ModuleType, one: type[Any]) -> bool:
    return f"{one.__module__}.".startswith(f"{package.__name__}.")


def _below(base: type[Any]) -> Iterator[type[Any]]:
    for one in base.__subclasses__():
        yield one
        yield from _below(one)


def _collect(one: object, found: dict[int, object]) -> None:
    """An object of ours and all that it is made of."""
    if id(one) in found or not type(one).__module__.startswith("penstock."):
        return
    found[id(one)] = one
    parts = [*vars(one).values()] if hasattr(one, "__dict__") else []
    if isinstance(one, Operator):
        parts += [one.route(port) for port in range(one.ports)]
    if isinstance(one, AggregateFunction):
        parts += one.pieces()
    for part in parts:
        for each in part if isinstance(part, tuple | list) else (part,):
            _collect(each, found)

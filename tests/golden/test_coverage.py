"""Whatever keeps state has golden state: a new operator, window, aggregate or piece of one without any fails here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import penstock.operators
import penstock.query
from penstock.operators.contract import Operator
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.routing import Route
from penstock.query.windowed import Window
from tests.golden import lives
from tests.golden.cases import CASES
from tests.golden.given import Given, made_lines

#: what holds no state of its own, or cannot be in a state directory, each with its reason
WITHOUT: dict[str, str] = {
    "Relay": "hands rows on; what it reads waits nowhere",
}


def every(package: ModuleType, base: type) -> set[type]:
    """The classes below a base that can be made, in a package and all below it."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return {
        one
        for one in _below(base)
        if not inspect.isabstract(one) and one.__module__.startswith(package.__name__)
    }


def _below(base: type) -> Iterator[type]:
    for one in base.__subclasses__():
        yield one
        yield from _below(one)


@cache
def used() -> frozenset[object]:
    """Everything that the plans of all cases are made of."""
    found: set[object] = set()
    for case in CASES.values():
        given = Given(made_lines(), Path("out"))
        for operator in case.planned(given):
            _collect(operator, found)
    return frozenset(found)


def _collect(one: object, found: set[object]) -> None:
    kind = type(one)
    if kind in found and not isinstance(one, Operator | AggregateFunction):
        return
    found.add(kind)
    if isinstance(one, Operator):
        for port in range(one.ports):
            found.add(type(one.route(port)))
    if isinstance(one, AggregateFunction):
        for piece in one.pieces():
            _collect(piece, found)
    for value in vars(one).values() if hasattr(one, "__dict__") else ():
        for part in value if isinstance(value, tuple | list) else (value,):
            if type(part).__module__.startswith("penstock."):
                _collect(part, found)


def lacking(wanted: set[type]) -> list[str]:
    return sorted(one.__name__ for one in wanted if one not in used() and one.__name__ not in WITHOUT)


def test_every_operator_has_golden_state() -> None:
    assert lacking(every(penstock.operators, Operator)) == []


def test_every_aggregate_function_has_golden_state() -> None:
    assert lacking({one for one in every(penstock.operators, AggregateFunction)}) == []


def test_every_piece_of_an_aggregate_has_golden_state() -> None:
    assert lacking(every(penstock.operators, Piece)) == []


def test_every_way_to_the_buckets_has_golden_state() -> None:
    assert lacking(every(penstock.operators, Route)) == []

"""Whatever keeps state has golden state: a new operator, window, aggregate, or part of one, without any fails here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import penstock.ingest
import penstock.logs
import penstock.operators
import penstock.query
import penstock.spark
from penstock.logs.contract import Log
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.count_windows import CountWindows
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.routing import Route
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.sliding import SlidingAggregation
from penstock.query.windows import Window
from tests.golden.cases import CASES
from tests.golden.given import Given, made_lines

#: what is in no plan, or keeps no state of its own; each with the reason
WITHOUT: dict[str, str] = {
    "MadeLog": "the base of logs made from counters",
    "SparkSource": "missing: where it is stands in a checkpoint of Spark's own, so a case needs Spark",
    "EventWindows": "the base of windows over events; each of those is an operator by itself",
    "KeyedJoin": "the base of joins by key",
    "PaneOperator": "the base of operators that keep panes",
    "StrictOperator": "the base of operators that take rows in strict order",
    "_FlushableAggregation": "the base of operators of many jobs",
    "_Distinct": "the base of functions that count different values",
    "_OfTime": "the base of functions of event time",
    "_Ordered": "the base of functions that compare",
    "_Quantile": "the base of quantiles",
    "_Sequential": "the base of functions that read the order of events",
    "_Summing": "the base of functions that add up",
}


#: the operators that a kind of window becomes, with any emission
OPERATORS: dict[str, tuple[type, ...]] = {
    "InTime": (Aggregation, SlidingAggregation, OnChangeAggregation, PeriodicAggregation),
    "Running": (RunningAggregation, OnChangeAggregation),
    "ByCount": (CountWindows,),
    "InSessions": (SessionWindows,),
    "BetweenLandmarks": (LandmarkWindows,),
}


def classes(package: ModuleType, base: type[Any]) -> set[type[Any]]:
    """The classes below a base that can be made, in a package and all below it."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return {one for one in _below(base) if _of(package, one) and not inspect.isabstract(one)}


def _of(package: ModuleType, one: type[Any]) -> bool:
    return one.__module__.startswith(f"{package.__name__}.")


def _below(base: type[Any]) -> Iterator[type[Any]]:
    for one in base.__subclasses__():
        yield one
        yield from _below(one)


@cache
def used() -> frozenset[type]:
    """The classes of everything that the plans of all cases are made of."""
    found: dict[int, object] = {}
    for case in CASES.values():
        with TemporaryDirectory() as folder:
            given = Given(case.lines(made_lines()), Path(folder) / "out")
            for one in case.planned(given, Path(folder)):
                _collect(one, found)
    return frozenset(map(type, found.values()))


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


def lacking(wanted: set[type]) -> list[str]:
    return sorted(one.__name__ for one in wanted if one not in used() and one.__name__ not in WITHOUT)


def test_every_operator_has_golden_state() -> None:
    wanted = classes(penstock.operators, Operator)
    assert len(wanted) > 20
    assert lacking(wanted) == []


def test_every_aggregate_function_has_golden_state() -> None:
    wanted = classes(penstock.operators, AggregateFunction)
    assert len(wanted) > 15
    assert lacking(wanted) == []


def test_every_piece_of_an_aggregate_has_golden_state() -> None:
    assert lacking(classes(penstock.operators, Piece)) == []


def test_every_way_to_the_buckets_has_golden_state() -> None:
    assert lacking(classes(penstock.operators, Route)) == []


def test_every_kind_of_window_has_golden_state() -> None:
    """With whatever it emits: at the end, on changes, periodically."""
    wanted = {
        operator
        for window in classes(penstock.query, Window)
        for operator in OPERATORS[window.__name__]  # a new kind of window: say which operators it becomes
    }
    assert lacking(wanted) == []


def test_every_kind_of_log_has_golden_state() -> None:
    wanted = classes(penstock.logs, Log) | classes(penstock.ingest, Log) | classes(penstock.spark, Log)
    assert len(wanted) > 6
    assert lacking(wanted) == []


def test_nothing_is_excused_that_is_there() -> None:
    assert [name for name in WITHOUT if name in {one.__name__ for one in used()}] == []

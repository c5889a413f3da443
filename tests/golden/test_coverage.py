"""Whatever keeps state has golden state: a new operator, window, aggregate, or part of one, without any fails here.

The cases have all of them, and so must the archives of the newest format: a case that is changed later does not change
what its archive holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest

import penstock.ingest
import penstock.logs
import penstock.operators
import penstock.query
import penstock.spark
from penstock.catalogue import command
from penstock.logs.contract import Log
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.count_windows import CountWindows
from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.routes import Route
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.sliding import SlidingAggregation
from penstock.query.windows import Window
from tests.golden import archive
from tests.golden.cases import CASES
from tests.golden.given import Given, made_lines
from tests.plan_parts import classes, classes_of

#: what is in no plan, or keeps no state of its own; each with the reason
WITHOUT: dict[str, str] = {
    "MadeLog": "the base of logs made from counters",
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


@cache
def used() -> frozenset[type]:
    """The classes of everything that the plans of all cases are made of."""
    found: list[object] = []
    for case in CASES.values():
        with TemporaryDirectory() as folder:
            given = Given(case.lines(made_lines()), Path(folder) / "out")
            found += case.planned(given, Path(folder))
    return classes_of(found)


def lacking(wanted: set[type]) -> list[str]:
    return sorted(one.__name__ for one in wanted if one not in used() and one.__name__ not in WITHOUT)


@pytest.mark.slow
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


# -- the archives of the newest format -----------------------------------------------------------

_NEWEST = archive.releases()[-1]


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The cases of the newest format, each unpacked."""
    folder = tmp_path_factory.mktemp("newest")
    for name in archive.cases_of(_NEWEST):
        archive.unpack(archive.path_of(_NEWEST, name), folder / name)
    return {name: folder / name for name in archive.cases_of(_NEWEST)}


@pytest.mark.parametrize(
    ("package", "base"), [(penstock.operators, Operator), (penstock.operators, AggregateFunction)]
)
def test_the_newest_format_holds_every_kind(
    package: ModuleType, base: type[Any], newest: Mapping[str, Path]
) -> None:
    wanted = {one.kind for one in classes(package, base) if one.__name__ not in WITHOUT}
    assert len(wanted) > 15
    assert wanted - {kind for folder in newest.values() for kind in archive.about(folder)["kinds"]} == set()


def test_the_newest_format_holds_every_kind_of_command(newest: Mapping[str, Path]) -> None:
    """In the log of commands, as they were written before the cut; some were folded since."""
    wanted = set(command._READ)
    assert len(wanted) > 12
    entries = [path for folder in newest.values() for path in folder.glob("state/**/commands/*.json")]
    assert wanted - {one["do"] for path in entries for one in json.loads(path.read_text())} == set()


def _json_objects(newest: Mapping[str, Path], pattern: str) -> list[dict[str, Any]]:
    """The JSON objects with which the files of a pattern begin, in all cases."""
    texts = [path.read_text() for folder in newest.values() for path in (folder / "state").glob(pattern)]
    return [json.JSONDecoder().raw_decode(text)[0] for text in texts]


#: what some files have, by the pattern of their names: a key of JSON with a value that is not empty. Missing are
#: `before` of epoch records and `gap` of manifests, of engines that may lose epochs: what they lose depends on the kill
KEYS = [
    ("penstock.json", "dropped"),
    ("penstock.json", "former_query_upto"),
    ("penstock.json", "logs"),
    ("manifests/*.json", "identities"),
    ("manifests/*.json", "jobs"),
    ("manifests/*.json", "answers"),
    ("epochs/*.json", "maps"),
    ("epochs/*.json", "checkpoint_every"),
    ("commands/*.snapshot", "removed"),
    ("commands/*.snapshot", "said"),
    ("commands/*.snapshot", "answered"),
    ("commands/*.snapshot", "former"),
]


@pytest.mark.parametrize(("pattern", "key"), KEYS, ids=[f"{pattern}-{key}" for pattern, key in KEYS])
def test_the_newest_format_holds_what_only_some_directories_have(
    pattern: str, key: str, newest: Mapping[str, Path]
) -> None:
    assert any(one.get(key) for one in _json_objects(newest, pattern))


def test_the_newest_format_holds_emissions_that_were_held_back(newest: Mapping[str, Path]) -> None:
    ends = [one["end"] for one in _json_objects(newest, "epochs/*.json")]
    assert any(end.get("upto") for end in ends)
    streams = [one["streams"] for one in _json_objects(newest, "manifests/*.json")]
    assert any(stream.get("ahead") for each in streams for stream in each.values())


def test_the_newest_format_holds_stored_code(newest: Mapping[str, Path]) -> None:
    """That of commands in the log and that of a snapshot's jobs and streams; of an app's outputs too."""
    code = [path for folder in newest.values() for path in folder.glob("state/code/*/manifest.json")]
    assert max(len(json.loads(path.read_text())["files"]) for path in code) > 1
    snapshots = _json_objects(newest, "commands/*.snapshot")
    jobs = [job for one in snapshots for job in one["jobs"] if job["code"]]
    assert {job["created"] < 0 for job in jobs} == {True, False}
    assert {job["code"]["deployed"] for job in jobs} == {True, False}
    assert any(len(stream) > 3 for one in snapshots for stream in one["streams"])


def test_the_newest_format_holds_a_failed_job_and_an_upgraded_directory(newest: Mapping[str, Path]) -> None:
    for pattern in ("failures/*.json", "backup-format-1/manifests/*.json"):
        assert any(list((folder / "state").glob(pattern)) for folder in newest.values())

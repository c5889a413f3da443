"""Run an app three ways: straight; cut into other epochs; killed, and resumed at another parallelism.

The rows of each output, in the order of emission, are compared between the ways.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.epoch import admission, stages
from penstock.epoch import runner as epoch
from penstock.epoch import slice as slices
from penstock.testing import run_inline

DATA = Path(__file__).parents[2].parent / "shared" / "data"
Row = dict[str, Any]
Rows = dict[str, list[Row]]
Build = Callable[[Path], ps.App]


def data(name: str) -> Path:
    """Return a file of real data; skip the test without it."""
    if not (DATA / name).is_file():
        pytest.skip(f"the real data, ../shared/data/{name}, is not on this machine")
    return DATA / name


class _Killed(Exception):
    pass


@contextmanager
def killed_at(at: str, in_epoch: int) -> Iterator[None]:
    """End the engine at this step of this epoch; fail if it never gets there."""

    def check_step(step: str, number: int, engine_pid: int | None = None) -> None:
        if (step, number) == (at, in_epoch):
            raise _Killed

    with pytest.MonkeyPatch.context() as patch:
        for module in (admission, epoch, slices, stages):
            patch.setattr(module, "reached", check_step)
        with pytest.raises(_Killed):
            yield


def read_rows(results: Path) -> Rows:
    """Read the rows of every JSON-lines output below a directory, in the order of emission."""
    found: Rows = {}
    for file in sorted(results.glob("*/*.jsonl")):
        lines = file.read_text().splitlines()
        found.setdefault(file.parent.name, []).extend(map(json.loads, lines))
    return found


def run_three_ways(build: Build, folder: Path, *, units: int, most_slices: int = 5) -> Rows:
    """Return the rows of the straight run; the other runs must emit the same, in any order at one instant."""
    run_inline(build(folder / "straight"), folder / "straight-state", slices=1)
    straight = read_rows(folder / "straight")
    run_inline(
        build(folder / "cut"),
        folder / "cut-state",
        epoch_units=units,
        slices=lambda n: 1 + n % min(3, most_slices),
    )
    assert in_any_order(read_rows(folder / "cut")) == in_any_order(straight), "cut into other epochs"
    dying = build(folder / "killed")
    for at, number in (("sliced", 1), ("emitted", 2)):
        with killed_at(at, number):
            run_inline(dying, folder / "killed-state", epoch_units=2 * units, slices=1)
    run_inline(build(folder / "killed"), folder / "killed-state", epoch_units=3 * units, slices=most_slices)
    assert in_any_order(read_rows(folder / "killed")) == in_any_order(straight), "killed and resumed"
    return straight


def in_any_order(rows: Rows) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(row, sort_keys=True) for row in found) for name, found in rows.items()}


def assert_same_rows(found: list[Row], expected: list[Row]) -> None:
    """Assert that two lists hold the same rows, in any order; floats may differ in the ninth digit."""
    one, other = (sorted((_split(row) for row in rows), key=repr) for rows in (found, expected))
    assert Counter(words for words, _ in one) == Counter(words for words, _ in other)
    for (words, mine), (_, theirs) in zip(one, other, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-9), words


def _split(row: Row) -> tuple[str, list[float]]:
    """Split a row into the part that must be equal, as text, and the numbers that may differ a little."""
    floats = {name: value for name, value in row.items() if isinstance(value, float)}
    words = {name: _normalise(value) for name, value in row.items() if name not in floats}
    return json.dumps([words, sorted(floats)], sort_keys=True), [floats[name] for name in sorted(floats)]


def _normalise(value: Any) -> Any:
    """Convert instants of JSON and of Python to one form."""
    if isinstance(value, str) and len(value) >= 20 and value[10] == "T" and value.endswith("Z"):
        value = datetime.fromisoformat(value)
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value

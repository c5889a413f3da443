"""When a coordinator declares a unit failed: not while an engine that may still lead is up, nor for past errors."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery, Unit, UnitEngine, UnitRecord

#: a process that has ended
GONE = 2**22 + 1


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    made = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    made.create_record(UnitRecord(Scheme.active_standby, str(made.root), leader="e1", generation=1))
    yield made
    made.close()


def phase_after_look(unit: Unit, engines: dict[str, UnitEngine], **record: Any) -> str:
    """The unit's phase after a coordinator has inspected it; no engine is started."""
    unit.change(lambda now: replace(now, **record))
    coordinator = Coordinator(unit, start=lambda unit, name, kind: None, report=lambda _: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unit, "engines", lambda: engines)
        coordinator._look()
    return unit.record().phase


def follower(pid: int | None = None) -> UnitEngine:
    return UnitEngine(pid or os.getpid(), socket.gethostname(), "active", phase="following", epoch=5)


def errors_of(*names: str, code: int = 3) -> tuple[tuple[str, int, str, int], ...]:
    return tuple((name, code, "[X] it ended", 5) for name in names)


def recoveries_of(*names: str) -> tuple[Recovery, ...]:
    pairs = enumerate(pairwise(names), 2)
    return tuple(Recovery(lost, leader, number, "active-standby", 0.0) for number, (lost, leader) in pairs)


@pytest.mark.parametrize(
    "errors", [errors_of("e2", "e3", "e4"), errors_of("e2", code=2)], ids=["three", "one"]
)
def test_a_unit_with_an_engine_up_or_starting_does_not_fail_for_errors_of_others(
    errors: Any, unit: Unit
) -> None:
    assert phase_after_look(unit, {"e5": follower()}, errors=errors) == "running"
    assert phase_after_look(unit, {}, errors=errors, pending={"e5": ("active", 4e9)}) == "running"


@pytest.mark.parametrize(
    "errors", [errors_of("e2", "e3", "e4"), errors_of("e2", code=2)], ids=["three", "one"]
)
def test_a_unit_without_engines_fails(errors: Any, unit: Unit) -> None:
    assert phase_after_look(unit, {"e5": follower(GONE)}, errors=errors) == "failed"


def test_an_engine_that_leaves_does_not_keep_the_unit_running(unit: Unit) -> None:
    assert (
        phase_after_look(unit, {"e5": follower()}, errors=errors_of("e1", code=2), leaving=("e5",))
        == "failed"
    )


def test_a_unit_fails_when_three_leaders_in_a_row_have_failed(unit: Unit) -> None:
    """Otherwise a unit that starts engines faster than they fail would never report why it makes no progress."""
    two = {"leader": "e3", "recoveries": recoveries_of("e1", "e2", "e3")}
    assert (
        phase_after_look(unit, {"e4": follower()}, errors=errors_of("e1", "e2", code=2), **two) == "running"
    )
    assert (
        phase_after_look(unit, {"e4": follower()}, errors=errors_of("e1", "e2", "e3", code=2), **two)
        == "failed"
    )

"""When a coordinator gives a unit up: not while an engine is up that has not had its try, nor for what is over."""

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
from penstock.ha.unit import Member, Recovery, Unit, UnitRecord

#: a process that has ended
GONE = 2**22 + 1


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    made = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    made.create_record(UnitRecord(Scheme.active_standby, str(made.root), leader="e1", generation=1))
    yield made
    made.close()


def looked(unit: Unit, members: dict[str, Member], **record: Any) -> str:
    """The unit's phase after a coordinator has looked at it; no engine is started."""
    unit.change(lambda now: replace(now, **record))
    coordinator = Coordinator(unit, start=lambda unit, name, kind: None, report=lambda _: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unit, "members", lambda: members)
        coordinator._look()
    return unit.record().phase


def follower(pid: int | None = None) -> Member:
    return Member(pid or os.getpid(), socket.gethostname(), "active", phase="following", epoch=5)


def ended(*names: str, code: int = 3) -> tuple[tuple[str, int, str, int], ...]:
    return tuple((name, code, "[X] it ended", 5) for name in names)


def led(*names: str) -> tuple[Recovery, ...]:
    pairs = enumerate(pairwise(names), 2)
    return tuple(Recovery(lost, leader, number, "active-standby", 0.0) for number, (lost, leader) in pairs)


@pytest.mark.parametrize("errors", [ended("e2", "e3", "e4"), ended("e2", code=2)], ids=["three", "one"])
def test_while_an_engine_is_up_or_on_the_way_errors_of_others_do_not_end_the_unit(
    errors: Any, unit: Unit
) -> None:
    assert looked(unit, {"e5": follower()}, errors=errors) == "running"
    assert looked(unit, {}, errors=errors, pending={"e5": ("active", 4e9)}) == "running"


@pytest.mark.parametrize("errors", [ended("e2", "e3", "e4"), ended("e2", code=2)], ids=["three", "one"])
def test_with_nobody_up_it_is_given_up(errors: Any, unit: Unit) -> None:
    assert looked(unit, {"e5": follower(GONE)}, errors=errors) == "failed"


def test_who_is_to_leave_is_not_counted_on(unit: Unit) -> None:
    assert looked(unit, {"e5": follower()}, errors=ended("e1", code=2), leaving=("e5",)) == "failed"


def test_three_that_led_in_a_row_and_came_to_nothing_are_enough(unit: Unit) -> None:
    """Otherwise a unit that starts engines faster than they fail would never say why it does not come on."""
    two = {"leader": "e3", "recoveries": led("e1", "e2", "e3")}
    assert looked(unit, {"e4": follower()}, errors=ended("e1", "e2", code=2), **two) == "running"
    assert looked(unit, {"e4": follower()}, errors=ended("e1", "e2", "e3", code=2), **two) == "failed"

"""A coordinator replaces a lost follower at once, but repeatedly lost ones with growing delays."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.ha import coordinator as module
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Unit, UnitEngine, UnitRecord


class Clock:
    """A manual clock."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


def engine(kind: Kind, phase: str) -> UnitEngine:
    return UnitEngine(os.getpid(), socket.gethostname(), kind, phase=phase)


def test_an_overloaded_machine_is_not_kept_busy_with_starts_of_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each follower misses its heartbeats as soon as it is up, since its start uses the CPU that all engines need."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    unit = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    unit.create_record(
        UnitRecord(Scheme.active_standby, str(unit.root), leader="e1", generation=1, started=1)
    )
    engines = {"e1": engine("passive", "primary")}
    monkeypatch.setattr(unit, "engines", lambda: dict(engines))
    starts: list[float] = []
    reports: list[str] = []

    def start(unit: Unit, name: str, kind: Kind) -> None:
        starts.append(clock.now)
        engines[name] = engine(kind, "following")

    coordinator = Coordinator(unit, start=start, report=reports.append)
    for _ in range(240):
        coordinator._look()
        for name in [name for name in engines if name != "e1"]:
            coordinator._look()
            del engines[name]
        clock.now += 1.0
    waits = [round(after - before) for before, after in pairwise(starts)]
    assert waits[:2] == [1, 1], "the first are replaced at once"
    assert waits[2:5] == sorted(waits[2:5]), "then each waits longer"
    assert waits[4] >= 15
    assert max(waits) <= 61
    assert any("lost repeatedly" in line for line in reports)


def test_a_follower_asked_to_leave_does_not_count_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frequent switches of the scheme make engines leave often."""
    unit = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    unit.create_record(
        UnitRecord(Scheme.active_standby, str(unit.root), leader="e1", generation=1, started=1)
    )
    engines = {"e1": engine("passive", "primary")}
    monkeypatch.setattr(unit, "engines", lambda: dict(engines))
    starts: list[str] = []

    def start(unit: Unit, name: str, kind: Kind) -> None:
        starts.append(name)
        engines[name] = engine(kind, "following")

    coordinator = Coordinator(unit, start=start, report=lambda _: None)
    for _ in range(6):
        coordinator._look()
        coordinator._look()
        gone = starts[-1]
        unit.change(lambda now, gone=gone: replace(now, leaving=(gone,)))  # type: ignore[misc]
        coordinator._look()
        del engines[gone]
        coordinator._look()
    assert len(starts) >= 6


def test_the_logs_of_engines_that_are_gone_for_long_are_removed(tmp_path: Path) -> None:
    unit = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    unit.create_record(UnitRecord(Scheme.passive_replication, str(unit.root), started=199))
    logs = unit.log("e1").parent
    logs.mkdir(parents=True)
    for number in range(1, 200):
        (logs / f"e{number}.log").touch()
        (logs / f"e{number}-spark.log").touch()
    (logs / "mine.log").touch()
    Coordinator(unit, start=lambda unit, name, kind: None, report=lambda _: None)._look()
    left = {path.name for path in logs.iterdir()}
    assert left == {
        "mine.log",
        *(f"e{n}{part}.log" for n in range(151, 200) for part in ("", "-spark")),
    }

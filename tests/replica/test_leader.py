"""A new leader adds its first result to the unit's record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery, Unit, UnitRecord
from penstock.replica.leader import LeadershipStart


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    made = Unit.create(tmp_path / "state", Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path)))
    made.create_record(UnitRecord(Scheme.active_standby, str(made.root), leader="e1", generation=1))
    yield made
    made.close()


@pytest.mark.parametrize(
    "recoveries", [(), (Recovery("e1", "e2", 2, "active-standby", 0.0),)], ids=["first", "second"]
)
def test_earlier_errors_no_longer_count_once_there_are_results(recoveries: Any, unit: Unit) -> None:
    record = replace(unit.record(), errors=(("e1", 2, "[X] it ended", 5),), recoveries=recoveries)
    start: Any = LeadershipStart("e2", 2, unit.root, engine_started_at=0.0)
    report = SimpleNamespace(committed_at=1.0, epoch=6)
    outcome = SimpleNamespace(counts=dict, by_job=lambda count: {})
    assert not start.add_first_result(record, report, outcome)[0].errors
    failed = replace(record, phase="failed")
    assert start.add_first_result(failed, report, outcome)[0].errors == record.errors, (
        "the reason of the failure remains"
    )

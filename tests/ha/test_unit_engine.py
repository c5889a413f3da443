"""An engine's record in the store is read as it was written."""

from __future__ import annotations

import json

import pytest

from penstock.ha.history import ReportedLoad
from penstock.ha.unit import UnitEngine

LOAD = ReportedLoad(5.0, 1.0, 2.0, 3.0, 4.0, 5e6, 6e3, 0.5, 0.25, 0.75)


@pytest.mark.parametrize("load", [LOAD, None])
def test_an_engine_is_read_as_it_was_written(load: ReportedLoad | None) -> None:
    engine = UnitEngine(
        7, "h", "active", "s1", "primary", epoch=3, load=load, reach={"s": {"p": {"0": [0, 9]}}}
    )
    assert UnitEngine.from_bytes(engine.to_bytes()) == engine


def test_an_empty_load_is_no_load() -> None:
    body = json.loads(UnitEngine(7, "h", "active").to_bytes()) | {"load": {}}
    assert UnitEngine.from_bytes(json.dumps(body).encode()).load is None


def test_a_reported_load_gets_the_time_of_its_receiver() -> None:
    load = LOAD.to_load(90.0, cpu_cores=1.5, memory_bytes=1e9)
    assert (load.at, load.cpu_cores, load.memory_bytes) == (90.0, 1.5, 1e9)
    assert (load.events_per_second, load.run_growth, load.work_seconds) == (1.0, 0.75, 0.25)

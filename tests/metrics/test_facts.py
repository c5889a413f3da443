"""Gauges are what a unit reports: each value is exported as it is, and goes when its subject goes."""

from __future__ import annotations

from penstock.metrics import Registry
from penstock.metrics.facts import set_unit
from tests.metrics.text import exported


def test_a_unit_exports_its_engines_and_recoveries() -> None:
    engine = {"phase": "following", "role": "secondary", "lag": 3, "held": 2, "cached_bytes": 50}
    unit = {
        "scheme": "active-standby",
        "generation": 4,
        "last_epoch": 20,
        "durable_epoch": 19,
        "threshold_seconds": None,
        "engines": {
            "a": {**engine, "phase": "primary", "role": "primary", "lag": 0},
            "b": engine,
            "c": {**engine, "lag": None},
        },
        "recoveries": [{"first_result_after": 9.0}, {"first_result_after": 2.5}],
        "switches": [[1.0, "deployed", "active-standby"]],
    }
    registry = Registry()
    set_unit(registry, unit)
    found = exported(registry)
    assert found["unit_scheme_info", "active-standby"] == 1
    assert (found["unit_engines", "secondary", "following"], found["unit_engine_lag_epochs", "b"]) == (2, 3)
    assert ("unit_engine_lag_epochs", "c") not in found
    assert (found["unit_recoveries_total",], found["unit_last_recovery_seconds",]) == (2, 2.5)
    assert ("unit_recovery_threshold_seconds",) not in found

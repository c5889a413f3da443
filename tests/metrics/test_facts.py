"""Gauges are what an engine or a unit reports: each value is exported as it is, and goes when its subject goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.status_server import snapshot_facts
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_engine, set_unit
from penstock.scaling.measurements import Fleet, Measured, Snapshot
from tests.metrics.text import parse

PERIOD = 4.0


def stage(name: str, rows: list[float], speed: float = 100.0) -> Measured:
    buckets = len(rows)
    return Measured(
        name,
        PERIOD,
        input_rate=5_000.0,
        processing_rate=4_000.0,
        backlog_events=800.0,
        busy_seconds=2.0,
        bucket_seconds=np.full(buckets, 0.5),
        bucket_events=np.array(rows),
        bucket_bytes=np.full(buckets, 10.0),
        bucket_map=np.zeros(buckets, np.int64),
        placement=("1",),
        exchange_bytes=250.0,
        speed=speed,
    )


def facts(*stages: Measured) -> dict[str, Any]:
    fleet = Fleet(("1",), np.array([2]), np.array([0.25]), np.array([1e9]), ("9",))
    latest = Snapshot(10.0, PERIOD, fleet, {one.sub_query: one for one in stages}, 0.3, 1.0)
    return {"epoch": 12, "backlog": {"clicks": 77}, **snapshot_facts(latest)}


def exported(registry: Registry) -> dict[Any, float]:
    return {
        (name.removeprefix("penstock_"), *(value for _, value in labels)): one
        for (name, labels), one in parse(expose(registry)).items()
    }


def test_the_rate_of_a_stage_is_its_own_and_the_engines_rate_the_engines() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("scan", []), stage("q1", [60.0, 20.0]), stage("q2", [4.0])))
    found = exported(registry)
    assert (found["input_events_per_second",], found["processed_events_per_second",]) == (5_000, 4_000)
    rates = [found["stage_rows_per_second", name] for name in ("scan", "q1", "q2")]
    assert rates == [4_000, 80 / PERIOD, 4 / PERIOD], "the scan's rows are the events"


def test_bytes_that_were_exchanged_are_divided_by_the_period_once() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("q1", [1.0])))
    assert exported(registry)["stage_exchange_bytes_per_second", "q1"] == 250


def test_the_heat_of_buckets_is_their_time_a_second() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("q1", [1.0, 2.0])))
    found = exported(registry)
    assert found["bucket_seconds_per_second", "q1", "1", "q1"] == 0.5 / PERIOD
    assert found["bucket_bytes", "q1", "1", "q1"] == 10


def test_executors_and_backlog_are_exported() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("q1", [1.0])))
    found = exported(registry)
    assert (found["executors",], found["spare_executors",], found["executor_cores", "1"]) == (1, 1, 2)
    assert (found["executor_cpu_ratio", "1"], found["executor_memory_bytes", "1"]) == (0.25, 1e9)
    assert (found["backlog", "clicks"], found["backlog_seconds",]) == (77, 8)


def test_what_is_not_known_is_not_exported() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("q1", [1.0], speed=0.0)))
    assert ("backlog_seconds",) not in exported(registry)


def test_a_stage_that_is_gone_is_not_exported() -> None:
    registry = Registry()
    set_engine(registry, facts(stage("q1", [1.0]), stage("q2", [1.0])))
    set_engine(registry, facts(stage("q2", [1.0])))
    assert not [one for one in exported(registry) if "q1" in one]


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

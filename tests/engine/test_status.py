"""The status of an engine: its JSON keeps its keys, a reader gets equal records, and each value is a gauge."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from penstock.engine.status import (
    DecisionStatus,
    ElasticStatus,
    EngineStatus,
    PeriodStatus,
    RecoveryStatus,
    set_engine,
)
from penstock.epoch.recovery import JobRecovery
from penstock.ha.schemes import Semantics
from penstock.metrics import Registry
from penstock.scaling.decisions import Move
from penstock.scaling.measurements import Fleet, Measured, Snapshot
from penstock.scaling.record import Entry, Outcome
from tests.metrics.text import exported

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


def measured(*stages: Measured) -> EngineStatus:
    fleet = Fleet(("1",), np.array([2]), np.array([0.25]), np.array([1e9]), ("9",))
    latest = Snapshot(10.0, PERIOD, fleet, {one.stage: one for one in stages}, 0.3, 1.0)
    backlog = {"clicks": 77}
    return EngineStatus("e", "local", 1, "/s", 12, backlog, 3, measured=PeriodStatus.of(latest, 0.5))


def full() -> EngineStatus:
    """A status that has everything."""
    decision = Move("q1", {3: (0, 1)}, "slice 0 is hot", {"imbalance": 0.5})
    entry = Entry(2, 100.5, decision, Outcome.helped, 110.25, "backlog 0 s", 105.0)
    elastic = ElasticStatus(
        "cooling down",
        ["1 more"],
        ["1 failed"],
        ["2"],
        ["3"],
        [DecisionStatus(entry, 7.5)],
        {"start_seconds": 9.0},
    )
    lost = JobRecovery(Semantics.gap, lost_epochs=3, lost_units=60, untold_epochs=1)
    recovery = RecoveryStatus(Semantics.precise, True, {"replayed_epochs": 3, "lost_jobs": 1}, {"q1": lost})
    return replace(measured(stage("scan", []), stage("q1", [60.0, 20.0])), recovery=recovery, elastic=elastic)


# -- JSON ----------------------------------------------------------------------------------------


def test_users_of_the_json_find_its_keys() -> None:
    body = full().to_json()
    assert list(body) == [
        *("name", "master", "pid", "state", "epoch", "backlog", "maps_version", "retries", "deliveries"),
        *("result_log_bytes", "recovery"),
        *("period_seconds", "epoch_seconds", "epoch_target_seconds", "input_rate", "processing_rate"),
        *("backlog_seconds", "sub_queries", "executors", "spare", "measured_seconds_ago", "elastic"),
    ]
    assert body["recovery"] == {
        "semantics": "precise",
        "over": True,
        "replayed_epochs": 3,
        "lost_jobs": 1,
        "jobs": {"q1": {"semantics": "gap", "lost_epochs": 3, "lost_units": 60, "untold_epochs": 1}},
    }
    assert body["sub_queries"]["q1"] == {
        "utilisation": 0.5,
        "rows_per_second": 20.0,
        "backlog_seconds": 8.0,
        "imbalance": 0.0,
        "exchange_bytes": 250.0,
        "state_bytes": 20.0,
        "bucket_seconds": [0.5, 0.5],
        "bucket_bytes": [10.0, 10.0],
        "bucket_map": [0, 0],
    }
    assert body["executors"] == {"1": {"cores": 2, "cpu": 0.25, "memory_bytes": 1e9}}
    elastic = body["elastic"]
    assert list(elastic) == ["resting", "orders", "deaths", "rehearsing", "leaving", "decisions", "costs"]
    assert elastic["decisions"] == [
        {
            "number": 2,
            "at": 100.5,
            "decision": "move",
            "reason": "slice 0 is hot",
            "inputs": {"imbalance": 0.5},
            "sub_query": "q1",
            "buckets": {"3": [0, 1]},
            "outcome": "helped",
            "outcome_at": 110.25,
            "changed_at": 105.0,
            "why": "backlog 0 s",
            "what": "move 1 bucket of q1",
            "seconds_ago": 7.5,
        }
    ]


def test_before_the_first_measurement_the_keys_of_what_is_missing_are_left_out() -> None:
    status = EngineStatus("e", "local", 1, "/s", -1, {}, None)
    expected = ["name", "master", "pid", "state", "epoch", "backlog", "maps_version", "retries"]
    expected += ["deliveries", "result_log_bytes"]
    assert list(status.to_json()) == expected
    assert EngineStatus.from_json(status.to_json()) == status


def test_a_status_is_read_back_as_it_was_written() -> None:
    status = full()
    assert EngineStatus.from_json(json.loads(json.dumps(status.to_json()))) == status
    assert EngineStatus.from_json({**status.to_json(), "newer": 1}) == status, "an unknown key is ignored"


# -- metrics -------------------------------------------------------------------------------------


def test_the_rate_of_a_stage_is_its_own_and_the_engines_rate_the_engines() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("scan", []), stage("q1", [60.0, 20.0]), stage("q2", [4.0])))
    found = exported(registry)
    assert (found["input_events_per_second",], found["processed_events_per_second",]) == (5_000, 4_000)
    rates = [found["stage_rows_per_second", name] for name in ("scan", "q1", "q2")]
    assert rates == [4_000, 80 / PERIOD, 4 / PERIOD], "the scan's rows are the events"


def test_bytes_that_were_exchanged_are_divided_by_the_period_once() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("q1", [1.0])))
    assert exported(registry)["stage_exchange_bytes_per_second", "q1"] == 250


def test_the_heat_of_buckets_is_their_time_a_second() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("q1", [1.0, 2.0])))
    found = exported(registry)
    assert found["bucket_seconds_per_second", "q1", "1", "q1"] == 0.5 / PERIOD
    assert found["bucket_bytes", "q1", "1", "q1"] == 10


def test_executors_and_backlog_are_exported() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("q1", [1.0])))
    found = exported(registry)
    assert (found["executors",], found["spare_executors",], found["executor_cores", "1"]) == (1, 1, 2)
    assert (found["executor_cpu_ratio", "1"], found["executor_memory_bytes", "1"]) == (0.25, 1e9)
    assert (found["backlog", "clicks"], found["backlog_seconds",]) == (77, 8)


def test_what_is_not_known_is_not_exported() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("q1", [1.0], speed=0.0)))
    assert ("backlog_seconds",) not in exported(registry)


def test_a_stage_that_is_gone_is_not_exported() -> None:
    registry = Registry()
    set_engine(registry, measured(stage("q1", [1.0]), stage("q2", [1.0])))
    set_engine(registry, measured(stage("q2", [1.0])))
    assert not [one for one in exported(registry) if "q1" in one]


def test_a_clock_that_is_behind_is_a_metric_until_it_fits_again() -> None:
    status, registry = EngineStatus("e", "local", 1, "/s", 3, {}, None), Registry()
    set_engine(registry, replace(status, clock_behind_seconds={"clicks": 259_200.0}))
    sample = ("clock_behind_seconds", "clicks")
    assert exported(registry)[sample] == 259_200
    set_engine(registry, status)
    assert sample not in exported(registry)


def test_what_a_log_decided_by_a_rule_is_counted() -> None:
    status, registry = EngineStatus("e", "local", 1, "/s", 3, {}, None, log_doubts={"clicks": 2}), Registry()
    set_engine(registry, status)
    assert exported(registry)["log_doubts_total", "clicks"] == 2
    assert EngineStatus.from_json(json.loads(json.dumps(status.to_json()))).log_doubts == {"clicks": 2}


def test_a_clock_that_is_behind_is_in_the_status() -> None:
    status = replace(full(), clock_behind_seconds={"clicks": 259_200.0})
    assert EngineStatus.from_json(json.loads(json.dumps(status.to_json()))) == status

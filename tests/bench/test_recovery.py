"""The recovery benchmark's own reckoning, and its load; units are killed in `tests/ha`."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import cast

import pytest

from bench.cli import RecoveryCase
from bench.recovery import QUICK, Recovery
from bench.recovery_controlled import Ledger, in_force
from bench.recovery_load import Feeder, query
from bench.recovery_unit import Kill, LoadedUnit, outage
from penstock.ha.cost import CostWeights, Use
from penstock.ha.history import Load
from penstock.ha.process_usage import measure_usage
from penstock.ha.schemes import SCHEMES, Scheme
from penstock.testing.inline import run_inline


def test_an_outage_is_the_longest_time_without_a_result_from_the_kill_on() -> None:
    times = [0.0, 5.0, 5.5, 6.0, 6.2, 9.2, 9.5, 10.0]
    assert outage(times, 6.1) == (6.2, 9.2)  # what the lost one had on its way still came
    assert outage(times, 6.3) == (6.2, 9.2)
    assert outage(times, 0.5) == (0.0, 5.0)


def test_findings_of_kills_say_what_was_asked_for() -> None:
    bench = Recovery(QUICK, lambda _: None)
    kills = [Kill(gap, gap - 0.1, 0.4, 1.5) for gap in (1.0, 1.2, 9.0)]
    found = {one.metric: one for one in bench._kill_findings(Scheme.active_standby, kills)}
    assert found["gap"].value == 1.2
    assert found["gap beyond detection"].met
    assert not found["least estimate over gap"].met
    assert (
        {str(scheme) for scheme in SCHEMES} | {"controller", "overhead"}
        == set(bench.cases())
        == set(RecoveryCase)
    )
    (gap,) = [one for one in bench._kill_findings(Scheme.active_replication, kills) if one.metric == "gap"]
    assert gap.met is False


@pytest.mark.slow
def test_the_load_has_results_once_visitors_come_again(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "in", 200, 2_000.0)
    feeder.start()
    time.sleep(0.5)
    feeder.close()
    reports = run_inline(
        query(str(tmp_path / "in"), str(tmp_path / "out")), tmp_path / "state", epoch_units=20_000
    )
    assert sum(one.bad + one.late for one in reports) == 0
    assert sum(one.events for one in reports) > 200
    assert list((tmp_path / "out").glob("*.jsonl"))


def test_what_a_session_takes_is_seen() -> None:
    mine = measure_usage(os.getsid(0))
    assert mine.cpu_seconds > 0
    assert mine.memory_bytes > 1e6


def test_the_cost_of_what_is_in_force_beside_active_replication() -> None:
    load = Load(0.0, 1e3, 1e5, 1e5, 1e4, 50e6, 1e5, 0.2, cpu_cores=1.0, memory_bytes=1.5e9)
    seen = {
        "loads": [asdict(load)],
        "decision": {"inputs": {"safe_manifest": 0.01}},
        "settings": {"costs": CostWeights().to_plain()},
    }
    ours, active = in_force(seen, Scheme.active_replication, 1)
    cost = CostWeights().cost
    assert ours == active
    assert cost(active) > 1.0
    hot, _ = in_force(seen, Scheme.passive_hot, 1)
    seldom, same = in_force(seen, Scheme.passive_hot, 16)
    assert cost(seldom) < cost(hot) < cost(active)
    assert active == same
    alike, as_active = in_force({}, Scheme.active_replication, 1)
    assert alike == as_active == Use(1.0, 1.0, 1.0, 1.0), "nothing is measured yet"
    ledger = Ledger(cast(LoadedUnit, None))
    whole_use = Use(1.0, 1.0, 1.0, 1.0)
    ledger.uses = [(whole_use, whole_use), (Use(0.3, 0.5, 0.0, 0.0), whole_use)]
    alone, whole = ledger.cost_shares()
    assert alone == pytest.approx(0.6)
    assert whole == pytest.approx(3.2 / 4.0)

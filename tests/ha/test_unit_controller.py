"""The controller turns a unit's measurements into schemes, and remembers them across coordinators."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.ha.process_usage import ProcessUsage, measure_usage
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery
from penstock.ha.unit_controller import settings_of
from tests.ha.paper import LOAD, World


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Any]:
    made: list[World] = []

    def make(recovery: dict[str, Any], **record: Any) -> World:
        made.append(World(tmp_path / str(len(made)), recovery, record))
        return made[-1]

    yield make
    for world in made:
        world.unit.close()


def test_it_leaves_active_replication_once_it_has_measured(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    assert "on the safe side" in world.turns(3).reason
    assert world.record.scheme is Scheme.active_replication
    decision = world.turns()
    assert world.record.scheme is Scheme.deployed
    assert decision.suits
    assert decision.of(Scheme.deployed).estimate.seconds <= 10.0
    assert any("controller: active-replication to deployed" in line for line in world.reports)
    assert decision.of(Scheme.passive_replication).rejected == "over the threshold"


def test_with_costs_for_machines_only_a_second_machine_is_used_fully_or_not_at_all(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "costs": "cloud-vm"})
    world.add_measurements(start=12.0, wire=2.0, load=80e6, deliver=0.1)
    world.turns()
    assert world.record.scheme in (Scheme.active_replication, Scheme.active_standby)
    slow = worlds({"threshold_seconds": 60.0, "costs": "cloud-vm"})
    slow.add_measurements(start=12.0, wire=0.5, load=80e6)
    slow.turns()
    assert slow.record.scheme is Scheme.passive_replication


def test_growing_state_makes_it_pick_a_faster_scheme(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.turns()
    assert world.record.scheme is Scheme.deployed
    world.load["state_bytes"] = 2e9  # 25 s to read
    world.turn()
    assert world.record.scheme in (Scheme.passive_cold, Scheme.passive_hot)
    assert "would take" in world.unit.controller()["changes"][-1][1]


def test_the_next_coordinator_continues_with_the_history_of_the_last_one(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.turns(5)
    world.controller = world.new_controller()
    world.turns(15)
    assert world.record.scheme is Scheme.deployed, "the loads before it count"
    saved = world.unit.controller()
    assert saved["decision"]["chosen"] == "deployed"
    assert len(saved["changes"]) == 1


def test_a_scheme_that_the_user_chose_stays_and_is_estimated(worlds: Any) -> None:
    world = worlds({}, scheme=Scheme.passive_hot)
    decision = world.turns()
    assert world.record.scheme is Scheme.passive_hot
    assert not world.record.switches
    assert decision.chosen is Scheme.passive_hot
    assert "by the user" in decision.reason
    assert {one.scheme for one in decision.considered} == set(Scheme)


def test_a_recovery_is_recorded_with_its_estimate_and_corrects_the_next(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "cool_down_seconds": 1.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    before = world.turns().of(Scheme.deployed).estimate
    slow = Recovery(
        "e1",
        "e2",
        2,
        "deployed",
        world.now,
        failed_at=world.now - 2,
        first_result_at=world.now + 2 * before.seconds,
    )
    world.unit.change(lambda now: replace(now, recoveries=(slow,)))
    after = world.turn()
    recovery = world.record.recoveries[0]
    assert recovery.estimated_seconds == pytest.approx(before.seconds, rel=0.3)
    assert recovery.expected_seconds < recovery.estimated_seconds
    assert after.of(Scheme.deployed).estimate.seconds > 1.7 * before.seconds
    assert world.record.scheme is not Scheme.deployed, "it has shown that it does not keep the threshold"


def test_it_varies_the_checkpoint_interval_where_it_may(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 30.0, "checkpoint_every": "auto"})
    world.add_measurements(start=40.0, wire=0.5, load=80e6, fetch=100e6, manifest=0.5)
    world.load["run_bytes"] = 20e6
    world.turns()
    assert world.record.checkpoint_every > 1
    fixed = worlds({"threshold_seconds": 30.0, "checkpoint_every": 5}, checkpoint_every=5)
    fixed.turns()
    assert fixed.record.checkpoint_every == 5
    assert fixed.unit.controller()["decision"]["checkpoint_every"] == 5


def test_a_clock_that_is_off_changes_nothing(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.ahead = -3_600.0
    world.turns()
    assert world.record.scheme is Scheme.deployed


def test_the_detection_time_is_at_least_the_lease(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    for _ in range(20):
        world.add_measurements(detect=0.1)
    detect = world.controller.history(world.record).safe("detect")
    assert detect >= settings_of(world.unit.launch).lease_seconds


ACTIVE = (Scheme.active_replication, Scheme.active_standby)


@pytest.mark.parametrize("scheme", ACTIVE)
def test_a_follower_that_has_caught_up_is_not_estimated_by_its_former_lag(
    worlds: Any, scheme: Scheme
) -> None:
    world = worlds({}, scheme=scheme)
    world.add_measurements(deliver=0.1)
    before = world.turns(12).of(scheme).estimate.seconds
    usual = world.follower
    # an engine that starts takes CPU from the leader
    world.load |= {"epoch_seconds": 4.0, "most_events_per_second": 25_000.0}
    world.follower = replace(usual, phase="starting", epoch=-1)
    world.turns(6)
    world.follower = replace(usual, phase="ready", epoch=-1)
    world.turn()
    world.load = dict(LOAD)
    seen = []
    for epoch in (60, 75, 90):
        world.follower = replace(usual, epoch=epoch)
        seen.append(world.turn().of(scheme).estimate.seconds)
    # until it has caught up, a recovery would take as long as that
    assert all(estimate >= 100 - epoch for estimate, epoch in zip(seen, (60, 75, 90), strict=True))
    world.follower = usual
    assert world.turn().of(scheme).estimate.seconds <= 1.1 * before
    assert world.turns(3).of(scheme).estimate.seconds <= 1.1 * before
    # a lag later on counts
    world.follower = replace(usual, epoch=70)
    world.turn()
    world.follower = usual
    assert world.turn().of(scheme).estimate.seconds > 25


@pytest.mark.parametrize("scheme", ACTIVE)
@pytest.mark.parametrize("seed", range(4))
def test_an_active_scheme_recovers_within_its_estimate(worlds: Any, scheme: Scheme, seed: int) -> None:
    """Whenever the leader fails, the estimate is at least 0.7 of the measured time: the failure is detected, meanwhile
    the follower executes the epochs it lacks, and the first new epoch reads what has arrived."""
    draw = random.Random(seed)
    world = worlds({}, scheme=scheme)
    usual = world.follower
    lacking = 0
    for turn in range(60):
        if turn % 20 == 10:  # another follower joins, far behind
            world.follower, lacking = replace(usual, pid=turn), draw.randrange(10, 60)
            world.controller._following.clear()
        lacking = max(lacking - draw.randrange(4, 12), draw.randrange(3))
        world.load["epoch_seconds"] = draw.uniform(0.2, 0.4)
        world.follower = replace(world.follower, epoch=100 - lacking)
        decision = world.turn()
        if decision.of(scheme) is None:
            continue  # not estimated yet
        epoch, share = world.load["epoch_seconds"], 20_000.0 / 100_000.0
        lease = settings_of(world.unit.launch).lease_seconds
        detected = draw.choice([0.1, lease, 1.25 * lease])
        measured = max((lacking + 1) * epoch, detected) + 0.2 + share * (detected + epoch)
        assert decision.of(scheme).estimate.seconds >= 0.7 * measured


def test_one_output_that_requires_repeated_epochs_counts_in_the_estimate(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "semantics": "gap"}, scheme=Scheme.passive_cold)
    world.repeats = False
    gap = world.turns(12).of(Scheme.passive_cold).estimate
    assert "replay" not in [part.name for part in gap.parts]
    world.repeats = True
    strict = world.turn().of(Scheme.passive_cold).estimate
    assert "replay" in [part.name for part in strict.parts]
    assert strict.seconds > gap.seconds


def test_the_usage_of_a_process_is_measured() -> None:
    seen = measure_usage(os.getsid(0))
    assert seen.memory_bytes > 1e6
    assert seen.cpu_seconds >= 0
    assert measure_usage(-5) == ProcessUsage()

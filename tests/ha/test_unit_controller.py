"""The controller at work on a unit's record: what was measured in, schemes out, and nothing forgotten between lives."""

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


def test_it_leaves_the_safe_side_once_it_has_measured(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.measured(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    assert "on the safe side" in world.turns(3).reason
    assert world.record.scheme is Scheme.active_replication
    decision = world.turns()
    assert world.record.scheme is Scheme.deployed
    assert decision.suits
    assert decision.of(Scheme.deployed).estimate.seconds <= 10.0
    assert any("controller: active-replication to deployed" in line for line in world.told)
    assert decision.of(Scheme.passive_replication).rejected == "over the threshold"


def test_cloud_machines_that_are_paid_for_may_as_well_work(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "costs": "cloud-vm"})
    world.measured(start=12.0, wire=2.0, load=80e6, deliver=0.1)
    world.turns()
    assert world.record.scheme in (Scheme.active_replication, Scheme.active_standby)
    slow = worlds({"threshold_seconds": 60.0, "costs": "cloud-vm"})
    slow.measured(start=12.0, wire=0.5, load=80e6)
    slow.turns()
    assert slow.record.scheme is Scheme.passive_replication


def test_a_load_that_grows_makes_it_flee(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.measured(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.turns()
    assert world.record.scheme is Scheme.deployed
    world.load["state_bytes"] = 2e9  # 25 s to read
    world.turn()
    assert world.record.scheme in (Scheme.passive_cold, Scheme.passive_hot)
    assert "would take" in world.unit.controller()["changes"][-1][1]


def test_the_next_coordinator_goes_on_where_the_last_one_was(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.measured(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.turns(5)
    world.steering = world.another()
    world.turns(15)
    assert world.record.scheme is Scheme.deployed, "the loads before it count"
    kept = world.unit.controller()
    assert kept["decision"]["chosen"] == "deployed"
    assert len(kept["changes"]) == 1


def test_what_people_chose_stays_and_is_estimated(worlds: Any) -> None:
    world = worlds({}, scheme=Scheme.passive_hot)
    decision = world.turns()
    assert world.record.scheme is Scheme.passive_hot
    assert not world.record.switches
    assert decision.chosen is Scheme.passive_hot
    assert "by the user" in decision.reason
    assert {one.scheme for one in decision.considered} == set(Scheme)


def test_a_recovery_has_its_estimate_beside_it_and_corrects_the_next(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "cool_down_seconds": 1.0})
    world.measured(start=12.0, wire=0.5, load=80e6, fetch=100e6)
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


def test_the_interval_is_a_lever(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 30.0, "checkpoint_every": "auto"})
    world.measured(start=40.0, wire=0.5, load=80e6, fetch=100e6, manifest=0.5)
    world.load["run_bytes"] = 20e6
    world.turns()
    assert world.record.checkpoint_every > 1
    fixed = worlds({"threshold_seconds": 30.0, "checkpoint_every": 5}, checkpoint_every=5)
    fixed.turns()
    assert fixed.record.checkpoint_every == 5
    assert fixed.unit.controller()["decision"]["checkpoint_every"] == 5


def test_a_clock_that_is_off_changes_nothing(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    world.measured(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    world.ahead = -3_600.0
    world.turns()
    assert world.record.scheme is Scheme.deployed


def test_that_a_process_was_seen_to_end_is_luck(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0})
    for _ in range(20):
        world.measured(detect=0.1)
    detect = world.steering.history(world.record).safe("detect")
    assert detect >= settings_of(world.unit.launch).lease_seconds


ACTIVE = (Scheme.active_replication, Scheme.active_standby)


@pytest.mark.parametrize("scheme", ACTIVE)
def test_a_secondary_that_has_caught_up_is_not_reckoned_with_as_it_was(worlds: Any, scheme: Scheme) -> None:
    world = worlds({}, scheme=scheme)
    world.measured(deliver=0.1)
    before = world.turns(12).of(scheme).estimate.seconds
    usual = world.second
    # one that is started takes the machine's time from the primary
    world.load |= {"epoch_seconds": 4.0, "most_events_per_second": 25_000.0}
    world.second = replace(usual, phase="starting", epoch=-1)
    world.turns(6)
    world.second = replace(usual, phase="ready", epoch=-1)
    world.turn()
    world.load = dict(LOAD)
    seen = []
    for epoch in (60, 75, 90):
        world.second = replace(usual, epoch=epoch)
        seen.append(world.turn().of(scheme).estimate.seconds)
    # until it has caught up a failure would take as long as that
    assert all(estimate >= 100 - epoch for estimate, epoch in zip(seen, (60, 75, 90), strict=True))
    world.second = usual
    assert world.turn().of(scheme).estimate.seconds <= 1.1 * before
    assert world.turns(3).of(scheme).estimate.seconds <= 1.1 * before
    # that it falls behind later is another matter
    world.second = replace(usual, epoch=70)
    world.turn()
    world.second = usual
    assert world.turn().of(scheme).estimate.seconds > 25


@pytest.mark.parametrize("scheme", ACTIVE)
@pytest.mark.parametrize("seed", range(4))
def test_an_active_scheme_takes_no_longer_than_was_reckoned(worlds: Any, scheme: Scheme, seed: int) -> None:
    """Whenever the primary fails, what is measured is at most what the estimate, by 0.7, allows: the failure is seen,
    meanwhile the secondary ends what it lacks, and the first epoch takes in what has come."""
    draw = random.Random(seed)
    world = worlds({}, scheme=scheme)
    usual = world.second
    lacking = 0
    for turn in range(60):
        if turn % 20 == 10:  # another one comes, and is far behind
            world.second, lacking = replace(usual, pid=turn), draw.randrange(10, 60)
            world.steering._following.clear()
        lacking = max(lacking - draw.randrange(4, 12), draw.randrange(3))
        world.load["epoch_seconds"] = draw.uniform(0.2, 0.4)
        world.second = replace(world.second, epoch=100 - lacking)
        decision = world.turn()
        if decision.of(scheme) is None:
            continue  # on the safe side
        epoch, share = world.load["epoch_seconds"], 20_000.0 / 100_000.0
        lease = settings_of(world.unit.launch).lease_seconds
        detected = draw.choice([0.1, lease, 1.25 * lease])
        measured = max((lacking + 1) * epoch, detected) + 0.2 + share * (detected + epoch)
        assert decision.of(scheme).estimate.seconds >= 0.7 * measured


def test_one_output_that_loses_nothing_is_reckoned_with(worlds: Any) -> None:
    world = worlds({"threshold_seconds": 10.0, "semantics": "gap"}, scheme=Scheme.passive_cold)
    world.repeats = False
    gap = world.turns(12).of(Scheme.passive_cold).estimate
    assert "replay" not in [part.name for part in gap.parts]
    world.repeats = True
    strict = world.turn().of(Scheme.passive_cold).estimate
    assert "replay" in [part.name for part in strict.parts]
    assert strict.seconds > gap.seconds


def test_what_a_process_takes_is_seen() -> None:
    seen = measure_usage(os.getsid(0))
    assert seen.memory_bytes > 1e6
    assert seen.cpu_seconds >= 0
    assert measure_usage(-5) == ProcessUsage()

"""The elastic loop on a model of a cluster: stability, experiments of papers, faults, and custom managers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.scaling.decide import Situation
from penstock.scaling.decisions import Decision, Decommission, Move, Provision
from penstock.scaling.loop import Loop
from penstock.scaling.record import Outcome
from penstock.scaling.settings import ElasticSettings
from penstock.simulate.cluster_model import STAGE, ModelCluster, ModelSettings
from penstock.simulate.loads import Trace
from penstock.simulate.scaling import ScalingResult, ScalingRun, simulate_scaling

SMALL = ModelSettings(buckets=128)


def kinds(result: ScalingResult) -> list[type]:
    return [type(entry.decision) for entry in result.changes]


@pytest.mark.parametrize("seed", [1, 2])
def test_20_percent_noise_on_a_steady_load_causes_no_decision_in_a_day(seed: int) -> None:
    result = simulate_scaling(ScalingRun(Trace(noise=0.2), hours=24, period_seconds=10, seed=seed))
    assert result.changes == []


@pytest.mark.parametrize("rate", [3_000, 7_000, 30_000])
def test_20_percent_noise_causes_no_decision_on_a_small_cluster(rate: float) -> None:
    result = simulate_scaling(ScalingRun(Trace(noise=0.2, rate=rate), hours=6, period_seconds=10))
    assert result.changes == []


@pytest.mark.slow
def test_noise_that_changes_every_minute_causes_no_decision() -> None:
    random = np.random.default_rng(7)
    rates = 100_000 * np.maximum(1 + 0.2 * random.standard_normal(24 * 60), 0)
    points = tuple((minute * 60.0, float(rate)) for minute, rate in enumerate(rates))
    result = simulate_scaling(
        ScalingRun(Trace("steady", points=points), hours=24, period_seconds=10, start=17)
    )
    assert result.changes == []


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_load_that_triples_in_30_s_causes_one_scale_out_and_one_scale_in(seed: int, noise: float) -> None:
    result = simulate_scaling(ScalingRun(Trace("spike", noise=noise), hours=1, seed=seed))
    assert kinds(result) == [Provision, Decommission]
    assert {entry.outcome for entry in result.changes} == {Outcome.helped}
    series = result.series
    high = (series.at > 1200) & (series.at < 1750)
    target = result.run.settings.target_utilisation
    assert series.utilisation[high].mean() == pytest.approx(target, abs=0.06)
    assert series.backlog_seconds[high].max() < 0.5
    assert series.backlog_seconds[-1] < 0.5
    assert abs(series.executors[-1] - series.executors[0]) <= 1  # noise is in the sizing too


def test_exchange_bytes_per_second_do_not_depend_on_the_period() -> None:
    shares = np.full(SMALL.buckets, 1 / SMALL.buckets)
    short, long = (
        ModelCluster(SMALL, 4, 1).advance(period, 8_000.0, shares).stages[STAGE].exchange_bytes
        for period in (1.0, 10.0)
    )
    assert short == long > 0


@pytest.mark.slow
def test_a_day_of_a_thousand_executors_is_simulated_in_seconds() -> None:
    started = time.process_time()
    model = ModelSettings(buckets=8192)
    trace = Trace("sine", rate=3_500_000, swing=0.6, noise=0.05)
    result = simulate_scaling(
        ScalingRun(trace, ElasticSettings(most_executors=1000), model, hours=24, period_seconds=10)
    )
    assert result.series.executors.max() > 900
    assert time.process_time() - started < 30  # some 9 s of a core
    assert result.summarize()["behind_share"] < 0.01
    assert len(result.changes) < 15


def test_the_same_seed_is_the_same_run() -> None:
    run = ScalingRun(
        Trace("sine", noise=0.3), model=replace(SMALL, never_comes=0.3, dies_an_hour=0.1), hours=2
    )
    result, other = simulate_scaling(run), simulate_scaling(run)
    assert result.record.lines() == other.record.lines()
    assert (result.series.backlog_seconds == other.series.backlog_seconds).all()
    assert simulate_scaling(replace(run, seed=2)).record.lines() != result.record.lines()


# ---------------------------------------------------------------- experiments of papers

PAPER = ElasticSettings(upper_utilisation=0.9, lower_utilisation=0.5, target_utilisation=0.6)


def test_load_aware_provisioning_needs_fewer_steps_than_one_at_a_time() -> None:
    trace = Trace("ramp", rate=10_000, factor=15)
    aware = simulate_scaling(ScalingRun(trace, PAPER, hours=2))
    single = simulate_scaling(ScalingRun(trace, replace(PAPER, largest_step=1), hours=2))
    provisions = [sum(kind is Provision for kind in kinds(run)) for run in (aware, single)]
    assert provisions[0] * 2 <= provisions[1]
    rising = aware.series.at < 3600
    mean = [float(run.series.utilisation[rising].mean()) for run in (aware, single)]
    assert mean[0] < mean[1]


@pytest.mark.parametrize("spread", ["moving-mean", "moving-deviation"])
def test_balancing_keeps_the_deviation_down_when_keys_shift(spread: str) -> None:
    run = ScalingRun(Trace(rate=80_000), model=replace(SMALL, buckets=256), spread=spread, start=15)
    on, off = simulate_scaling(run), simulate_scaling(replace(run, elastic=False))
    assert set(kinds(on)) == {Move}
    assert len(on.changes) <= 5
    assert on.summarize()["mean_imbalance"] < off.summarize()["mean_imbalance"] / 2
    assert on.series.imbalance[-60:].max() < on.run.settings.upper_imbalance
    assert on.summarize()["worst_backlog_seconds"] <= off.summarize()["worst_backlog_seconds"]


def test_the_cluster_follows_a_sine_load() -> None:
    result = simulate_scaling(ScalingRun(Trace("sine"), hours=4))
    assert result.summarize()["behind_share"] == 0
    assert 2 <= len(result.changes) <= 8
    load = result.series.rate / result.run.model.core_rate
    assert (load / result.series.executors).max() < 1


def test_a_bucket_too_heavy_for_any_slice_is_not_moved_and_causes_no_scale_out() -> None:
    hot = simulate_scaling(ScalingRun(model=SMALL, spread="hot-key"))
    (change,) = hot.changes
    assert isinstance(change.decision, Move)
    assert SMALL.buckets // 3 not in change.decision.buckets, "the others leave its slice"
    assert hot.series.executors.max() == hot.series.executors[0]


def test_buckets_move_away_from_a_slow_worker() -> None:
    slow = simulate_scaling(ScalingRun(model=replace(SMALL, slow_executors=1)))
    assert kinds(slow) == [Move]
    assert "executor-1 needs" in slow.changes[0].decision.reason
    assert slow.series.imbalance[-1] < 0.1


# ---------------------------------------------------------------- faults


def run_periods(model: ModelSettings, chosen: ElasticSettings, trace: Trace, seed: int, periods: int) -> Loop:
    """Run the loop for so many periods, and check the cluster after each."""
    cluster = ModelCluster(model, 6, seed)
    loop = Loop.start(chosen, None, model.costs)
    shares = np.full(model.buckets, 1 / model.buckets)
    for rate in trace.rates(periods * 5.0, 5.0, seed):
        snapshot = cluster.advance(5.0, float(rate), shares)
        stage = snapshot.stages[STAGE]
        assert stage.live[stage.bucket_map].all()  # every bucket is in a slice that has an executor
        assert stage.bucket_map.size == model.buckets
        assert cluster.all_size <= chosen.most_executors
        loop, instructions = loop.turn(snapshot, cluster.take_events())
        for instruction in instructions:
            cluster.execute(instruction)
    return loop


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([0, 2]),
)
def test_whatever_fails_no_bucket_is_lost_no_budget_exceeded_and_no_order_stays_open(
    seed: int, never_comes: float, dies_in_move: float, dies_an_hour: float, spare: int
) -> None:
    model = ModelSettings(
        buckets=64, never_comes=never_comes, dies_in_move=dies_in_move, dies_an_hour=dies_an_hour
    )
    chosen = ElasticSettings(
        least_executors=2,
        most_executors=20,
        spare_executors=spare,
        patience_seconds=60,
        start_timeout_seconds=40,
        move_timeout_seconds=30,
    )
    loop = run_periods(model, chosen, Trace("sine", rate=60_000, noise=0.1, cycles=2), seed, 400)
    open_since = [order.since for order in loop.orders]
    assert all(since > 2000 - 200 for since in open_since)
    assert all(e.outcome != Outcome.under_way for e in loop.record.entries[: -max(len(open_since), 1)])


def test_executors_that_never_arrive_are_requested_again_then_reported() -> None:
    result = simulate_scaling(ScalingRun(Trace("step"), model=replace(SMALL, never_comes=1.0), hours=1))
    assert result.changes[0].outcome == Outcome.failed
    assert "never arrived" in result.changes[0].why
    assert len(result.changes) <= 6  # not again after every cool-down


def test_a_refusal_of_the_cluster_is_reported_and_the_run_continues() -> None:
    result = simulate_scaling(ScalingRun(Trace("step"), model=replace(SMALL, most=17), hours=1))
    assert result.series.executors.max() == 17
    assert 1 <= len(result.changes) <= 6
    assert {entry.outcome for entry in result.changes} == {Outcome.failed}
    assert {entry.why for entry in result.changes} == {"the cluster has no more than 17 executors"}


def test_a_cluster_with_fewer_executors_than_requested_grants_what_it_has() -> None:
    result = simulate_scaling(ScalingRun(Trace("step"), model=replace(SMALL, most=20), hours=1))
    assert result.series.executors.max() == 20
    assert [entry.outcome for entry in result.changes] == [Outcome.did_not_help]


def test_moves_that_always_fail_are_undone_and_the_cluster_continues() -> None:
    result = simulate_scaling(
        ScalingRun(Trace("step", factor=2), model=replace(SMALL, dies_in_move=1.0), hours=0.5)
    )
    assert Outcome.undone in {entry.outcome for entry in result.changes}
    under_way = [entry.outcome == Outcome.under_way for entry in result.changes]
    assert not any(under_way[:-1])
    assert result.unfinished == under_way[-1]


def test_spare_executors_start_without_delay() -> None:
    without = simulate_scaling(ScalingRun(Trace("spike"), hours=1))
    spare = simulate_scaling(ScalingRun(Trace("spike"), ElasticSettings(spare_executors=40), hours=1))
    assert spare.summarize()["worst_backlog_seconds"] < without.summarize()["worst_backlog_seconds"] - 5
    assert kinds(spare) == [Provision, Decommission]


def test_a_dry_run_changes_nothing() -> None:
    result = simulate_scaling(ScalingRun(Trace("spike"), ElasticSettings(dry_run=True), hours=1))
    assert result.changes == []
    assert set(result.series.executors) == {17}
    assert result.record.entries


@settings(max_examples=10, deadline=None)
@given(st.floats(1.5, 8), st.integers(0, 1000))
def test_after_a_provision_the_utilisation_is_at_most_the_target(factor: float, seed: int) -> None:
    result = simulate_scaling(
        ScalingRun(Trace("step", rate=50_000, factor=factor, rise_seconds=1), hours=0.5, seed=seed)
    )
    assert Provision in kinds(result)
    assert result.series.utilisation[-1] <= result.run.settings.target_utilisation + 0.02
    assert result.series.backlog_seconds[-1] < 0.5


# ---------------------------------------------------------------- custom managers


class OneMoreWhenLate:
    """A user's manager: it adds an executor while work waits."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        if now.snapshot.backlog_seconds > 5:
            return [Provision(1, "work waits")]
        return []


def test_a_custom_manager_decides_within_the_budget() -> None:
    chosen = ElasticSettings(most_executors=25, cool_down_seconds=20)
    result = simulate_scaling(ScalingRun(Trace("step"), chosen, hours=1), OneMoreWhenLate())
    assert set(kinds(result)) == {Provision}
    assert result.series.executors.max() == 25
    times = [entry.at for entry in result.changes]
    assert min(np.diff(times)) >= 20


def test_an_exception_of_a_custom_manager_is_reported() -> None:
    class RaisingManager:
        def decide(self, now: Situation) -> Sequence[Decision]:
            raise ValueError("oops")

    with pytest.raises(UserError) as caught:
        simulate_scaling(ScalingRun(hours=0.1), RaisingManager())
    assert caught.value.condition == "MANAGER_FAILED"
    assert "ValueError: oops" in caught.value.text()

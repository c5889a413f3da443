"""Which decision each situation leads to, and which are never made."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scaling.cost import Costs, needed_executors
from penstock.scaling.decide import Situation, decide, limit_decision
from penstock.scaling.decisions import (
    Decision,
    Decommission,
    Move,
    Nothing,
    Provision,
    explain,
    to_plain,
)
from penstock.scaling.evaluate import Condition, evaluate
from penstock.scaling.history import History
from penstock.scaling.record import Outcome, Record
from penstock.scaling.settings import ElasticSettings
from tests.scaling.kit import PERIOD, even_load, measured, snapshot, steady_situation, with_record

SETTINGS = ElasticSettings()


def decide_checked(now: Situation) -> Decision:
    decision = decide(now)
    assert decision.reason
    assert explain(decision)
    assert to_plain(decision)["reason"] == decision.reason
    return decision


def test_a_load_at_its_target_is_left_alone() -> None:
    decision = decide_checked(steady_situation(SETTINGS, even_load(6.0, 10)))
    assert isinstance(decision, Nothing)
    assert decision.reason == "utilisation 60%"


def test_without_measurements_nothing_is_decided() -> None:
    now = steady_situation(SETTINGS, even_load(6.0, 10), seconds=5)
    assert isinstance(decide_checked(now), Nothing)


def test_a_long_high_load_scales_out_to_the_target_at_once() -> None:
    decision = decide_checked(steady_situation(SETTINGS, even_load(9.0, 10)))
    assert isinstance(decision, Provision)
    assert decision.count == 5  # 9 cores at 60 % are 15 executors
    assert decision.inputs["needed_executors"] == 15


def test_a_short_high_load_is_waited_out() -> None:
    assert isinstance(decide_checked(steady_situation(SETTINGS, even_load(9.0, 10), seconds=100)), Nothing)


def test_a_high_mean_load_is_not_a_long_high_load() -> None:
    calm, surge = even_load(2.0, 10), even_load(30.0, 10)
    history = History(SETTINGS.window_seconds, SETTINGS.patience_seconds)
    for number in range(1, 81):
        history = history.add(snapshot(number * PERIOD, surge if number > 60 else calm))
    assert history.load(SETTINGS.patience_seconds) > 0.8 * 10
    assert history.latest is not None
    assert isinstance(decide_checked(Situation(history.latest, history, SETTINGS)), Nothing)


def test_the_inputs_of_a_decision_match_its_reason() -> None:
    for load, share in ((9.0, "90.0%"), (2.0, "20.0%")):
        decision = decide_checked(steady_situation(SETTINGS, even_load(load, 10)))
        assert share in decision.reason
        assert f"{decision.inputs['utilisation']:.1%}" == share


def test_an_idle_fleet_scales_in_with_a_patience_of_one_period() -> None:
    patient = ElasticSettings(patience_seconds=30, window_seconds=30)
    history = History(30, 30).add(replace(snapshot(30.0, even_load(0.0, 3)), period_seconds=30.0))
    assert history.latest is not None
    decision = decide_checked(Situation(history.latest, history, patient))
    assert isinstance(decision, Decommission)
    assert len(decision.executors) == 2


def test_a_backlog_does_not_wait() -> None:
    behind = even_load(10.0, 10, input_rate=150_000, backlog=2_000_000)  # 20 s of work
    decision = decide_checked(steady_situation(SETTINGS, behind, seconds=35))
    assert isinstance(decision, Provision)
    assert decision.count == 15  # 15 cores at 60 % are 25


def test_a_large_backlog_needs_more_than_the_input() -> None:
    behind = even_load(
        10.0, 10, input_rate=150_000, backlog=30_000_000
    )  # 3,000 core seconds, to drain in 300 s
    decision = decide_checked(steady_situation(SETTINGS, behind, seconds=35))
    assert isinstance(decision, Provision)
    assert decision.count == math.ceil((15 + 10) / 0.8) - 10


def test_no_more_executors_than_buckets() -> None:
    decision = decide_checked(steady_situation(SETTINGS, even_load(9.0, 10, buckets_each=1)))
    assert isinstance(decision, Nothing)
    assert "only buckets for 10" in decision.reason


def test_the_budget_and_the_largest_step_hold() -> None:
    decision = decide_checked(steady_situation(ElasticSettings(most_executors=12), even_load(9.0, 10)))
    assert isinstance(decision, Provision)
    assert decision.count == 2
    decision = decide_checked(steady_situation(ElasticSettings(largest_step=1), even_load(9.0, 10)))
    assert isinstance(decision, Provision)
    assert decision.count == 1
    decision = decide_checked(steady_situation(ElasticSettings(most_executors=10), even_load(9.0, 10)))
    assert isinstance(decision, Nothing)
    assert "the budget of 10 executors is used up" in decision.reason


def test_a_long_low_load_scales_in_to_the_target_and_releases_the_least_loaded() -> None:
    loads = [0.3, 0.3, 0.1, 0.3, 0.05, 0.3]
    names = ["a", "b", "c", "d", "e", "f"]
    now = steady_situation(SETTINGS, measured(loads, range(6), names))
    decision = decide_checked(now)
    assert isinstance(decision, Decommission)
    assert decision.executors == ("e", "c", "a")  # 1.35 cores at 60 % are 3


def test_a_fleet_that_slightly_more_load_would_need_stays() -> None:
    # 0.58 cores fit on one executor at 60 %, 10 % more do not
    assert isinstance(decide_checked(steady_situation(SETTINGS, even_load(0.58, 2))), Nothing)
    assert isinstance(decide_checked(steady_situation(SETTINGS, even_load(0.5, 2))), Decommission)


def test_no_executor_is_requested_when_one_bucket_is_the_bottleneck() -> None:
    heavy = measured([1.0, 0.3, 0.3, 0.3], [0, 1, 2, 3], list("abcd"), input_rate=38_000, backlog=2e6)
    decision = decide_checked(steady_situation(SETTINGS, heavy, seconds=100))
    assert isinstance(decision, Nothing)
    assert "bucket 0 of q1 alone needs 2.0 cores" in decision.reason


def test_the_fleet_keeps_its_least_size() -> None:
    decision = decide_checked(steady_situation(ElasticSettings(least_executors=5), even_load(1.0, 10)))
    assert isinstance(decision, Decommission)
    assert len(decision.executors) == 5
    assert isinstance(
        decide_checked(steady_situation(ElasticSettings(least_executors=10), even_load(1.0, 10))), Nothing
    )


def test_a_scale_in_that_costs_more_than_it_gains_is_not_made() -> None:
    now = steady_situation(ElasticSettings(horizon_seconds=5.0), even_load(1.0, 10))
    decision = decide_checked(now)
    assert isinstance(decision, Nothing)
    assert "it would cost" in decision.reason


def test_a_fleet_below_its_least_is_filled_up() -> None:
    decision = decide_checked(steady_situation(ElasticSettings(least_executors=4), even_load(1.2, 2)))
    assert isinstance(decision, Provision)
    assert decision.count == 2


def test_uneven_slices_are_balanced() -> None:
    now = steady_situation(SETTINGS, measured([0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1], ["a", "b"]))
    decision = decide_checked(now)
    assert isinstance(decision, Move)
    assert len(decision.buckets) == 1
    assert list(decision.buckets.values()) == [(0, 1)]
    assert decision.inputs["imbalance_after"] < decision.inputs["imbalance"]


def test_a_slowest_slice_is_relieved_however_large_the_fleet() -> None:
    loads = [0.1] * 600
    loads[:6] = [0.16] * 6
    now = steady_situation(
        ElasticSettings(most_executors=1000),
        measured(loads, [b // 6 for b in range(600)], [f"e{n}" for n in range(100)]),
    )
    assert now.snapshot.stages["q1"].imbalance < SETTINGS.upper_imbalance
    assert isinstance(decide_checked(now), Move)


def test_a_move_of_much_state_for_little_gain_is_not_made() -> None:
    heavy = measured([0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1], ["a", "b"], state_bytes=1e12)
    decision = decide_checked(steady_situation(SETTINGS, heavy))
    assert isinstance(decision, Nothing)
    assert "it would cost" in decision.reason


def test_buckets_leave_a_slow_worker() -> None:
    # the same events each; executor a needs three times the time
    slow = measured([0.15] * 4 + [0.05] * 12, [b // 4 for b in range(16)], list("abcd"), slowness={"a": 3.0})
    assert evaluate(steady_situation(SETTINGS, slow).history, SETTINGS).of(Condition.slow_worker)
    decision = decide_checked(steady_situation(SETTINGS, slow))
    assert isinstance(decision, Move)
    assert "a needs 3.0 times" in decision.reason
    assert {old for old, _ in decision.buckets.values()} == {0}


def test_one_bucket_that_is_most_of_the_work_stays() -> None:
    hot = measured([0.9, 0.1, 0.1, 0.1], [0, 1, 2, 3], list("abcd"))
    decision = decide_checked(steady_situation(ElasticSettings(least_executors=4), hot))
    assert isinstance(decision, Nothing)
    assert "no move of buckets would lower it enough" in decision.reason


def test_stages_share_the_fleet() -> None:
    now = steady_situation(SETTINGS, even_load(4.5, 10, name="q1"), even_load(4.5, 10, name="q2"))
    decision = decide_checked(now)
    assert isinstance(decision, Provision)
    assert decision.count == 5


# ---------------------------------------------------------------- never


def record_of(decision: Decision, at: float, outcome: Outcome | None = None) -> Record:
    record = Record().add(decision, at)
    if outcome in (Outcome.helped, Outcome.did_not_help):
        record = record.set_end(0, Outcome.watched, at, "", 0.0).set_judgement(0, outcome, at, "why")
    elif outcome is not None:
        record = record.set_end(0, outcome, at, "why", 0.0)
    return record


def test_a_decision_that_did_not_help_is_not_repeated_until_circumstances_change() -> None:
    now = steady_situation(SETTINGS, even_load(9.0, 10))
    first = decide_checked(now)
    again = decide_checked(with_record(now, record_of(first, 300.0, Outcome.did_not_help)))
    assert isinstance(again, Nothing)
    assert "did not help last time" in again.reason
    for outcome in (Outcome.failed, Outcome.undone):
        assert isinstance(decide_checked(with_record(now, record_of(first, 300.0, outcome))), Nothing)
    assert isinstance(decide_checked(with_record(now, record_of(first, 300.0, Outcome.helped))), Provision)
    more = steady_situation(SETTINGS, even_load(9.9, 10, input_rate=130_000))
    assert isinstance(
        decide_checked(with_record(more, record_of(first, 300.0, Outcome.did_not_help))), Provision
    )
    # or something else was changed meanwhile
    other = record_of(first, 200.0, Outcome.did_not_help)
    other = other.add(Move("q1", {}, ""), 300.0).set_end(1, Outcome.watched, 300.0, "", 0.0)
    assert isinstance(decide_checked(with_record(now, other)), Provision)


SITUATIONS = st.sampled_from(
    [
        steady_situation(SETTINGS, even_load(9.0, 10)),
        steady_situation(SETTINGS, even_load(1.0, 10)),
        steady_situation(SETTINGS, measured([0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1], ["a", "b"])),
    ]
)


@settings(max_examples=100, deadline=None)
@given(SITUATIONS, st.floats(0, 400))
def test_nothing_is_decided_in_the_cool_down(now: Situation, changed_at: float) -> None:
    earlier = with_record(now, record_of(Move("q9", {1: (0, 1)}, ""), changed_at, Outcome.helped))
    cooling = now.snapshot.at - changed_at < SETTINGS.cool_down_seconds
    assert isinstance(decide_checked(earlier), Nothing) == cooling
    for one in (Provision(1, "mine"), Decommission(("e1", "a"), "mine")):
        if cooling:
            assert isinstance(limit_decision(one, earlier), Nothing)


@settings(max_examples=200, deadline=None)
@given(
    load=st.floats(0, 900),
    waiting=st.floats(0, 1e6),
    cores=st.sampled_from([1.0, 2.0, 4.0]),
    target=st.floats(0.3, 0.7),
)
def test_the_needed_executors_are_enough_and_one_fewer_is_not(
    load: float, waiting: float, cores: float, target: float
) -> None:
    chosen = ElasticSettings(lower_utilisation=0.2, target_utilisation=target)

    def enough(count: int, slack: float) -> bool:
        room = count * cores * slack
        drained = room * chosen.upper_utilisation * chosen.drain_seconds
        return load <= room * target and load * chosen.drain_seconds + waiting <= drained

    needed = needed_executors(load, waiting, cores, chosen)
    assert enough(needed, 1 + 1e-6)
    assert needed == 1 or not enough(needed - 1, 1 - 1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(-3, 300), st.integers(1, 20), st.integers(0, 100), st.integers(1, 50))
def test_no_manager_gets_past_the_budget(count: int, least: int, over: int, step: int) -> None:
    chosen = ElasticSettings(least_executors=least, most_executors=least + over, largest_step=step)
    now = steady_situation(chosen, even_load(5.0, 10), seconds=10)
    grown = limit_decision(Provision(count, "mine"), now)
    assert isinstance(grown, Nothing) or 10 + grown.count <= chosen.most_executors  # type: ignore[union-attr]
    shrunk = limit_decision(Decommission(tuple(f"e{n}" for n in range(count)), "mine"), now)
    assert isinstance(shrunk, Nothing) or 10 - len(shrunk.executors) >= least  # type: ignore[union-attr]


def test_invalid_decisions_of_a_manager_are_refused() -> None:
    now = steady_situation(SETTINGS, even_load(6.0, 10))
    nonsense: list[Decision] = [
        Move("q9", {1: (0, 1)}, "no such stage"),
        Move("q1", {999: (0, 1)}, "no such bucket"),
        Move("q1", {0: (5, 1)}, "not there"),
        Move("q1", {0: (0, 99)}, "no such slice"),
        Decommission(("nobody",), "no such executor"),
        Provision(0, "none"),
    ]
    for decision in nonsense:
        assert isinstance(limit_decision(decision, now), Nothing), decision
    with pytest.raises(TypeError):
        limit_decision("more", now)  # type: ignore[arg-type]


def test_costs_grow_with_bytes_and_fall_with_readers() -> None:
    costs = Costs(bytes_per_second=1e6, pause_seconds=0.5)
    assert costs.move_seconds(4e6, 2) == 2.5

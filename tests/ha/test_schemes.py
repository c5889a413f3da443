"""The tables of schemes and of semantics are consistent."""

from __future__ import annotations

import json

import pytest

from penstock.ha.schemes import SCHEMES, SEMANTICS, STEPS, AtRisk, Scheme, Semantics, Step, at_risk, steps

FLAGS = ("up", "follows_runs", "has_spans", "runs_epochs", "delivers")


def test_there_are_six_schemes_and_four_semantics() -> None:
    assert list(SCHEMES) == list(Scheme)
    assert len(SCHEMES) == 6
    assert list(SEMANTICS) == list(Semantics)
    assert set(STEPS) == set(Step)


@pytest.mark.parametrize("scheme", Scheme)
def test_the_resources_of_a_follower_match_what_it_does(scheme: Scheme) -> None:
    facts = SCHEMES[scheme]
    takes = facts.takes
    assert (takes.engines > 0) == facts.up
    assert (takes.processing > 0) == facts.runs_epochs
    assert (takes.following > 0) == facts.follows_runs
    assert (takes.input > 0) == facts.has_spans
    assert (takes.output > 0) == facts.delivers
    assert (takes.state_memory > 0) == (facts.follows_runs or facts.runs_epochs)
    assert not any(getattr(facts, flag) for flag in FLAGS[1:]) or facts.up
    # memory of an engine is counted once, working or idle
    assert takes.working_memory + takes.idle_memory == takes.engines


@pytest.mark.parametrize("scheme", Scheme)
def test_a_failover_has_only_the_steps_that_the_follower_has_not_done_in_order(scheme: Scheme) -> None:
    facts = SCHEMES[scheme]
    done = facts.on_failure
    assert [step for step in Step if step in done] == list(done)
    assert (Step.start in done) == (not facts.up)
    assert (Step.load in done) == (not facts.follows_runs and not facts.runs_epochs)
    assert (Step.replay in done) == (not facts.runs_epochs)
    assert (Step.fetch in done) == (not facts.has_spans)


def test_weaker_semantics_need_fewer_steps() -> None:
    for scheme in Scheme:
        precise, rollback, gap, amnesia = (set(steps(scheme, semantics)) for semantics in Semantics)
        assert precise == rollback >= gap >= amnesia


def test_precise_recovery_loses_and_repeats_nothing() -> None:
    for scheme in Scheme:
        assert at_risk(scheme, Semantics.precise, 10) == AtRisk(0, 0, False)


def test_gap_loses_the_epochs_since_the_last_durable_manifest_unless_the_follower_executed_them() -> None:
    assert at_risk(Scheme.deployed, Semantics.gap, 10) == AtRisk(11, 0, False)
    assert at_risk(Scheme.active_standby, Semantics.gap, 10) == AtRisk(0, 0, False)
    assert at_risk(Scheme.deployed, Semantics.amnesia, 10) == AtRisk(11, 0, True)
    assert at_risk(Scheme.passive_hot, Semantics.rollback, 10) == AtRisk(0, 10, False)


def test_a_scheme_can_be_written_as_json() -> None:
    for facts in SCHEMES.values():
        assert json.loads(json.dumps(facts.to_plain()))["scheme"] == facts.scheme

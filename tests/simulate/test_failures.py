"""The controller on simulated loads with failures: recoveries stay below the threshold, for much less than active
replication costs."""

from __future__ import annotations

import time
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import UserError
from penstock.ha.cost import PRESETS, RESOURCES
from penstock.ha.schemes import Scheme, Semantics
from penstock.ha.settings import CHECKPOINT_CHOICES, ControllerSettings
from penstock.simulate import failure_charts, sweeps
from penstock.simulate.engine_model import Truth
from penstock.simulate.failures import FailureRun, simulate_failures
from penstock.simulate.loads import DRAWN, draw_rates, follow_rates

TEN = ControllerSettings(threshold_seconds=10.0)
#: short enough for a test
HOUR = FailureRun(trace="spikes", settings=TEN, hours=1.0, kills=8)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("trace", ["day", "spikes", "walk"])
def test_every_recovery_takes_at_most_ten_seconds_for_60_percent_of_active_replication(
    trace: str, seed: int
) -> None:
    """The cost of fault tolerance, as a share of its cost with permanent active replication."""
    summary = simulate_failures(replace(HOUR, trace=trace, hours=2.0, kills=30, seed=seed)).summarize()
    assert summary["kept"] == summary["recoveries"] == 30
    assert summary["cost_share"] <= 0.6
    assert summary["least_estimate_over_measured"] >= 0.7


def test_an_engine_that_starts_fast_needs_no_replica_and_nearly_halves_all_costs() -> None:
    run = replace(HOUR, truth=Truth(start_seconds=2.0), trace="day")
    summary = simulate_failures(replace(run, settings=replace(TEN, weights=PRESETS["cloud-vm"]))).summarize()
    assert summary["kept"] == summary["recoveries"]
    assert summary["cost_share_with_primary"] <= 0.6


@pytest.mark.slow
def test_a_day_is_simulated_in_seconds() -> None:
    started = time.process_time()
    result = simulate_failures(FailureRun())
    assert time.process_time() - started < 15  # 2 to 3 on a quiet machine
    assert result.series.at.size == 8640


def test_a_run_depends_on_its_seed_only() -> None:
    one, same, other = (simulate_failures(replace(HOUR, seed=seed)) for seed in (1, 1, 2))
    assert one.recoveries == same.recoveries
    assert one.decisions == same.decisions
    assert np.array_equal(one.series.cost, same.series.cost)
    assert one.recoveries != other.recoveries


def test_constant_schemes_cost_less_the_less_they_prepare() -> None:
    rows = {row["scheme"]: row for row in sweeps.simulate_constant_schemes(HOUR)}
    costs = [rows[str(scheme)]["cost_share"] for scheme in Scheme]
    assert costs[0] == pytest.approx(1.0)
    assert costs == sorted(costs, reverse=True)
    assert rows["passive-replication"]["kept"] == 0
    assert all(row["switches"] == 0 for row in rows.values())


def test_a_larger_threshold_costs_no_more_over_a_whole_load() -> None:
    costs = [row["cost_share"] for row in sweeps.sweep_thresholds(HOUR, (1.5, 4.0, 6.0, 10.0, 30.0))]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == pytest.approx(1.0)
    assert costs[-1] < 0.1


def test_gap_costs_no_more_than_precise() -> None:
    rows = sweeps.sweep_semantics(HOUR, (4.5, 6.0))
    precise, gap = ([row["cost_share"] for row in rows if row["semantics"] == s] for s in ("precise", "gap"))
    assert all(of_gap <= of_precise + 1e-9 for of_gap, of_precise in zip(gap, precise, strict=True))
    assert gap[0] < precise[0]


def test_amnesia_needs_no_scheme_that_preserves_state() -> None:
    settings = replace(TEN, semantics=Semantics.amnesia)
    summary = simulate_failures(replace(HOUR, settings=settings, state_bytes=5e9)).summarize()
    assert summary["kept"] == summary["recoveries"]
    assert summary["time_shares"]["deployed"] > 0.9


def test_larger_state_needs_a_larger_threshold_to_save_an_engine() -> None:
    run = replace(HOUR, trace="steady", hours=0.1, kills=0)
    rows = sweeps.sweep_state_sizes(run, (10e6, 250e6), most_seconds=40.0)
    least = [row["least_threshold_seconds"] for row in rows]
    assert least[0]["engines"] < least[1]["engines"]
    assert least[0]["cpu"] == least[1]["cpu"]


def test_a_longer_checkpoint_interval_costs_recovery_time_and_saves_network() -> None:
    rows = sweeps.sweep_intervals(replace(HOUR, trace="steady"), [Scheme.deployed], (1, 10, 60))
    assert [row["worst_seconds"] for row in rows] == sorted(row["worst_seconds"] for row in rows)
    network = [row["overhead"]["network"] for row in rows]
    assert network == sorted(network, reverse=True)
    assert all(row["estimated_seconds"] >= 0.7 * row["worst_seconds"] for row in rows)


def test_a_checkpoint_interval_chosen_by_the_controller_saves_more_within_the_threshold() -> None:
    chosen = replace(TEN, checkpoint_choices=CHECKPOINT_CHOICES)
    of_fixed, of_chosen = (
        simulate_failures(replace(HOUR, hours=0.5, kills=4, settings=settings)).summarize()
        for settings in (TEN, chosen)
    )
    assert of_chosen["kept"] == of_chosen["recoveries"]
    assert of_chosen["cost_share"] < of_fixed["cost_share"]


@pytest.mark.parametrize("growth", [0.1, 20.0])
def test_the_scheme_adapts_to_state_that_grows_or_shrinks(growth: float) -> None:
    run = replace(HOUR, trace="day", hours=2.0, growth=growth, kills=15, state_bytes=100e6)
    result = simulate_failures(run)
    assert all(recovery.within_threshold for recovery in result.recoveries)
    assert len({decision.chosen for decision in result.decisions}) >= 1
    last = Scheme.deployed if growth < 1 else Scheme.passive_cold
    assert list(Scheme)[int(result.series.scheme[-1])] is last


# ---------------------------------------------------------------- loads


@pytest.mark.parametrize("trace", DRAWN)
def test_a_load_has_its_mean_and_is_never_negative(trace: str) -> None:
    rates = draw_rates(trace, 7200.0, 10.0, 5000.0, 3)
    assert rates.size == 720
    assert rates.mean() == pytest.approx(5000.0)
    assert rates.min() > 0
    states = follow_rates(rates, 10.0, 1e6, 300.0)
    assert states.mean() == pytest.approx(1e6)
    assert states.std() / states.mean() <= rates.std() / rates.mean() + 1e-9


def test_a_file_is_a_load(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("time,rate\n# noon\n100,1000\n700,3000\n1300,1000\n")
    rates = draw_rates(str(file), 0.0, 10.0, 0.0, 1)
    assert rates.size == 120
    assert rates[0] == 1000
    assert rates.max() == pytest.approx(3000, rel=0.02)
    result = simulate_failures(replace(HOUR, trace=str(file), kills=2))
    assert result.summarize()["recoveries"] == 2


@pytest.mark.parametrize(
    "text",
    ["", "1,2", "a,b\n1,2", "1,2\n1,3", "1,-2\n2,3", "1,nan\n2,3", "0,0\n9,0", "0,1\n99999999,1", "1\n2"],
)
def test_an_invalid_load_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "load.csv"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        simulate_failures(replace(HOUR, trace=str(file)))
    assert refused.value.condition == "BAD_TRACE"


def test_invalid_simulations_are_refused() -> None:
    for run, condition in (
        (replace(HOUR, trace="holiday"), "NO_SUCH_TRACE"),
        (replace(HOUR, kills=1000), "TOO_MANY_KILLS"),
        (replace(HOUR, hours=0.0), "BAD_SIMULATION"),
    ):
        with pytest.raises(UserError) as refused:
            simulate_failures(run)
        assert refused.value.condition == condition
    with pytest.raises(UserError) as refused:
        Truth(start_seconds=0.0)
    assert refused.value.condition == "BAD_MODEL"


# ---------------------------------------------------------------- charts


def read_texts(svg: str) -> set[str]:
    return {element.text or "" for element in xml.fromstring(svg).iter() if element.tag.endswith("text")}


def test_charts_have_their_titles_and_names() -> None:
    short = replace(HOUR, hours=0.3, kills=2)
    over_time = failure_charts.draw_over_time(simulate_failures(short), "a <title> & more")
    assert {"a <title> & more", "active replication", "threshold 10 s"} <= read_texts(over_time)
    rows = sweeps.sweep_costs(short, (1.0, 10.0, 40.0))
    assert set(RESOURCES) <= read_texts(failure_charts.draw_overhead(rows, "overhead"))
    shares = failure_charts.draw_time_in_schemes(rows, "costs", "shares")
    assert {"costs cloud-vm: share of the time", "passive replication", "40"} <= read_texts(shares)
    states = sweeps.sweep_state_sizes(replace(short, kills=0, hours=0.1), (1e6, 1e9), most_seconds=6.0)
    assert {"1M", "1G", "engines"} <= read_texts(failure_charts.draw_by_state_size(states, "states"))
    intervals = sweeps.sweep_intervals(short, (Scheme.deployed,), (1, 60))
    assert {"1", "60"} <= read_texts(failure_charts.draw_by_interval(intervals, "intervals"))
    for svg in (over_time, shares):
        assert "nan" not in svg

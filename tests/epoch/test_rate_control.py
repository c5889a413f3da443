"""Rate control: epochs converge to their target length, whatever the machine does, and no partition starves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch.rate_control import RateControl, new_rate_control, split_budget
from penstock.query.compile import compile_app
from penstock.settings import Settings


def run(
    rate: RateControl, epochs: int, *, fixed: float, per_unit: float, available: int = 1 << 60
) -> tuple[RateControl, list[float]]:
    """Epochs on a machine with these costs; returns the controller after them and how long each took."""
    lengths = []
    for _ in range(epochs):
        units = min(rate.budget, available)
        lengths.append(fixed + units * per_unit)
        rate = rate.observe(units, lengths[-1])
    return rate, lengths


@pytest.mark.parametrize("first", [1_000, 4_000_000, 10**9])
@pytest.mark.parametrize("fixed", [0.01, 0.3, 0.7])
def test_epochs_converge_to_their_target_from_any_first_budget(first: int, fixed: float) -> None:
    _, lengths = run(RateControl(1.0, first, 1_000), 40, fixed=fixed, per_unit=1e-7)
    assert all(0.9 <= length <= 1.1 for length in lengths[-10:])


@pytest.mark.parametrize(("before", "after"), [(1e-7, 1e-6), (1e-6, 1e-7)])
def test_a_tenfold_change_of_cost_is_followed_within_a_few_epochs(before: float, after: float) -> None:
    rate, _ = run(RateControl(1.0, 4_000_000, 1_000), 40, fixed=0.2, per_unit=before)
    rate, lengths = run(rate, 20, fixed=0.2, per_unit=after)
    assert all(0.8 <= length <= 1.25 for length in lengths[8:]), lengths
    if after > before:
        assert lengths[2] <= 2.0, "one long epoch, then back"


def test_a_converged_controller_does_not_oscillate() -> None:
    rate, _ = run(RateControl(1.0, 4_000_000, 1_000), 60, fixed=0.2, per_unit=1e-7)
    budgets = []
    for epoch in range(40):  # a machine that is alternately 20 % faster and slower
        rate = rate.observe(rate.budget, 0.2 + rate.budget * 1e-7 * (0.8 if epoch % 2 else 1.2))
        budgets.append(rate.budget)
    assert max(budgets) <= 2 * min(budgets)


def test_the_budget_recovers_from_one_slow_epoch() -> None:
    rate, _ = run(RateControl(1.0, 4_000_000, 1_000), 40, fixed=0.1, per_unit=1e-7)
    usual = rate.budget
    rate = rate.observe(rate.budget, 30.0)
    rate, _ = run(rate, 8, fixed=0.1, per_unit=1e-7)
    assert rate.budget >= 0.9 * usual


def test_a_trickle_does_not_change_the_budget() -> None:
    rate = RateControl(1.0, 4_000_000, 1_000)
    after, _ = run(rate, 50, fixed=0.3, per_unit=1e-7, available=10)
    assert after.budget == rate.budget


def test_a_budget_never_falls_below_the_least() -> None:
    rate, _ = run(RateControl(1.0, 4_000_000, 1_000), 30, fixed=0.0, per_unit=10.0)
    assert rate.budget == 1_000


def test_with_a_fixed_cost_beyond_the_target_the_log_is_still_read_fast() -> None:
    """Smaller epochs cannot help then: cutting them further would only slow the reading down."""
    rate, lengths = run(RateControl(0.2, 4_000_000, 1_000), 60, fixed=0.3, per_unit=1e-7)
    speed = rate.budget / lengths[-1]
    assert speed >= 100_000, f"{speed:.0f} units a second of 10,000,000 possible"


def run_on_log(
    rate: RateControl, loads: list[float], *, fixed: float, per_unit: float, waiting: float = 0
) -> list[float]:
    """Epochs of a log that grows by so many units a second; how long each took."""
    lengths = []
    for load in loads:
        units = min(rate.budget_for(int(waiting)), int(waiting))
        seconds = fixed + units * per_unit
        rate = rate.observe(units, seconds)
        waiting += load * seconds - units
        lengths.append(seconds)
    return lengths


def catching_up(budget: int = 2_000_000) -> RateControl:
    return RateControl(1.0, budget, 1_000, catch_up_seconds=5.0)


def test_a_log_far_behind_is_read_in_longer_epochs_up_to_the_bound() -> None:
    lengths = run_on_log(catching_up(), [0.0] * 12, fixed=0.2, per_unit=1e-7, waiting=2e8)
    assert all(length <= 5.5 for length in lengths), lengths
    assert lengths[3] >= 4.0, lengths


@pytest.mark.parametrize("load", [1e6, 5e6, 7e6])
def test_after_catching_up_epochs_are_back_at_their_target(load: float) -> None:
    lengths = run_on_log(catching_up(), [load] * 80, fixed=0.2, per_unit=1e-7, waiting=1e8)
    assert max(lengths) >= 3.0
    assert all(length <= 1.15 for length in lengths[-10:]), lengths


def test_a_load_that_grows_tenfold_and_falls_again_leaves_epochs_at_their_target() -> None:
    loads = [6e5] * 30 + [6e6] * 60 + [6e5] * 30
    lengths = run_on_log(catching_up(), loads, fixed=0.2, per_unit=1e-7)
    assert all(length <= 1.15 for length in lengths[75:90]), lengths
    assert all(length <= 0.5 for length in lengths[-10:]), lengths


def test_before_the_first_measurement_the_budget_does_not_grow_for_a_backlog() -> None:
    assert catching_up().budget_for(1 << 50) == 2_000_000


def test_an_epoch_that_catches_up_stays_within_the_bounds_of_memory_and_growth() -> None:
    rate = catching_up().observe(2_000_000, 0.5)
    assert rate.budget_for(1 << 50) == 4 * 2_000_000
    bounded = RateControl(1.0, 2_000_000, 1_000, catch_up_seconds=5.0, catch_up_most=5_000_000)
    assert bounded.observe(2_000_000, 0.5).budget_for(1 << 50) == 5_000_000
    small = RateControl(1.0, 2_000, 1_000, 3_000, catch_up_seconds=5.0)
    assert small.observe(2_000, 0.1).budget_for(1 << 50) == 3_000


def test_without_catching_up_epochs_stay_at_their_target() -> None:
    rate = RateControl(1.0, 2_000_000, 1_000).observe(2_000_000, 1.0)
    assert rate.budget_for(1 << 50) == rate.budget


@given(st.integers(0, 10**9), st.floats(0, 1e4), st.integers(1, 10**6))
def test_a_budget_stays_within_its_bounds(units: int, seconds: float, least: int) -> None:
    rate = RateControl(1.0, max(least, 50_000), least).observe(units, seconds)
    assert least <= rate.budget <= max(least, RateControl.GROWTH * max(least, 50_000))


amounts = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-1, 10_000))


@given(amounts, st.integers(1, 30_000))
def test_shares_use_the_whole_budget_and_every_partition_gets_one(
    available: dict[str, int], budget: int
) -> None:
    shares = split_budget(available, budget)
    waiting = {name: units for name, units in available.items() if units > 0}
    assert set(shares) == set(waiting)
    assert all(1 <= shares[name] <= units for name, units in waiting.items())
    assert sum(shares.values()) == min(sum(waiting.values()), max(budget, len(waiting)))


@given(amounts, st.integers(8, 30_000))
def test_a_partition_with_less_than_it_has_gets_as_much_as_any_other(
    available: dict[str, int], budget: int
) -> None:
    shares = split_budget(available, budget)
    for name, units in shares.items():
        if units < available[name]:
            assert units >= max(shares.values()) - 1


def test_the_first_epoch_of_a_join_is_smaller(tmp_path: Path) -> None:
    """The number of pairs is not known yet: an epoch of the usual size may take minutes."""

    def first(rows: ps.Stream) -> int:
        plan = compile_app(ps.app("a", ps.output("rows", rows, ps.jsonl(tmp_path))))
        return new_rate_control(Settings(state=tmp_path), plan.scans["lines"], plan).budget

    lines = ps.stream(
        "lines",
        ps.files(str(tmp_path / "*.log")),
        ps.json_lines({"k": ps.Int64(), "t": ps.Datetime("us", "UTC")}),
        time="t",
    )
    counts = lines.key_by("k").window("1s").count()
    pairs = lines.key_by("k").join(lines.key_by("k"), within="1d")
    assert first(counts) == Settings(state=tmp_path).first_epoch_units
    assert 1 <= first(pairs) <= first(counts) // 16

"""The cost of a scheme: the weighted sum of multiples of the leader's resource usage; bad weights are refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.ha.cost import PRESETS, CostWeights, Use, checkpoint_bytes, checkpoint_use, overhead, weights_of
from penstock.ha.history import Load
from penstock.ha.schemes import Scheme
from penstock.ha.settings import ControllerSettings
from penstock.size import byte_count
from tests.ha.controller_cases import LOAD, NO_DEADLINE, floats, some_loads


def test_active_replication_doubles_the_usage() -> None:
    used = overhead(Scheme.active_replication, LOAD, 1, 0.0)
    assert used.cpu == used.memory == used.engines == pytest.approx(1.0)
    assert used.network == pytest.approx(1.0)


def test_passive_replication_costs_only_its_manifests() -> None:
    used = overhead(Scheme.passive_replication, LOAD, 1, 0.1)
    assert used.cpu == pytest.approx(0.1 / LOAD.cpu_cores)
    assert used.memory == used.engines == 0
    assert 0 < used.network < 0.5


@NO_DEADLINE
@given(some_loads(), st.integers(1, 60), floats(0, 1))
def test_no_overhead_is_negative_and_a_follower_that_does_less_uses_no_more(
    load: Load, every: int, cpu: float
) -> None:
    used = {scheme: overhead(scheme, load, every, cpu) for scheme in Scheme}
    assert all(value >= 0 and math.isfinite(value) for use in used.values() for value in use)
    for more, less in (
        (Scheme.active_replication, Scheme.active_standby),
        (Scheme.passive_hot, Scheme.passive_cold),
        (Scheme.passive_cold, Scheme.deployed),
        (Scheme.deployed, Scheme.passive_replication),
    ):
        for one, other in zip(used[more], used[less], strict=True):
            assert one >= other - 1e-9


@NO_DEADLINE
@given(some_loads(), st.integers(1, 60))
def test_fewer_manifests_use_less_cpu_and_network_and_more_memory(load: Load, every: int) -> None:
    often, seldom = checkpoint_use(load, every, 0.1), checkpoint_use(load, every + 1, 0.1)
    assert seldom.cpu <= often.cpu
    assert seldom.network <= often.network + 1e-9
    assert seldom.memory >= often.memory
    assert checkpoint_bytes(load, 10**6) <= load.state_bytes + 20_000


def test_presets_weigh_the_usage() -> None:
    use = Use(cpu=0.5, memory=0.7, network=3.0, engines=1.0)
    assert weights_of("all-costs").cost(use) == pytest.approx(1.3)
    assert weights_of("cloud-vm").cost(use) == 1.0


@NO_DEADLINE
@given(*[floats(0, 10)] * 4, floats(0.1, 100))
def test_only_the_proportions_of_weights_count(a: float, b: float, c: float, d: float, times: float) -> None:
    use = Use(0.3, 0.6, 2.0, 1.0)
    weights = CostWeights(a + 0.01, b, c, d)
    scaled = CostWeights((a + 0.01) * times, b * times, c * times, d * times)
    assert weights.cost(use) == pytest.approx(scaled.cost(use))


def test_weights_are_read_from_text() -> None:
    assert weights_of("cpu=2, engines=0.5") == CostWeights(2.0, 0.0, 0.0, 0.5)
    assert PRESETS["cloud-vm"].to_plain() == {"cpu": 0, "memory": 0, "network": 0, "engines": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cheap",
        "cpu",
        "cpu=",
        "cpu=much",
        "cpu=-1",
        "cpu=nan",
        "cpu=inf",
        "disk=1",
        "cpu=0",
        "cpu=1,cpu=2",
    ],
)
def test_bad_weights_are_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        weights_of(text)
    assert refused.value.condition == "BAD_COST_WEIGHTS"
    assert "cloud-vm" in (refused.value.hint or "")


@pytest.mark.parametrize("weight", ["1", None, True, 1e308 * 10])
def test_a_weight_must_be_a_finite_number(weight: object) -> None:
    with pytest.raises(UserError):
        CostWeights(cpu=weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold_seconds": -1},
        {"threshold_seconds": math.nan},
        {"cool_down_seconds": math.inf},
        {"headroom": 1.0},
        {"least_saving": -0.1},
        {"schemes": ()},
        {"checkpoint_choices": ()},
        {"checkpoint_choices": (0, 1)},
        {"warm_up_loads": 0},
    ],
    ids=str,
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(UserError) as refused:
        replace(ControllerSettings(), **bad)  # type: ignore[arg-type]
    assert refused.value.condition == "BAD_HA_SETTINGS"


def test_sizes_are_read_with_their_units() -> None:
    assert byte_count("50MB") == 50_000_000
    assert byte_count(" 1.5 GiB ") == 3 << 29
    assert byte_count(4096) == byte_count("4096") == 4096
    for bad in ("", "MB", "-1", "5 parsecs", math.nan, -3, "9" * 30):
        with pytest.raises(UserError) as refused:
            byte_count(bad)
        assert refused.value.condition == "BAD_SIZE"

"""How many bytes a durable manifest of several epochs writes to disk, as measured for the controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engine.load_gauge import LoadGauge
from penstock.epoch.checkpoint import CheckpointGrowth
from penstock.epoch.report import EpochReport
from penstock.ha.cost import Use, checkpoint_bytes, checkpoint_use

EPOCH = EpochReport(0, 100, 10_000, 0, 0, 0.1, {}, {}, None, 1_000_000, run_bytes=1_000)


def reports_of(manifests: int, apart: int, durable: int) -> list[EpochReport]:
    """Reports of epochs of which every `apart`-th is durable, and writes `durable` bytes to disk."""
    return [
        replace(
            EPOCH,
            epoch=number,
            durable_epoch=number - (number + 1) % apart,
            checkpoint_bytes=durable if (number + 1) % apart == 0 else 0,
        )
        for number in range(manifests * apart)
    ]


@pytest.mark.parametrize(
    ("apart", "durable", "power"),
    [
        (4, 4_000, 1.0),  # all of it
        (4, 2_000, 0.5),
        (16, 2_000, 0.25),
        (8, 500, 0.0),  # less than an epoch's runs
        (8, 90_000, 1.0),  # older runs that were merged besides
    ],
)
def test_the_growth_is_the_share_of_bytes_that_manifests_do_not_save(
    apart: int, durable: int, power: float
) -> None:
    growth = CheckpointGrowth()
    for report in reports_of(5, apart, durable):
        growth.add(report)
    assert growth.power == pytest.approx(power)


def test_with_a_manifest_every_epoch_nothing_is_saved() -> None:
    growth = CheckpointGrowth()
    assert growth.power == 1.0
    for report in reports_of(5, 1, 1_000):
        growth.add(report)
    assert growth.power == 1.0


def test_the_growth_is_remembered_when_every_epoch_is_durable_again() -> None:
    growth = CheckpointGrowth()
    for report in [*reports_of(3, 4, 2_000), *reports_of(20, 1, 1_000)]:
        growth.add(report)
    assert growth.power == pytest.approx(0.5)


def test_the_cost_of_a_checkpoint_interval_depends_on_the_growth() -> None:
    gauge = LoadGauge(clock=lambda: 0.0)
    for report in reports_of(5, 4, 2_000):
        gauge.add(report)
    reported = gauge.load()
    assert reported is not None
    load = reported.to_load(0.0, cpu_cores=1.0, memory_bytes=1e9)
    assert load.run_growth == pytest.approx(0.5)
    manifest = checkpoint_bytes(replace(load, run_bytes=0.0), 1)
    # a millionth of the state changes twice: the growth says what is written
    assert checkpoint_bytes(load, 4) - manifest == pytest.approx(2_000, rel=0.01)
    assert checkpoint_bytes(load, 16) - manifest == pytest.approx(4_000, rel=0.01)
    as_before, now = (checkpoint_use(one, 16, 0.0) for one in (replace(load, run_growth=1.0), load))
    assert isinstance(now, Use)
    assert now.network < 0.7 * as_before.network
    assert now.memory < as_before.memory

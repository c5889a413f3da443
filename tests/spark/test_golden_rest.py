"""The operators, windows and joins that the golden query does not hold: without Spark, on it, and killed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
from pyspark.sql import SparkSession

from penstock.epoch.kill_points import StepName
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import Way, rows_below, run_killed, run_way
from tests import golden_query as golden
from tests.engine import golden_rest
from tests.transparency.comparison import sorted_rows
from tests.transparency.executions import PARTITIONER
from tests.transparency.queries import streams, users_code

for module in (golden, golden_rest, streams, users_code):
    cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of the undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(golden_rest.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


@pytest.mark.parametrize("name", golden_rest.DESCRIBED)
def test_rows_are_those_of_the_oracle(undisturbed: dict[str, list[str]], name: str) -> None:
    rows, is_certain = golden_rest.expected(name)
    assert is_certain
    assert rows
    assert sorted_rows(map(json.loads, undisturbed[name])) == sorted_rows(rows)


@pytest.mark.spark
def test_spark_emits_the_same_rows(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    assert run_way(golden_rest.build, tmp_path, spark, Way(150, 3)) == undisturbed


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.timeout(400)
def test_kills_between_durable_manifests_do_not_change_the_rows(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    """Each run is killed some epochs after the one before, with state that was in memory only. Rows are exchanged by a
    partitioner."""
    build = partial(golden_rest.build, partition=PARTITIONER)
    kills: tuple[tuple[StepName, int], ...] = (("sliced", 1), ("gathered", 3), ("emitted", 6))
    for number, (step, epoch) in enumerate(kills):
        life = Way(60, 2 + number, killed_at=step, killed_in_epoch=epoch, checkpoint_every=4)
        assert run_killed(build, tmp_path, life), f"it did not come to {step} of epoch {epoch}"
    assert run_way(build, tmp_path, spark, Way(150, 3, checkpoint_every=4)) == undisturbed

"""The operators, windows and joins that the golden query does not hold: without Spark, on it, and cut otherwise."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
from pyspark.sql import SparkSession

from penstock.testing.inline import run_inline
from penstock.testing.three_ways import Way, rows_below, run_way
from tests import golden_query as golden
from tests.engine import golden_rest
from tests.transparency.compared import sorted_rows
from tests.transparency.queries import streams, users_code
from tests.transparency.ways import PARTITIONER

for module in (golden, golden_rest, streams, users_code):
    cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of the undisturbed run."""
    folder = tmp_path_factory.mktemp("straight")
    run_inline(golden_rest.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


@pytest.mark.parametrize("name", golden_rest.DESCRIBED)
def test_rows_are_those_of_the_oracle(straight: dict[str, list[str]], name: str) -> None:
    rows, sure = golden_rest.expected(name)
    assert sure
    assert rows
    assert sorted_rows(map(json.loads, straight[name])) == sorted_rows(rows)


@pytest.mark.spark
@pytest.mark.parametrize(("way", "partition"), [(Way(150, 3), None), (Way(1 << 40, 2), PARTITIONER)])
def test_spark_gives_the_same_rows(
    straight: dict[str, list[str]], spark: SparkSession, tmp_path: Path, way: Way, partition: object
) -> None:
    build = partial(golden_rest.build, partition=partition)  # type: ignore[arg-type]
    assert run_way(build, tmp_path, spark, way) == straight

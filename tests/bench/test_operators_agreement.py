"""The engines of the operator benchmark give the right answers on a small data set, each in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.bench import operators_reference as reference
from penstock.bench.call_data import CallParameters
from penstock.bench.dataset import Dataset, materialised
from penstock.bench.operator_queries import Query, answer
from penstock.bench.outcome import agree
from penstock.bench.pyspark_operators import refused_product
from penstock.bench.worker import Task, performed


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    parameters = CallParameters(4_000, rate=40, callers=500, districts=20)
    return materialised(parameters, tmp_path_factory.mktemp("calls"))


def check(engine: str, queries: tuple[Query, ...], dataset: Dataset) -> None:
    task = Task(engine, "operators", (dataset,) * len(queries), queries=queries, cores=1)
    for query, outcome in zip(queries, performed(task), strict=True):
        agree(str(query), engine, outcome.answer, answer(query, reference.rows(query, dataset)))
        assert outcome.events == dataset.events


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_plain_pyspark(small: Dataset) -> None:
    check("pyspark", (Query("map"), Query("aggregate"), Query("join", 30)), small)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_plain_pyspark_has_no_product_of_streams(spark: SparkSession, small: Dataset, tmp_path: Path) -> None:
    assert "without equality predicate is not supported" in refused_product(spark, small, tmp_path)

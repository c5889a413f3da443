"""The engines of the operator benchmark give the right answers on a small data set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from bench import operators_reference as reference
from bench.call_data import CallParameters
from bench.dataset import Dataset, make_dataset
from bench.operator_queries import Query, answer
from bench.operators import ORDERS
from bench.outcome import Outcome, agree, read_outcomes
from bench.penstock_operators import condition, kilometres, operator_app
from bench.penstock_runs import files_of
from bench.pyspark_operators import refused_product
from bench.worker import Task, main, run_task
from penstock.decode import call_lines
from penstock.logs.calls import COLUMNS
from penstock.logs.contract import Chunk
from penstock.sinks import parquet
from penstock.testing.inline import run_inline


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    parameters = CallParameters(4_000, rate=40, callers=500, districts=20)
    return make_dataset(parameters, tmp_path_factory.mktemp("calls"))


def check(
    engine: str, queries: tuple[Query, ...], dataset: Dataset, done: Callable[[Task], list[Outcome]]
) -> None:
    task = Task(engine, "operators", (dataset,) * len(queries), queries=queries, cores=1)
    for query, outcome in zip(queries, done(task), strict=True):
        agree(str(query), engine, outcome.answer, answer(query, reference.rows(query, dataset)))
        assert outcome.events == dataset.events


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.soak
def test_plain_pyspark(small: Dataset) -> None:
    check("pyspark", (Query("map"), Query("aggregate"), Query("join", 30)), small, run_task)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_plain_pyspark_has_no_product_of_streams(spark: SparkSession, small: Dataset, tmp_path: Path) -> None:
    assert "without equality predicate is not supported" in refused_product(spark, small, tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_penstock(small: Dataset, tmp_path: Path) -> None:
    def here(task: Task) -> list[Outcome]:
        """In the session of the tests, not in a process of its own."""
        main(task.to_json(), tmp_path)
        return read_outcomes(tmp_path / "outcomes.json")

    check("penstock", (Query("map"), Query("aggregate"), Query("join", 30)), small, here)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        Query("map"),
        Query("aggregate"),
        Query("aggregate", windows=1),
        Query("aggregate", windows=60),
        Query("join", 10),
        Query("join"),
        Query("product", 10),
        *(Query("order", order=order) for order in ORDERS),
    ],
    ids=str,
)
def test_penstock_without_spark_in_many_epochs(query: Query, small: Dataset, tmp_path: Path) -> None:
    application = operator_app(query, files_of(small), tmp_path / "results")
    run_inline(application, tmp_path / "state", epoch_units=20_000)
    found = answer(query, parquet(tmp_path / "results").read())
    agree(str(query), "penstock", found, answer(query, reference.rows(query, small)))


@pytest.mark.parametrize("query", [Query("join", 30), Query("product", 10)])
def test_what_penstock_asks_of_a_pair_is_the_question(query: Query, small: Dataset) -> None:
    frames = [call_lines().decode(Chunk("p", 0, path.read_bytes()), COLUMNS).good for path in small.files]
    calls = pl.concat(frames).drop("_row")
    near = (pl.col("ts") - pl.col("ts_right")).abs() <= timedelta(seconds=query.seconds)
    pairs = calls.lazy().join(calls.lazy(), how="cross").filter(near & condition(query))
    if query.operator == "join":
        pairs = pairs.filter(pl.col("src") == pl.col("src_right")).with_columns(km=kilometres())
    right = reference.rows(query, small)
    assert right.height > 100
    assert answer(query, pairs.select(right.columns).collect(engine="streaming")) == answer(query, right)

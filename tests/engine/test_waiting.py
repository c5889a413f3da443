"""A query that was started before its engine: taken over where it waits, replaced where it has died."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.engine.engine import Engine
from penstock.engine.settings import Settings
from penstock.engine.waiting import WaitingQuery
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.engine import golden

cloudpickle.register_pickle_by_value(golden)


@pytest.mark.spark
@pytest.mark.parametrize("died", [False, True])
def test_an_engine_has_its_rows_whatever_became_of_the_query_that_waited(
    died: bool, spark: SparkSession, tmp_path: Path
) -> None:
    run_inline(golden.build(tmp_path / "straight"), tmp_path / "inline")
    waiting = WaitingQuery(spark)
    assert waiting.ready()
    if died:
        waiting.query.stop()
    assert waiting.alive is not died
    settings = Settings(state=tmp_path / "state", drain=True)
    Engine(golden.build(tmp_path / "out"), settings, spark, waiting=waiting).run()
    assert rows_below(tmp_path / "out") == rows_below(tmp_path / "straight")
    assert not waiting.alive

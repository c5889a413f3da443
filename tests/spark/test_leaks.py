"""Nothing that Spark keeps for an epoch outlives it: no broadcast of a plan, and no file of a large closure."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.settings import Settings

pytestmark = pytest.mark.slow
SQL = """
CREATE STREAM rows FROM files('{}') FORMAT json(at TIMESTAMP, row BIGINT) EVENT TIME at;
CREATE JOB stays AS SELECT row FROM rows
"""


def test_no_broadcast_outlives_its_plan_or_its_engine(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    folder = Path(str(context._temp_dir))  # where the driver keeps a file for each broadcast
    before, seen = set(os.listdir(folder)), list[int]()
    lines = tmp_path / "in.jsonl"
    lines.touch()
    program = Program("test", tmp_path / "state", begin=SQL.format(lines))
    engine = Engine(program, Settings(state=tmp_path / "state", master="local[2]", drain=False), spark)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while (
            "stays" not in program.catalogue.jobs
        ):  # the engine executes the text that the program starts with
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for number in range(8):
            program.execute(f"CREATE JOB j{number} AS SELECT row FROM rows WHERE row > {number}")
            with lines.open("a") as file:
                file.write(f'{{"at": "2026-03-01T00:00:{number:02}Z", "row": {number}}}\n')
            last, deadline = engine.last_epoch, time.monotonic() + 60
            while engine.last_epoch <= last:
                assert thread.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            seen.append(len(set(os.listdir(folder)) - before))
    finally:
        engine.stop()
        thread.join(60)
    assert max(seen) <= 2, "the plan in force, and the one that replaces it"
    assert set(os.listdir(folder)) <= before, "an engine that has ended leaves none"


def test_a_large_closure_is_no_broadcast(spark: SparkSession) -> None:
    context = spark.sparkContext
    folder, content = str(context._temp_dir), os.urandom(3_000_000)
    before = set(os.listdir(folder))
    assert context.parallelize([1], 1).map(lambda _: len(content)).collect() == [3_000_000]
    assert set(os.listdir(folder)) == before

"""The run with every fault: a short one without Spark, the whole one on Spark when asked for, and what errors say."""

from __future__ import annotations

import os

import pytest

from bench.fault_cases import condition_of
from bench.faults import Faults, Size


def run_faults(size: Size) -> list[str]:
    """The metrics of the findings; an output that is not as it should be raises."""
    return [finding.metric for case in Faults(size, print).cases().values() for finding in case()]


@pytest.mark.process
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_engine_that_is_killed_leaves_the_output_as_it_should_be() -> None:
    found = run_faults(Size(minutes=0.0, master="inline", only="kill -9 of the engine at emitted"))
    assert found[0].startswith("kill -9 of the engine at emitted: recovered in ")
    assert "rows as the oracle: big in SQLite" in found


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.timeout(0)
def test_every_fault_on_spark_leaves_the_output_as_it_should_be() -> None:
    """PENSTOCK_FAULT_MINUTES=30 ./run test -m soak tests/bench/test_faults.py"""
    run_faults(Size(minutes=float(os.environ.get("PENSTOCK_FAULT_MINUTES", "30"))))


def test_the_condition_is_that_of_the_last_error() -> None:
    assert condition_of("INFO a line\n[SINK_AWAY] one. Hint: x.\n[LOG_SPAN_GONE] other.\n") == "LOG_SPAN_GONE"
    assert condition_of("Killed") == "an error without a condition"

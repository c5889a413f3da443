"""Queries that were accepted once and then failed: they run, or are refused when they are built."""

import random

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.query.compile import compile_app
from tests.regressions.harness import run, stream
from tests.regressions.test_wrong_results import ROWS


def test_a_join_accepts_partitioners_of_keys_with_other_names():
    left, right = stream(ROWS), stream(ROWS, "o").select("n", caller=col("user"))
    keyed = left.key_by("user", partition=ps.by_range("user", ["d"]))
    other = right.key_by("caller", partition=ps.by_range("caller", ["d"]))
    assert run(keyed.join(other, within="1s"))


def test_a_pushed_filter_keeps_the_partitioner():
    counted = stream(ROWS).key_by("user", partition=ps.by_range("user", ["d"])).window("1s").count()
    plan = compile_app(ps.app("t", ps.output("o", counted.filter(col("user") == "a"))))
    assert all(stage.partitioners for stage in plan.stages.values())


def test_last_of_the_key_column_is_refused():
    with pytest.raises(UserError, match="NAME_TAKEN"):
        stream(ROWS).key_by("user").last(2, "user")


def test_last_of_a_column_of_lists_runs():
    assert run(stream(ROWS).key_by("user").last(2, "tags"))


def test_rebalance_of_a_union_of_events_and_results_runs():
    s = stream(ROWS)
    counts = s.key_by("user").window("2s").count("n").select("user", "n")
    assert run(s.select("user", "n").union(counts).rebalance())


def test_a_union_of_too_many_inputs_before_a_strict_operator_is_refused():
    s = stream(ROWS)
    with pytest.raises(UserError, match="TOO_MANY_INPUTS"):
        run(s.union(*(s.filter(col("n") > i % 3) for i in range(300))).key_by("user").last(1, "n"))


def test_flat_map_refuses_a_non_deterministic_function():
    def randomize(frame):
        return frame.with_columns(n=pl.lit(random.random()))

    with pytest.raises(UserError, match="NON_DETERMINISTIC"):
        stream(ROWS).flat_map(randomize, {"n": pl.Float64})


STEPS = ps.step("a", col("n") == 0), ps.step("b", col("n") == 1)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.distinct("user", within="200000000d"),
        lambda s: s.key_by("user").pattern(*STEPS, within="200000000d"),
    ],
)
def test_durations_beyond_64_bits_are_refused(build):
    with pytest.raises(UserError, match="BAD_DURATION"):
        build(stream(ROWS))


def test_binary_results_before_a_strict_operator_run():
    """It was a panic in Rust (a BaseException), which no handler of a task catches."""
    encode = ps.aggregate_function(
        "b", add=lambda v: str(v.sum()), merge=lambda a, b: a + b, result=str.encode, dtype=pl.Binary
    )
    s = stream(ROWS).key_by("user").window("1s").aggregate(encode("n", "b"))
    assert run(s.key_by("user").last(1, "b"))

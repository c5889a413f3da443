"""Queries that were accepted once and then failed: they run, or are refused while they are written."""

import random

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.query.compile import compile_app
from tests.regressions.harness import run, stream
from tests.regressions.test_answers import ROWS


def test_partitioners_of_differently_named_keys():
    left, right = stream(ROWS), stream(ROWS, "o").select("n", caller=col("user"))
    keyed = left.key_by("user", partition=ps.by_range("user", ["d"]))
    other = right.key_by("caller", partition=ps.by_range("caller", ["d"]))
    assert run(keyed.join(other, within="1s"))


def test_a_pushed_filter_keeps_the_partitioner():
    counted = stream(ROWS).key_by("user", partition=ps.by_range("user", ["d"])).window("1s").count()
    plan = compile_app(ps.app("t", ps.output("o", counted.filter(col("user") == "a"))))
    assert all(sub.partitioners for sub in plan.stages.values())


def test_a_value_that_is_the_key():
    with pytest.raises(UserError, match="NAME_TAKEN"):
        stream(ROWS).key_by("user").last(2, "user")


def test_last_of_lists():
    assert run(stream(ROWS).key_by("user").last(2, "tags"))


def test_rebalance_of_events_and_answers():
    s = stream(ROWS)
    answers = s.key_by("user").window("2s").count("n").select("user", "n")
    assert run(s.select("user", "n").union(answers).rebalance())


def test_union_of_many_before_strict_order():
    s = stream(ROWS)
    with pytest.raises(UserError, match="TOO_MANY_INPUTS"):
        run(s.union(*(s.filter(col("n") > i % 3) for i in range(300))).key_by("user").last(1, "n"))


def test_flat_map_refuses_chance():
    def by_chance(frame):
        return frame.with_columns(n=pl.lit(random.random()))

    with pytest.raises(UserError, match="NON_DETERMINISTIC"):
        stream(ROWS).flat_map(by_chance, {"n": pl.Float64})


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


def test_binary_answers_in_strict_order():
    """A Rust panic (BaseException), which no handler of a task catches."""
    made = ps.aggregate_function(
        "b", add=lambda v: str(v.sum()), merge=lambda a, b: a + b, result=str.encode, dtype=pl.Binary
    )
    s = stream(ROWS).key_by("user").window("1s").aggregate(made("n", "b"))
    assert run(s.key_by("user").last(1, "b"))

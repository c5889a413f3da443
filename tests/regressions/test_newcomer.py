"""What somebody new to the stream API said, and was not understood: it works, or is refused with a way out."""

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.words.errors import UserError
from tests.regressions.harness import COLUMNS, ev, run, stream
from tests.regressions.test_answers import ROWS

STEP = ps.step("z", col("n") == 1)
DECODER = ps.json_lines(COLUMNS, times={"time": "us"})


@pytest.fixture
def s() -> ps.Stream:
    return stream(ROWS)


def refused(condition: str, build, *hints: str) -> UserError:
    """The error, which names the user's line and says what to do."""
    with pytest.raises(UserError) as caught:
        build()
    error = caught.value
    assert error.condition == condition, error.text()
    assert error.where is not None
    assert __file__ in error.where or "test_newcomer" in error.where
    assert error.hint
    for hint in hints:
        assert hint in error.hint
    return error


def test_a_forgotten_aggregate(s):
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user")), ".window(")
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user").window("1h")), ".count()")
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user").session("1h")), ".count()")
    refused("MISSING_AGGREGATE", lambda: s.key_by("user").window("1m").aggregate(), "ps.count()")
    refused("MISSING_AGGREGATE", lambda: s.union(s.key_by("user")))
    refused("MISSING_AGGREGATE", lambda: s.product(s.key_by("user"), within="1s"))


def test_something_else_in_the_place_of_an_output_a_log_or_a_sink(s):
    refused("NOT_AN_OUTPUT", lambda: ps.app("x", s), "ps.output(")
    refused("NOT_A_STREAM", lambda: ps.output("o", "clicks"))
    refused("NOT_A_LOG", lambda: ps.stream("n", "in/x.jsonl", DECODER, time="time"), "ps.files('in/x.jsonl')")
    refused("NOT_A_DECODER", lambda: ps.stream("n", ps.files("x"), {"a": ps.Int64}), "ps.json_lines(")
    refused("NOT_A_DECODER", lambda: ps.stream("n", ps.files("x"), ps.json_lines), "(...)")
    refused("NOT_A_SINK", lambda: ps.output("o", s, "out/x"), "ps.jsonl('out/x')")


def test_which_output_is_doubled(s):
    twice = refused("BAD_APP", lambda: ps.app("x", ps.output("a", s), ps.output("b", s), ps.output("b", s)))
    assert "'b'" in twice.primary
    refused("BAD_APP", lambda: ps.app("x"))


def test_every_window_is_told_by_top():
    rows = [ev(second, user="a", n=1) for second in (0, 10, 20)]
    counted = stream(rows).key_by("user").window("10s").count()
    assert [row["count"] for row in run(counted.top(1))] == [1, 1, 1]
    assert len(run(counted.top(1, changes_only=True))) == 1
    assert len(run(counted.top(1, per="user"))) == 3
    assert len(run(counted.top(1, per="user", changes_only=True))) == 1


def test_running_totals_are_told_by_top_when_they_change():
    rows = [ev(second, user=user, n=1) for second, user in ((0, "a"), (1, "a"), (2, "b"), (3, "b"))]
    counted = stream(rows).key_by("user").running("1s").count()
    assert [row["count"] for row in run(counted.top(1))] == [1, 2]
    assert [row["count"] for row in run(counted.top(1, changes_only=False))] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        col("n") == "a",
        col("user") == 1,
        col("user") > col("x"),
        pl.when(col("n") == "a").then(True).otherwise(False),
        col("user").str.contains("("),
    ],
)
def test_types_that_cannot_be_compared(s, wrong):
    told = [
        refused("TYPE_MISMATCH", lambda: s.filter(wrong)),
        refused("TYPE_MISMATCH", lambda: s.map(same=wrong)),
        refused("TYPE_MISMATCH", lambda: s.demux(some=wrong)),
        refused("TYPE_MISMATCH", lambda: s.key_by("user").pattern(ps.step("a", wrong), STEP, within="1s")),
        refused("TYPE_MISMATCH", lambda: s.key_by("page").join(s.key_by("page"), within="1s", where=wrong)),
    ]
    assert all(error.detail for error in told)
    assert ["filter" in error.text() for error in told[1:]] == [False] * 4

"""Mistakes of users who are new to the stream API: they work, or are refused with a hint."""

import copy
import pickle
import random

import cloudpickle
import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.testing.inline import run_inline
from tests.regressions.harness import COLUMNS, ev, run, stream
from tests.regressions.test_wrong_results import ROWS

STEP = ps.step("z", col("n") == 1)
DECODER = ps.json_lines(COLUMNS, times={"time": "us"})


@pytest.fixture
def s() -> ps.Stream:
    return stream(ROWS)


def refused(condition: str, build, *hints: str) -> UserError:
    """The error of a refused query; it names the user's line and has a hint."""
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


def test_a_forgotten_aggregate_is_refused(s):
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user")), ".window(")
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user").window("1h")), ".count()")
    refused("MISSING_AGGREGATE", lambda: ps.output("o", s.key_by("user").session("1h")), ".count()")
    refused("MISSING_AGGREGATE", lambda: s.key_by("user").window("1m").aggregate(), "ps.count()")
    refused("MISSING_AGGREGATE", lambda: s.union(s.key_by("user")))
    refused("MISSING_AGGREGATE", lambda: s.product(s.key_by("user"), within="1s"))


def test_arguments_that_are_not_outputs_logs_or_sinks_are_refused(s):
    refused("NOT_AN_OUTPUT", lambda: ps.app("x", s), "ps.output(")
    refused("NOT_A_STREAM", lambda: ps.output("o", "clicks"))
    refused("NOT_A_LOG", lambda: ps.stream("n", "in/x.jsonl", DECODER, time="time"), "ps.files('in/x.jsonl')")
    refused("NOT_A_DECODER", lambda: ps.stream("n", ps.files("x"), {"a": ps.Int64}), "ps.json_lines(")
    refused("NOT_A_DECODER", lambda: ps.stream("n", ps.files("x"), ps.json_lines), "(...)")
    refused("NOT_A_SINK", lambda: ps.output("o", s, "out/x"), "ps.jsonl('out/x')")


def test_the_error_of_two_outputs_with_one_name_states_the_name(s):
    twice = refused("BAD_APP", lambda: ps.app("x", ps.output("a", s), ps.output("b", s), ps.output("b", s)))
    assert "'b'" in twice.primary
    refused("BAD_APP", lambda: ps.app("x"))


def test_top_emits_every_window():
    rows = [ev(second, user="a", n=1) for second in (0, 10, 20)]
    counted = stream(rows).key_by("user").window("10s").count()
    assert [row["count"] for row in run(counted.top(1))] == [1, 1, 1]
    assert len(run(counted.top(1, changes_only=True))) == 1
    assert len(run(counted.top(1, per="user"))) == 3
    assert len(run(counted.top(1, per="user", changes_only=True))) == 1


def test_top_emits_running_totals_when_they_change():
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
def test_expressions_of_types_that_cannot_be_compared_are_refused(s, wrong):
    errors = [
        refused("TYPE_MISMATCH", lambda: s.filter(wrong)),
        refused("TYPE_MISMATCH", lambda: s.map(same=wrong)),
        refused("TYPE_MISMATCH", lambda: s.demux(some=wrong)),
        refused("TYPE_MISMATCH", lambda: s.key_by("user").pattern(ps.step("a", wrong), STEP, within="1s")),
        refused("TYPE_MISMATCH", lambda: s.key_by("page").join(s.key_by("page"), within="1s", where=wrong)),
    ]
    assert all(error.detail for error in errors)
    assert ["filter" in error.text() for error in errors[1:]] == [False] * 4


def test_keys_can_be_a_list(s):
    assert s.key_by(["user", "page"]).keys == ("user", "page")
    users = {row["user"] for row in ROWS}
    distinct = run(s.distinct(["user"], within="1h"))
    assert sorted(row["user"] for row in distinct) == sorted(users)
    assert distinct == run(s.distinct("user", within="1h"))
    last = run(s.key_by("user").last(2, ["page"]))
    assert len(last) == len(ROWS) - len(users)
    assert last == run(s.key_by("user").last(2, "page"))
    exploded = run(s.explode(["tags"]))
    assert [row["tags"] for row in exploded] == ["p", "q"] * len(ROWS)
    assert exploded == run(s.explode("tags"))


def test_an_expression_where_a_column_name_is_expected_is_refused(s):
    windows = s.key_by("user").window("1m")
    for build in (
        lambda: s.key_by(col("user")),
        lambda: s.distinct(col("user"), within="1h"),
        lambda: windows.sum(col("user")),
        lambda: windows.aggregate(ps.median(col("user"))),
    ):
        refused("NOT_A_COLUMN_NAME", build, "'user'")
    refused("NOT_A_COLUMN_NAME", lambda: s.key_by(col("n") % 2), ".map(")
    refused("NOT_A_COLUMN_NAME", lambda: ps.sum_(col("n") * 2), ".map(")
    refused("NOT_A_COLUMN_NAME", lambda: ps.avg("n", alias=3))
    refused("NOT_A_COLUMN_NAME", lambda: s.key_by(1), '.key_by("user"')
    refused("BAD_LAST", lambda: s.key_by("user").last("n", "page"), '.last(3, "page")')


def test_a_value_where_an_expression_is_expected_is_refused(s):
    refused("NOT_AN_EXPRESSION", lambda: s.map(x=1), "ps.lit(1)")
    refused("NOT_AN_EXPRESSION", lambda: s.map(x="n"), "ps.lit('n')", "ps.col('n')")
    refused("NOT_AN_EXPRESSION", lambda: s.select("user", x=1.5), "ps.lit(1.5)")


def test_select_takes_named_expressions(s):
    assert s.select(col("user")).columns == ["user"]
    assert s.select(["user", col("n")], (col("n") * 2).alias("twice")).columns == ["user", "n", "twice"]
    assert run(s.select((col("n") * 2).alias("twice")))[:2] == [{"twice": 0}, {"twice": 2}]
    refused("NAME_TAKEN", lambda: s.select("n", col("n") * 2))
    refused("WILDCARD", lambda: s.select(pl.all()))


def test_filter_takes_several_conditions(s):
    several = s.filter(col("n") > 3, col("n") < 6).select("n")
    assert run(several) == [{"n": 4}, {"n": 5}]
    refused("BAD_FILTER", lambda: s.filter())
    refused("TYPE_MISMATCH", lambda: s.filter(col("n") > 3, col("n")))


def test_arguments_that_are_not_aggregates_are_refused(s):
    windows = s.key_by("user").window("1m")
    refused("NOT_AN_AGGREGATE", lambda: windows.aggregate(col("n").sum()), "ps.sum_('n')")
    refused("NOT_AN_AGGREGATE", lambda: windows.aggregate("n"), "ps.sum_('n')")
    refused("ALIAS_NOT_A_METHOD", lambda: ps.sum_("n").alias("total"), 'ps.sum_("bytes", "total")')
    assert repr(ps.sum_("n", "total").alias) == "'total'"
    assert pickle.loads(pickle.dumps(ps.sum_("n", "total"))) == ps.sum_("n", "total")


def test_columns_without_types_are_refused():
    refused("BAD_SCHEMA", lambda: ps.json_lines(["user", "n"]), "ps.String")
    refused("BAD_SCHEMA", lambda: ps.json_lines({"user": "text"}), "ps.String")
    refused("BAD_SCHEMA", lambda: ps.Delimited("user,n"), "ps.String")


def test_the_state_directory_of_an_inline_run_can_be_text(s, tmp_path):
    assert run_inline(ps.app("t", ps.output("o", s)), str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda s: s.group_by("user"), ".key_by("),
        (lambda s: s.with_columns(x=col("n")), ".map("),
        (lambda s: s.drop("n"), ".select("),
        (lambda s: s.join(s, within="1s"), ".key_by(...).join("),
        (lambda s: s.session("1m"), ".key_by(...).session("),
        (lambda s: s.count(), ".count()"),
        (lambda s: s.wndow("1m"), ".window("),
        (lambda s: s.key_by("user").count(), '.window("1m").count()'),
        (lambda s: s.key_by("user").filter(col("n") > 1), "before .key_by("),
        (lambda s: s.window("1m").avg("n"), "ps.avg("),
        (lambda s: s.window("1m").key_by("user"), "before .window("),
        (lambda s: s.key_by("user").window("1m").agg(ps.count()), ".aggregate("),
    ],
)
def test_methods_of_other_libraries_are_refused_with_the_method_to_use(s, call, hint):
    error = refused("NO_SUCH_METHOD", lambda: call(s), hint)
    assert isinstance(error, AttributeError)


def test_missing_methods_raise_an_attribute_error_that_copying_and_pickling_accept(s):
    for rows in (s, s.key_by("user"), s.key_by("user").window("1m")):
        assert not hasattr(rows, "group_by")
        assert not hasattr(rows, "__len__")
        assert not hasattr(rows, "_anything")
        assert copy.copy(rows).node is rows.node
    keyed = cloudpickle.loads(cloudpickle.dumps(stream(ROWS).select("user").key_by("user")))
    assert keyed.keys == ("user",)
    assert "It has: " in refused("NO_SUCH_METHOD", lambda: s.zzzzzz).hint


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.key_by("user").session("1m").count().top(3), "for each key by itself"),
        (lambda s: s.key_by("user").count_window(3).count().top(3), "for each key by itself"),
        (lambda s: s.key_by("user").window("1m").emit(every="10s").count().top(3), "emit"),
        (lambda s: s.key_by("user").window("1m").count().top(3).top(2), "ranked"),
        (lambda s: s.key_by("user").window("1m").count().top(3, per="user").top(2), "ranked"),
        (lambda s: s.key_by("user").running().count().filter(col("count") > 3).top(3), "filter"),
        (lambda s: s.top(3), "needs the rows of an aggregate"),
    ],
)
def test_the_error_says_why_a_stream_has_no_top(s, build, reason):
    assert reason in refused("TOP_WITHOUT_AGGREGATE", lambda: build(s)).primary


def test_emitted_columns_that_differ_from_the_declared_ones_are_refused(s):
    rows = s.key_by("user").apply_rows(lambda state, row, emit: emit({"a": "x"}), {"a": pl.Int64})
    with pytest.raises(UserError, match="EMITTED_WRONG_COLUMNS") as caught:
        run(rows)
    assert "a Int64" in (caught.value.hint or "")


def random_number(*arguments):
    return random.random()


def call_a_helper(*arguments):
    return random_number() + 1


def import_inside(*arguments):
    from random import random as chance

    return chance()


class Fickle(ps.CustomOperator):
    """An operator that emits values which do not depend on its events."""

    def __init__(self, function):
        self.function = function

    def init_state(self):
        return {}

    def process(self, batch, state, out, context):
        self.emit_random(batch, out)

    def emit_random(self, batch, out):
        out.emit(batch.select("_time", x=pl.lit(random_number())))


@pytest.mark.parametrize("function", [random_number, call_a_helper, import_inside])
def test_a_non_deterministic_function_is_refused_wherever_one_is_accepted(s, function):
    def captured(*arguments):
        return function()

    keyed = s.key_by("user")
    for one in (function, captured):
        refused("NON_DETERMINISTIC", lambda: s.map_batches(one), "deterministic=True")  # noqa: B023
        refused("NON_DETERMINISTIC", lambda: s.map(x=col("n").map_elements(one, pl.Float64)))  # noqa: B023
        refused("NON_DETERMINISTIC", lambda: s.filter(col("n").map_elements(one, pl.Float64) % 1 > 0.5))  # noqa: B023
    for part in ("add", "merge", "result", "subtract"):
        parts = dict.fromkeys(("add", "merge", "result"), lambda *arguments: 1) | {part: function}
        total = ps.aggregate_function("odd", **parts, dtype=pl.Float64)
        refused("NON_DETERMINISTIC", lambda: keyed.window("1m").aggregate(total("n")))  # noqa: B023
    error = refused("NON_DETERMINISTIC", lambda: keyed.apply_rows(function, {"x": pl.Float64}))
    assert "deterministic=" not in error.text()


def test_non_deterministic_operators_and_expressions_are_refused(s):
    error = refused("NON_DETERMINISTIC", lambda: s.key_by("user").apply(Fickle(None), {"x": pl.Float64}))
    assert "deterministic=" not in error.text()
    shuffled = col("n").map_batches(lambda n: n.shuffle(), return_dtype=pl.Int64)
    refused("NON_DETERMINISTIC", lambda: s.map(x=shuffled))
    assert "x" in s.map(x=col("n").map_batches(lambda n: n * 2, return_dtype=pl.Int64)).columns
    assert "x" in s.map(x=col("user").map_elements(lambda user: user[5:], return_dtype=pl.String)).columns


def test_a_new_file_of_a_finished_log_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"time":1000000,"n":1}\n')

    def run_again():
        files = ps.files(str(tmp_path / "*.jsonl"), finished=True)
        rows = ps.stream("s", files, DECODER, time="time")
        return run_inline(ps.app("t", ps.output("o", rows.window("1s").count())), tmp_path / "state")

    assert sum(report.events for report in run_again()) == 1
    assert sum(report.events for report in run_again()) == 0
    (tmp_path / "b.jsonl").write_text('{"time":9000000,"n":1}\n')
    refused("LOG_NOT_FINISHED", run_again, "--fresh")

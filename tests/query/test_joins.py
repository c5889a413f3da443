"""What a join makes of its sides' columns, what is refused and how, and what the plan has of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cloudpickle
import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.operators.interval_join import IntervalJoin
from penstock.query.compile import compile_app
from penstock.query.explain import explain_app
from penstock.query.joins import KeyedJoins
from penstock.testing.list_log import ListLog

CALLS = {"at": pl.Datetime("us", "UTC"), "src": pl.String(), "dst": pl.String(), "cost": pl.Int64()}
BILLS = {"at": pl.Datetime("us", "UTC"), "caller": pl.String(), "cost": pl.Float64(), "paid": pl.Boolean()}


def calls() -> ps.Stream:
    return ps.stream("calls", ListLog([]), ps.json_lines(CALLS), time="at")


def bills() -> ps.Stream:
    return ps.stream("bills", ListLog([]), ps.json_lines(BILLS), time="at")


def join(**arguments: Any) -> ps.Stream:
    return calls().key_by("src").join(bills().key_by("caller"), **arguments)


def lookup(**arguments: Any) -> ps.Stream:
    return calls().key_by("src").lookup(bills().key_by("caller"), **arguments)


def with_itself(**arguments: Any) -> ps.Stream:
    sources = calls().key_by("src")
    return sources.join(sources, **arguments)


def test_right_columns_whose_names_are_taken_get_a_suffix() -> None:
    both = ["at", "src", "dst", "cost", "at_right", "caller", "cost_right", "paid"]
    assert join(within="1s").columns == both
    assert join(within="1s", how="full").columns == both
    assert join(within="1s", suffix="_b").columns[-4:] == ["at_b", "caller", "cost_b", "paid"]
    assert lookup(deleted="paid").columns == both[:-1]


def test_keys_of_one_name_are_one_column() -> None:
    assert with_itself(within="1s").columns == [
        "at",
        "src",
        "dst",
        "cost",
        "at_right",
        "dst_right",
        "cost_right",
    ]
    crossed = calls().key_by("src", "dst").join(calls().key_by("dst", "src"), within="1s")
    assert crossed.columns[4:] == ["at_right", "src_right", "dst_right", "cost_right"]


MISTAKES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "no bound": ("JOIN_UNBOUNDED", "within=", lambda: join()),
    "no bound but a condition": ("JOIN_UNBOUNDED", "lookup", lambda: join(where=col("cost") > 1)),
    "two bounds": ("BAD_JOIN", "both", lambda: join(within="1s", before="1s")),
    "a bound below nothing": ("BAD_JOIN", "durations", lambda: join(before=-1)),
    "a bound beyond time": ("BAD_DURATION", "too long", lambda: join(within="99999999999d")),
    "a bound that is none": ("BAD_DURATION", "soon", lambda: join(within="soon")),
    "no rows": ("BAD_JOIN", "at least 1", lambda: join(events=0)),
    "rows and time": ("BAD_JOIN", "no bound of time", lambda: join(events=2, within="1s")),
    "rows in any order": ("BAD_JOIN", "strict", lambda: join(events=2, order="epoch")),
    "an outer join over rows": ("JOIN_OUTER_EVENTS", "within=", lambda: join(events=2, how="left")),
    "an unknown how": ("BAD_JOIN", "'cross'", lambda: join(within="1s", how="cross")),
    "an unknown order": ("BAD_JOIN", "'any'", lambda: join(within="1s", order="any")),
    "a condition over no column": (
        "UNKNOWN_COLUMN",
        "'cost'",
        lambda: join(within="1s", where=col("costs") > 1),
    ),
    "a condition that is none": (
        "TYPE_MISMATCH",
        "condition",
        lambda: join(within="1s", where=col("cost") + 1),
    ),
    "a condition over other rows": (
        "NOT_ROW_WISE",
        "other rows",
        lambda: join(within="1s", where=col("cost") > col("cost").mean()),
    ),
    "keys of unlike types": (
        "TYPE_MISMATCH",
        "caller String",
        lambda: calls().key_by("cost").join(bills().key_by("caller"), within="1s"),
    ),
    "a key more on one side": (
        "TYPE_MISMATCH",
        "as many",
        lambda: calls().key_by("src", "dst").join(bills().key_by("caller"), within="1s"),
    ),
    "no key": ("BAD_JOIN", "key", lambda: calls().key_by().join(bills().key_by(), within="1s")),
    "a stream without a key": (
        "BAD_JOIN",
        "key_by",
        lambda: calls().key_by("src").join(cast(KeyedJoins, bills()), within="1s"),
    ),
    "a window": (
        "BAD_JOIN",
        "key_by",
        lambda: calls().key_by("src").join(cast(KeyedJoins, bills().key_by("caller").window("1s")), within=1),
    ),
    "a suffix that does not help": ("NAME_TAKEN", "suffix", lambda: join(within="1s", suffix="")),
    "distinct pairs of two streams": (
        "BAD_JOIN",
        "one stream with itself",
        lambda: join(within="1s", distinct_pairs=True),
    ),
    "distinct pairs to one side": (
        "BAD_JOIN",
        "within",
        lambda: with_itself(after="1s", distinct_pairs=True),
    ),
    "distinct pairs, and the lonely": (
        "BAD_JOIN",
        "one stream",
        lambda: with_itself(within="1s", how="left", distinct_pairs=True),
    ),
    "a lookup in no key": (
        "BAD_JOIN",
        "key",
        lambda: calls().key_by("src").lookup(cast(KeyedJoins, bills())),
    ),
    "a lookup of all": ("BAD_JOIN", "'full'", lambda: lookup(how="full")),
    "a lookup with no such mark": ("UNKNOWN_COLUMN", "'paid'", lambda: lookup(deleted="payd")),
    "a lookup with a mark that is no mark": ("TYPE_MISMATCH", "'cost'", lambda: lookup(deleted="cost")),
    "a join without event time": (
        "MISSING_EVENT_TIME",
        "'calls'",
        lambda: (
            ps.stream("calls", ListLog([]), ps.json_lines(CALLS))
            .key_by("src")
            .join(bills().key_by("caller"), within="1s")
        ),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.condition == condition
    assert named in str(caught.value)
    if condition != "BAD_DURATION":
        assert "test_joins.py" in str(caught.value.where)


def plan_of(made: ps.Stream) -> Any:
    return compile_app(ps.app("x", ps.output("out", made)))


def test_a_join_with_itself_reads_and_sends_its_rows_once() -> None:
    assert len(plan_of(with_itself(within="1s")).edges) == 2  # to the join, to the output
    assert len(plan_of(with_itself(within="1s", how="left")).edges) == 3
    other_key = calls()
    made = other_key.key_by("src").join(other_key.key_by("dst"), within="1s")
    assert len(plan_of(made).edges) == 3


def test_what_follows_by_the_same_key_stays_in_its_slice() -> None:
    after = [
        join(within="1s").key_by("src").window("1s").count(),
        join(events=3).key_by("src").window("1s").count(),
        lookup().key_by("src").window("1s").count(),
    ]
    assert [plan_of(made).levels for made in after] == [1, 1, 1]
    # of right rows without a partner nobody knows the left key
    assert plan_of(join(within="1s", how="full").key_by("src").window("1s").count()).levels == 2
    assert plan_of(lookup(broadcast=True).key_by("src").window("1s").count()).levels == 2


def test_the_identity_of_state_depends_on_the_arguments_of_the_join() -> None:
    def fingerprint(**arguments: Any) -> str:
        return str(plan_of(join(**arguments)).fingerprint)

    assert fingerprint(within="1s", where=col("cost") > 1) == fingerprint(within="1s", where=col("cost") > 1)
    joins = [
        {"within": "1s"},
        {"within": "2s"},
        {"within": "1s", "how": "left"},
        {"within": "1s", "where": col("cost") > 1},
    ]
    assert len({fingerprint(**one) for one in joins}) == 4


def test_a_join_travels() -> None:
    for made in (join(within="1s", where=col("cost") > 1), join(events=2), lookup(deleted="paid")):
        (sub,) = plan_of(made).stages.values()
        assert cloudpickle.loads(cloudpickle.dumps(sub.operator)) == sub.operator


def test_explain_shows_which_rows_meet() -> None:
    forms = explain_app(
        ps.app("x", ps.output("out", join(before="1m", after="5s", where=col("paid"), how="left")))
    )
    assert "left join on src = caller from 1m before to 5s after where" in forms["logical"]
    forms = explain_app(ps.app("x", ps.output("out", lookup(broadcast=True))))
    assert "left lookup on src = caller, broadcast" in forms["logical"]


def test_equal_joins_are_computed_once() -> None:
    streams = calls(), bills()
    made = [
        streams[0].key_by("src").join(streams[1].key_by("caller"), within="1s", where=col("cost") > 1)
        for _ in range(2)
    ]
    plan = compile_app(ps.app("x", *(ps.output(f"out{at}", one) for at, one in enumerate(made))))
    assert [type(sub.operator) for sub in plan.stages.values()] == [IntervalJoin]

"""Operators of the user's own: the same answers however it is cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.testing.inline import run_inline
from tests.operators.custom_operators import (
    HISTORY,
    PIECES,
    RISES,
    TOTALS,
    WITH_BEFORE,
    MergedTotals,
    Previous,
    Silent,
    SumInArray,
    SumInFrame,
    SumInObjectAsBytes,
    SumState,
    Totals,
    rises,
)
from tests.operators.harness import (
    SECOND,
    Cutting,
    History,
    Row,
    cuttings,
    events_stream,
    fast_directory,
    histories,
    in_any_order,
    modestly,
    run_app,
    run_query,
)


def with_buckets(app: ps.App, cutting: Cutting, buckets: int) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {out.name: [] for out in app.outputs}
    with fast_directory() as folder:
        for report in run_inline(
            app,
            Path(folder),
            slices=lambda epoch: min(buckets, cutting.slices[epoch % len(cutting.slices)]),
            buckets=buckets,
        ):
            for name, rows in report.rows.items():
                found[name] += rows.to_dicts()
    return found


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.sampled_from([1, 4, 64]))
def test_a_fold_in_strict_order_with_several_outputs(
    history: History, cutting: Cutting, buckets: int
) -> None:
    made = (
        events_stream(history, cutting)
        .key_by("user")
        .apply(Previous(), WITH_BEFORE, outputs={"great": {"n": pl.Int64, "page": pl.String}})
    )
    rows = with_buckets(
        ps.app("c", ps.output("main", made), ps.output("great", made["great"])), cutting, buckets
    )
    last: dict[Any, Any] = {}
    expected: dict[str, list[Row]] = {"main": [], "great": []}
    for event in history.on_time():
        expected["main"].append({"user": event.user, "n": event.n, "before": last.get(event.user)})
        last[event.user] = event.n
        if event.n is not None and event.n > 3:
            expected["great"].append({"n": event.n, "page": event.page})
    assert {name: in_any_order(found) for name, found in rows.items()} == {
        name: in_any_order(found) for name, found in expected.items()
    }


def test_without_order_nothing_is_lost_all_the_same() -> None:
    made = {}
    for order in ("strict", "none"):
        made[order] = run_query(
            lambda events, order=order: events.key_by("user", order=order).apply(
                Previous(), WITH_BEFORE, outputs={"great": {"n": pl.Int64}}
            ),  # type: ignore[misc]
            HISTORY,
            Cutting((frozenset({2, 7}),), (2,)),
        )
    assert Counter(row["n"] for row in made["none"]) == Counter(row["n"] for row in made["strict"])


def test_answers_need_not_be_asked_for() -> None:
    made = (
        events_stream(HISTORY)
        .key_by("user")
        .apply(Previous(), WITH_BEFORE, outputs={"great": {"n": pl.Int64}})
    )
    rows = run_app(ps.app("c", ps.output("great", made["great"].filter(col("n") > 9))))
    assert rows == {"great": [{"n": 10}, {"n": 11}]}


# -- ticks ---------------------------------------------------------------------------------------


@pytest.mark.slow
@modestly
@given(
    histories(),
    cuttings(),
    st.sampled_from([1, 4, 64]),
    st.sampled_from([1, 2 * SECOND, 5 * SECOND]),
    st.sampled_from(["whether", "when", "date"]),
)
def test_ticks_come_between_the_events_they_lie_between(
    history: History, cutting: Cutting, buckets: int, patience: int, asks: str
) -> None:
    made = (
        events_stream(history, cutting)
        .key_by("user")
        .apply(Silent(patience, asks), {"user": pl.String, "noticed": pl.Datetime("us", "UTC")})
    )
    windows = made.key_by("user").window("2s").count("n").select("user", "window_end", "n")
    rows = with_buckets(ps.app("c", ps.output("out", made), ps.output("in", windows)), cutting, buckets)
    events, expected = history.on_time(), []
    for at, event in enumerate(events):
        later = [other.time for other in events[at + 1 :] if other.user == event.user]
        tick = -(-(event.time + patience) // (2 * SECOND)) * 2 * SECOND
        if not later or later[0] >= tick:
            expected.append((event.user, tick))
    found = [(row["user"], round(row["noticed"].timestamp() * SECOND)) for row in rows["out"]]
    assert Counter(found) == Counter(expected)
    # a row emitted at a tick lies in the window that ends there
    ends = [(row["user"], round(row["window_end"].timestamp() * SECOND)) for row in rows["in"]]
    assert Counter(ends) == Counter(expected)


@pytest.mark.slow
@modestly
@given(
    histories(),
    cuttings(),
    st.sampled_from([Totals, MergedTotals]),
    st.sampled_from([None, "strict", "epoch"]),
    st.sampled_from([1, 8]),
)
def test_commutative_operators_may_be_given_events_as_they_come(
    history: History, cutting: Cutting, kind: type[Totals], order: Any, buckets: int
) -> None:
    made = events_stream(history, cutting).key_by("user", order=order).apply(kind(), TOTALS, columns=["n"])
    rows = with_buckets(ps.app("c", ps.output("out", made)), cutting, buckets)["out"]
    totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    expected: dict[Any, Row] = {}
    for event in history.on_time():
        tick = (event.time // (2 * SECOND) + 1) * 2 * SECOND
        total = totals[event.user]
        total[0], total[1] = total[0] + 1, total[1] + (event.n or 0)
        expected[event.user, tick] = {"at": tick, "user": event.user, "count": total[0], "sum": total[1]}
    assert in_any_order(rows) == in_any_order(list(expected.values()))


# -- states --------------------------------------------------------------------------------------


def summed(operator: ps.CustomOperator) -> list[Row]:
    def query(events: ps.Stream) -> ps.Stream:
        return events.map(all=ps.lit(1)).key_by("all").apply(operator, {"sum": pl.Int64})

    return run_query(query, HISTORY, PIECES)


@pytest.mark.parametrize("kind", [SumState, SumInFrame, SumInArray, SumInObjectAsBytes])
def test_a_state_may_be_anything_that_has_bytes(kind: type[SumState]) -> None:
    assert [row["sum"] for row in summed(kind())] == [sum(range(n + 1)) for n in range(12)]


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.sampled_from([None, 1, SECOND, 4 * SECOND]))
def test_a_function_for_every_row(history: History, cutting: Cutting, forget: int | None) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        after = None if forget is None else forget / SECOND
        made = events.key_by("user").apply_rows(rises, RISES, (None, 0), columns=["n"], forget_after=after)
        return made.key_by("user").last(2, "n", "turn", "count", partial=True)

    states: dict[Any, Any] = {}
    seen: dict[Any, int] = {}
    lasts: dict[Any, list[Row]] = defaultdict(list)
    expected = []
    for event in history.on_time():
        if forget is not None and event.time - seen.get(event.user, event.time) > forget:
            del states[event.user]
        seen[event.user] = event.time
        last, count = states.get(event.user, (None, 0))
        states[event.user] = (last, count)
        if event.n is not None:
            for turn in (1, 2) if last is not None and event.n > last else ():
                lasts[event.user].append({"n": event.n, "turn": turn, "count": count})
                two = lasts[event.user][-2:]
                expected.append(
                    {"user": event.user} | {k: [one[k] for one in two] for k in ("n", "turn", "count")}
                )
            states[event.user] = (event.n, count + 1)
    assert run_query(query, history, cutting) == expected


# -- aggregates in strict order ------------------------------------------------------------------


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_an_aggregate_can_be_given_its_events_in_strict_order(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream, order: Any) -> ps.Stream:
        return events.key_by("user", order=order).window("2s").aggregate(ps.count("c"), ps.sum_("n", "s"))

    strict = run_query(lambda events: query(events, "strict"), history, cutting)
    assert in_any_order(strict) == in_any_order(run_query(lambda events: query(events, None), history))


def test_strict_order_waits_for_the_needed_columns_only() -> None:
    def summed_in(order: Any) -> ps.Stream:
        return events_stream(HISTORY).key_by("user", order=order).window("2s").sum("n")

    strict = summed_in("strict")
    assert [node.describe() for node in strict.node.inputs] == ["strict order per user"]
    assert list(strict.node.inputs[0].schema) == ["user", "n"]
    assert not summed_in("epoch").node.inputs[0].inputs

"""Operators of the user's own: the same answers however it is cut, and errors that name the line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.operators import applied
from penstock.testing.inline import run_inline
from penstock.words.errors import UserError
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    answers,
    cuttings,
    events_stream,
    fast_directory,
    histories,
    in_any_order,
    modestly,
    told,
)


class Previous(ps.CustomOperator):
    """For every event the user's value before it."""

    def init_state(self) -> dict[Any, Any]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        before = []
        for user, n in batch.select("user", "n").iter_rows():
            before.append(state.get(user))
            state[user] = n
        assert context.keys == ("user",)
        assert context.watermark is None
        out.emit(batch.select("_time", "user", "n", pl.Series("before", before, dtype=pl.Int64)))
        out.emit(batch.filter(col("n") > 3), to="great")


WITH_BEFORE = {"user": pl.String, "n": pl.Int64, "before": pl.Int64}


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


# -- ticks ---------------------------------------------------------------------------------------


class Silent(ps.CustomOperator):
    """Tells users of whom nothing has been heard for a while, at the next tick."""

    every = "2s"

    def __init__(self, patience: int, asks: str) -> None:
        self.patience = patience
        self.asks = asks

    def init_state(self) -> dict[Any, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for user, time in batch.select("user", "_time").iter_rows():
            assert context.watermark is not None
            assert context.watermark <= time < context.watermark + 2 * SECOND
            state[user] = time

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> None:
        assert context.watermark is not None
        gone = [user for user, time in state.items() if context.watermark - time >= self.patience]
        out.emit([{"user": user, "noticed": context.time} for user in gone])
        for user in gone:
            del state[user]

    def wants_ticks(self, state: Any) -> Any:
        if not state or self.asks == "whether":
            return bool(state)
        instant = min(state.values()) + self.patience
        return instant if self.asks == "when" else datetime.fromtimestamp(instant / SECOND, UTC)


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
    # a row told at a tick lies in the window that ends there
    ends = [(row["user"], round(row["window_end"].timestamp() * SECOND)) for row in rows["in"]]
    assert Counter(ends) == Counter(expected)


class Totals(ps.CustomOperator):
    """Counts and sums per user, told at every tick after which the user had events; never forgotten."""

    commutative = True
    every = "2s"

    def init_state(self) -> dict[Any, list[int]]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for user, n in batch.select("user", "n").iter_rows():
            total = state.setdefault(user, [0, 0, True])
            total[0], total[1], total[2] = total[0] + 1, total[1] + (n or 0), True

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> None:
        changed = {user: total for user, total in state.items() if total[2]}
        out.emit(
            [{"at": context.watermark, "user": u, "count": c, "sum": s} for u, (c, s, _) in changed.items()]
        )
        for total in changed.values():
            total[2] = False


class MergedTotals(Totals):
    def merge(self, one: Any, other: Any) -> Any:
        for user, (count, sum_, _) in other.items():
            total = one.setdefault(user, [0, 0, True])
            total[0], total[1], total[2] = total[0] + count, total[1] + sum_, True
        return one


TOTALS = {"at": pl.Int64, "user": pl.String, "count": pl.Int64, "sum": pl.Int64}


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


def test_without_order_nothing_is_lost_all_the_same() -> None:
    made = {}
    for order in ("strict", "none"):
        made[order] = told(
            lambda events, order=order: events.key_by("user", order=order).apply(
                Previous(), WITH_BEFORE, outputs={"great": {"n": pl.Int64}}
            ),  # type: ignore[misc]
            HISTORY,
            Cutting((frozenset({2, 7}),), (2,)),
        )
    assert Counter(row["n"] for row in made["none"]) == Counter(row["n"] for row in made["strict"])


# -- states --------------------------------------------------------------------------------------


class Kept(ps.CustomOperator):
    """The sum so far, kept in a state of some kind."""

    def init_state(self) -> Any:
        return 0

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        sums = self.number(state) + batch["n"].cum_sum()
        out.emit(batch.select("_time", sums.alias("sum")))
        return self.of(int(sums[-1]))

    def number(self, state: Any) -> int:
        return int(state)

    def of(self, number: int) -> Any:
        return number


class KeptInFrame(Kept):
    def init_state(self) -> Any:
        return self.of(0)

    def number(self, state: Any) -> int:
        return int(state["sum"].item())

    def of(self, number: int) -> Any:
        return pl.DataFrame({"sum": [number]})


class KeptInArray(KeptInFrame):
    def number(self, state: Any) -> int:
        return int(state[1])

    def of(self, number: int) -> Any:
        return np.array([0, number])


class Own:
    def __init__(self, number: int) -> None:
        self.sum = number


class KeptInObject(KeptInFrame):
    def number(self, state: Any) -> int:
        return int(state.sum)

    def of(self, number: int) -> Any:
        return Own(number)


class KeptInObjectAsBytes(KeptInObject):
    def serialize(self, state: Any) -> bytes:
        return str(state.sum).encode()

    def deserialize(self, data: bytes) -> Any:
        return Own(int(data))


HISTORY = History(
    (tuple(Event(0, i, (1_000 + i // 3) * SECOND, f"u{i % 3}", "/", i, 0.5) for i in range(12)),)
)
PIECES = Cutting((frozenset(range(12)),), (1, 2, 3))


def summed(operator: ps.CustomOperator) -> list[Row]:
    def query(events: ps.Stream) -> ps.Stream:
        return events.map(all=ps.lit(1)).key_by("all").apply(operator, {"sum": pl.Int64})

    return told(query, HISTORY, PIECES)


@pytest.mark.parametrize("kind", [Kept, KeptInFrame, KeptInArray, KeptInObjectAsBytes])
def test_a_state_may_be_anything_that_has_bytes(kind: type[Kept]) -> None:
    assert [row["sum"] for row in summed(kind())] == [sum(range(n + 1)) for n in range(12)]


# -- aggregates in strict order ------------------------------------------------------------------


@modestly
@given(histories(), cuttings())
def test_an_aggregate_can_be_given_its_events_in_strict_order(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream, order: Any) -> ps.Stream:
        return events.key_by("user", order=order).window("2s").aggregate(ps.count("c"), ps.sum_("n", "s"))

    strict = told(lambda events: query(events, "strict"), history, cutting)
    assert in_any_order(strict) == in_any_order(told(lambda events: query(events, None), history))


# -- rows ----------------------------------------------------------------------------------------


def rises(state: Any, row: dict[str, Any], emit: Callable[[Row], None]) -> Any:
    """Tells every rise twice; the state is a pair, to see that it stays one."""
    last, count = state
    assert isinstance(state, tuple)
    if row["n"] is None:
        return state
    if last is not None and row["n"] > last:
        out = {"user": row["user"], "n": row["n"], "turn": 1, "count": count}
        emit(out)
        out["turn"] = 2
        emit(out)
    return row["n"], count + 1


RISES = {"user": pl.String, "n": pl.Int64, "turn": pl.Int64, "count": pl.Int64}


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
    assert told(query, history, cutting) == expected


# -- mistakes ------------------------------------------------------------------------------------

BROKEN = {"now": True}


class Breaks(Kept):
    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        if BROKEN["now"] and batch["n"].max() > 6:  # type: ignore[operator]
            raise ValueError("seven")  # here
        return super().process(batch, state, out, context)


def test_a_failure_names_the_line_and_loses_nothing() -> None:
    made = events_stream(HISTORY, PIECES).map(all=ps.lit(1)).key_by("all").apply(Breaks(), {"sum": pl.Int64})
    app, rows = ps.app("c", ps.output("out", made)), []

    def keep(report: Any) -> None:
        rows.extend(report.rows["out"]["sum"].to_list() if "out" in report.rows else [])

    with fast_directory() as folder:
        BROKEN["now"] = True
        with pytest.raises(UserError) as raised:
            run_inline(app, Path(folder), watch=keep)
        BROKEN["now"] = False
        run_inline(app, Path(folder), watch=keep)
    assert raised.value.condition == "USER_FUNCTION_FAILED"
    assert "seven" in str(raised.value)
    assert "# here" in str(raised.value.where)
    assert rows == [sum(range(n + 1)) for n in range(12)]


class Told(Kept):
    """Tells whatever it was made with."""

    def __init__(self, rows: Callable[[pl.DataFrame], Any], to: str = "") -> None:
        self.rows = rows
        self.to = to

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        out.emit(self.rows(batch), to=self.to)


class ToldBeforeMerge(MergedTotals):
    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        out.emit(batch)


class Insatiable(Totals):
    def wants_ticks(self, state: Any) -> bool:
        return True


FAULTS: dict[str, tuple[str, str, ps.CustomOperator]] = {
    "a state of one's own": ("STATE_NOT_SERIALIZABLE", "KeptInObject", KeptInObject()),
    "rows without their time": ("EMITTED_WRONG_COLUMNS", "_time", Told(lambda b: b.select(sum="n"))),
    "rows without a column": ("EMITTED_WRONG_COLUMNS", "sum", Told(lambda b: b.select("_time"))),
    "dicts without a column": ("EMITTED_WRONG_COLUMNS", "sum", Told(lambda b: [{"_time": 1}])),
    "rows for nobody": ("UNKNOWN_OUTPUT", "'x'", Told(lambda b: b, "x")),
    "rows of long ago": (
        "EMITTED_IN_THE_PAST",
        "before",
        Told(lambda b: b.select(col("_time") - 1, sum="n")),
    ),
    "values that do not fit": (
        "USER_FUNCTION_FAILED",
        "InvalidOperationError",
        Told(lambda b: b.select("_time", sum=ps.lit("many"))),
    ),
    "rows of part of a state": ("EMITTED_TOO_EARLY", "part of a state", ToldBeforeMerge()),
    "ticks for ever": ("TICKS_WITHOUT_END", "Insatiable", Insatiable()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_name(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied, "MOST_TICKS", 50)
    condition, named, operator = FAULTS[fault]
    schema = TOTALS if isinstance(operator, Totals) else {"sum": pl.Int64}
    with pytest.raises(UserError) as raised:
        told(lambda events: events.key_by("user").apply(operator, schema), HISTORY)
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom.py" in str(raised.value.where)


def lost(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    emit({"n": "text"} if row["n"] else {})


def kept_badly(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    return Own(1)


def fails(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    return row["nothing"]  # not there


@pytest.mark.parametrize(
    ("function", "condition", "named"),
    [
        (lost, "EMITTED_WRONG_COLUMNS", "lost"),
        (kept_badly, "STATE_NOT_SERIALIZABLE", "kept_badly"),
        (fails, "USER_FUNCTION_FAILED", "# not there"),
    ],
)
def test_a_fault_of_a_row_function_is_told_by_name(function: Any, condition: str, named: str) -> None:
    with pytest.raises(UserError) as raised:
        told(lambda events: events.key_by("user").apply_rows(function, {"n": pl.Int64}), HISTORY)
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom.py" in str(raised.value.where)


class NoProcess(ps.CustomOperator):
    def init_state(self) -> Any:
        return None


class NoEvery(Totals):
    every = None


class NoTicks(Kept):
    every = "1s"


class NoTime(Totals):
    every = 0


def keyed(**how: Any) -> Any:
    return events_stream(HISTORY).key_by("user", **how)


MISTAKES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "no operator": ("BAD_OPERATOR", "CustomOperator", lambda: keyed().apply(Kept, {})),
    "no process": ("BAD_OPERATOR", "NoProcess", lambda: keyed().apply(NoProcess(), {})),
    "ticks without a time": ("BAD_OPERATOR", "NoEvery", lambda: keyed().apply(NoEvery(), {})),
    "a time without ticks": ("BAD_OPERATOR", "NoTicks", lambda: keyed().apply(NoTicks(), {})),
    "no time between ticks": ("BAD_OPERATOR", "NoTime", lambda: keyed().apply(NoTime(), {})),
    "an order that is none": ("BAD_ORDER", "'any'", lambda: keyed(order="any")),
    "an order too weak": ("ORDER_TOO_WEAK", "Kept", lambda: keyed(order="epoch").apply(Kept(), {})),
    "no such column": ("UNKNOWN_COLUMN", "'nn'", lambda: keyed().apply(Kept(), {}, columns=["nn"])),
    "a reserved name": ("RESERVED_NAME", "'_a'", lambda: keyed().apply(Kept(), {"_a": pl.Int64})),
    "no such output": ("UNKNOWN_OUTPUT", "'x'", lambda: keyed().apply(Kept(), {})["x"]),
    "a beginning that cannot be kept": (
        "STATE_NOT_SERIALIZABLE",
        "Own",
        lambda: keyed().apply_rows(rises, RISES, Own(1)),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as raised:
        make()
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom.py" in str(raised.value.where)


def test_an_operator_is_told_by_its_class_and_its_plain_parameters() -> None:
    assert repr(Silent(3, "when")) == "Silent(asks='when', patience=3)"
    assert "0x" not in repr(Told(lambda batch: batch))


def test_answers_need_not_be_asked_for() -> None:
    made = (
        events_stream(HISTORY)
        .key_by("user")
        .apply(Previous(), WITH_BEFORE, outputs={"great": {"n": pl.Int64}})
    )
    rows = answers(ps.app("c", ps.output("great", made["great"].filter(col("n") > 9))))
    assert rows == {"great": [{"n": 10}, {"n": 11}]}


def test_strict_order_waits_for_the_needed_columns_only() -> None:
    strict = keyed(order="strict").window("2s").sum("n")
    assert [node.describe() for node in strict.node.inputs] == ["strict order per user"]
    assert list(strict.node.inputs[0].schema) == ["user", "n"]
    assert not keyed(order="epoch").window("2s").sum("n").node.inputs[0].inputs

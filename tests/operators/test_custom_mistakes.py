"""Mistakes in operators of the user's own: reported by name, with the user's line, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import InternalError, UserError
from penstock.operators import custom_runner
from penstock.state import plain
from penstock.testing.inline import run_inline
from tests.operators.custom_operators import (
    HISTORY,
    PIECES,
    RISES,
    TOTALS,
    MergedTotals,
    Own,
    Silent,
    SumInObject,
    SumState,
    Totals,
    rises,
)
from tests.operators.harness import History, Row, events_stream, fast_directory, run_query

# -- while it runs -------------------------------------------------------------------------------

BROKEN = {"now": True}


class Breaks(SumState):
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


class Emits(SumState):
    """Emits the rows that its function makes."""

    def __init__(self, rows: Callable[[pl.DataFrame], Any], to: str = "") -> None:
        self.rows = rows
        self.to = to

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> Any:
        out.emit(self.rows(batch), to=self.to)


class EmitsBeforeMerge(MergedTotals):
    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        out.emit(batch)


class Insatiable(Totals):
    def wants_ticks(self, state: Any) -> bool:
        return True


FAULTS: dict[str, tuple[str, str, ps.CustomOperator]] = {
    "a state of one's own": ("STATE_NOT_SERIALIZABLE", "SumInObject", SumInObject()),
    "rows without their time": ("EMITTED_WRONG_COLUMNS", "_time", Emits(lambda b: b.select(sum="n"))),
    "rows without a column": ("EMITTED_WRONG_COLUMNS", "sum", Emits(lambda b: b.select("_time"))),
    "dicts without a column": ("EMITTED_WRONG_COLUMNS", "sum", Emits(lambda b: [{"_time": 1}])),
    "rows for nobody": ("UNKNOWN_OUTPUT", "'x'", Emits(lambda b: b, "x")),
    "rows of long ago": (
        "EMITTED_IN_THE_PAST",
        "before",
        Emits(lambda b: b.select(col("_time") - 1, sum="n")),
    ),
    "values that do not fit": (
        "USER_FUNCTION_FAILED",
        "InvalidOperationError",
        Emits(lambda b: b.select("_time", sum=ps.lit("many"))),
    ),
    "rows of part of a state": ("EMITTED_TOO_EARLY", "part of a state", EmitsBeforeMerge()),
    "ticks for ever": ("TICKS_WITHOUT_END", "Insatiable", Insatiable()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_by_name(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_runner, "MOST_TICKS", 50)
    condition, named, operator = FAULTS[fault]
    schema = TOTALS if isinstance(operator, Totals) else {"sum": pl.Int64}
    with pytest.raises(UserError) as raised:
        run_query(lambda events: events.key_by("user").apply(operator, schema), HISTORY)
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom_mistakes.py" in str(raised.value.where)


def lost(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    emit({"n": "text"} if row["n"] else {})


def bad_state(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    return Own(1)


def fails(state: Any, row: Row, emit: Callable[[Row], None]) -> Any:
    return row["nothing"]  # not there


@pytest.mark.parametrize(
    ("function", "condition", "named"),
    [
        (lost, "EMITTED_WRONG_COLUMNS", "lost"),
        (bad_state, "STATE_NOT_SERIALIZABLE", "bad_state"),
        (fails, "USER_FUNCTION_FAILED", "# not there"),
    ],
)
def test_a_fault_of_a_row_function_is_reported_by_name(function: Any, condition: str, named: str) -> None:
    with pytest.raises(UserError) as raised:
        run_query(lambda events: events.key_by("user").apply_rows(function, {"n": pl.Int64}), HISTORY)
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom_mistakes.py" in str(raised.value.where)


@pytest.mark.parametrize(
    "build",
    [
        lambda all: all.apply(SumState(), {"sum": pl.Int64}),
        lambda all: all.apply_rows(lambda state, row, emit: 1, {"n": pl.Int64}),
    ],
    ids=["operator", "row function"],
)
@pytest.mark.parametrize(
    ("stored", "condition"), [(b"\0[3]", "STATE_OF_OLDER_FORMAT"), (b"{3}", "STATE_DAMAGED")]
)
def test_a_state_that_cannot_be_read_is_not_the_functions_fault(
    build: Any, stored: bytes, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_bytes = plain.to_bytes
    monkeypatch.setattr(plain, "to_bytes", lambda state: stored if state else to_bytes(state))
    apart = tuple(replace(event, time=event.time * 10) for event in HISTORY.partitions[0])
    made = build(events_stream(History((apart,)), PIECES).map(all=ps.lit(1)).key_by("all"))
    app = ps.app("c", ps.output("out", made))
    with fast_directory() as folder, pytest.raises(InternalError) as raised:
        run_inline(app, Path(folder))
    assert raised.value.condition == condition


# -- where it is reported --------------------------------------------------------------------------


class NoProcess(ps.CustomOperator):
    def init_state(self) -> Any:
        return None


class NoEvery(Totals):
    every = None


class NoTicks(SumState):
    every = "1s"


class NoTime(Totals):
    every = 0


def keyed(**how: Any) -> Any:
    return events_stream(HISTORY).key_by("user", **how)


MISTAKES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "no operator": ("BAD_OPERATOR", "CustomOperator", lambda: keyed().apply(SumState, {})),
    "no process": ("BAD_OPERATOR", "NoProcess", lambda: keyed().apply(NoProcess(), {})),
    "ticks without a time": ("BAD_OPERATOR", "NoEvery", lambda: keyed().apply(NoEvery(), {})),
    "a time without ticks": ("BAD_OPERATOR", "NoTicks", lambda: keyed().apply(NoTicks(), {})),
    "no time between ticks": ("BAD_OPERATOR", "NoTime", lambda: keyed().apply(NoTime(), {})),
    "an order that is none": ("BAD_ORDER", "'any'", lambda: keyed(order="any")),
    "an order too weak": ("ORDER_TOO_WEAK", "SumState", lambda: keyed(order="epoch").apply(SumState(), {})),
    "no such column": ("UNKNOWN_COLUMN", "'nn'", lambda: keyed().apply(SumState(), {}, columns=["nn"])),
    "a reserved name": ("RESERVED_NAME", "'_a'", lambda: keyed().apply(SumState(), {"_a": pl.Int64})),
    "no such output": ("UNKNOWN_OUTPUT", "'x'", lambda: keyed().apply(SumState(), {})["x"]),
    "a first state that cannot be stored": (
        "STATE_NOT_SERIALIZABLE",
        "Own",
        lambda: keyed().apply_rows(rises, RISES, Own(1)),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as raised:
        make()
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_custom_mistakes.py" in str(raised.value.where)


def test_an_operator_is_described_by_its_class_and_its_plain_parameters() -> None:
    assert repr(Silent(3, "when")) == "Silent(asks='when', patience=3)"
    assert "0x" not in repr(Emits(lambda batch: batch))

"""Aggregate functions of the user's own."""

from __future__ import annotations

import random
from typing import Any

import cloudpickle
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import UserError
from penstock.operators.functions.user import UserFunction
from tests.operators.function_ways import Event, answer, at_once, check_many, check_ways, frame_of, resolve
from tests.operators.harness import STRAIGHT, Cutting, History, cuttings, histories, modestly, run_query

plain = ps.aggregate_function(
    "sum_and_count",
    add=lambda values: [values.sum(), len(values)],
    merge=lambda one, other: [one[0] + other[0], one[1] + other[1]],
    result=lambda state: f"{state[0]}/{state[1]}",
    dtype=pl.String,
)
subtracting = ps.aggregate_function(
    "sum_and_count",
    add=lambda values: [values.sum(), len(values)],
    merge=lambda one, other: [one[0] + other[0], one[1] + other[1]],
    subtract=lambda whole, part: [whole[0] - part[0], whole[1] - part[1]],
    result=lambda state: f"{state[0]}/{state[1]}",
    dtype=pl.String(),
)
own_bytes = ps.aggregate_function(
    "sum_and_count",
    add=lambda values: (values.sum(), len(values)),
    merge=lambda one, other: (one[0] + other[0], one[1] + other[1]),
    result=lambda state: f"{state[0]}/{state[1]}",
    dtype=pl.String(),
    serialize=lambda state: repr(state).encode(),
    deserialize=lambda data: tuple(map(int, data.decode().strip("()").split(","))),
)
FORMS = {"plain": plain, "subtracting": subtracting, "own bytes": own_bytes}


def expected(events: list[Event]) -> str | None:
    numbers = [value for _, value in events if value is not None]
    return f"{sum(numbers)}/{len(numbers)}" if numbers else None


@pytest.mark.parametrize("form", FORMS)
@modestly
@given(st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=16), st.randoms(use_true_random=False))
def test_a_function_of_the_users_answers_by_every_way(
    form: str, numbers: list[int | None], chance: random.Random
) -> None:
    events: list[Event] = [((at, 0, at), number) for at, number in enumerate(numbers)]
    function = resolve(FORMS[form]("x", "y"), pl.Int64())
    assert check_ways(function, frame_of(events, pl.Int64()), chance) == expected(events)

    def same(found: Any, some: list[Event]) -> None:
        assert found == expected(some)

    check_many(function, pl.Int64(), events, chance, same)


def test_add_is_called_once_a_group_and_subtract_spares_merges() -> None:
    calls = {"add": 0, "merge": 0, "subtract": 0}

    def counted(name: str, made: Any) -> Any:
        calls[name] += 1
        return made

    function = ps.aggregate_function(
        "total",
        add=lambda values: counted("add", values.sum()),
        merge=lambda one, other: counted("merge", one + other),
        subtract=lambda whole, part: counted("subtract", whole - part),
        result=lambda state: state,
        dtype=pl.Int64(),
    )("x").resolve({"x": pl.Int64()})
    frame = pl.DataFrame({"x": range(10_000)})
    parts = at_once(function, frame, [row // 100 for row in range(frame.height)])
    assert calls == {"add": 100, "merge": 0, "subtract": 0}
    low = np.arange(50)
    found = pl.DataFrame(function.merge_ranges(parts, low, low + 50))
    assert calls == {"add": 100, "merge": 99, "subtract": 49}
    assert answer(function, found) == [sum(range(at * 100, (at + 50) * 100)) for at in range(50)]
    assert function.subtracts


def union(one: list[int], other: list[int]) -> list[int]:
    one.extend(other)  # a merge may change what it was given
    return sorted(one)


def test_states_are_not_shared_between_answers() -> None:
    function = ps.aggregate_function(
        "all",
        add=lambda values: values.to_list(),
        merge=union,
        subtract=lambda whole, part: [value for value in whole if value not in part],
        result=lambda state: state,
        dtype=pl.List(pl.Int64()),
    )("x").resolve({"x": pl.Int64()})
    parts = at_once(function, pl.DataFrame({"x": range(6)}), list(range(6)))
    low, high = np.array([0, 0, 1, 0, 2, 3, 0, 0]), np.array([6, 3, 6, 6, 6, 6, 6, 6])
    found = answer(function, pl.DataFrame(function.merge_ranges(parts, low, high)))
    assert found == [list(range(start, end)) for start, end in zip(low, high, strict=True)]


@pytest.mark.parametrize("state", [b"\x00bytes", {"a": [1, None, "é", True]}, "text", 1.5, None])
def test_a_state_is_json_or_bytes(state: Any) -> None:
    function = ps.aggregate_function(
        "constant",
        add=lambda values: state,
        merge=lambda one, other: one,
        result=lambda found: found == state,
        dtype=pl.Boolean(),
    )("x").resolve({"x": pl.Int64()})
    assert answer(function, at_once(function, pl.DataFrame({"x": [1]}), [0])) == [True]


def failing(what: str) -> UserFunction:
    def fail(*given: Any) -> Any:
        raise ValueError("not today")

    working: dict[str, Any] = {
        "add": lambda values: 1,
        "merge": lambda one, other: 1,
        "result": lambda state: state,
        "dtype": pl.Int64(),
    }
    if what == "state":
        working["add"] = lambda values: {1, 2}
    elif what == "type":
        working["result"] = lambda state: "a text"
    else:
        working[what] = fail
    return ps.aggregate_function("mine", **working)


@pytest.mark.parametrize("what", ["add", "merge", "result", "state", "type"])
def test_a_failure_names_the_function(what: str) -> None:
    function = failing(what)("x").resolve({"x": pl.Int64()})

    def run() -> None:
        parts = at_once(function, pl.DataFrame({"x": [1, 2]}), [0, 1])
        answer(function, pl.DataFrame(function.merge_ranges(parts, np.array([0]), np.array([2]))))

    with pytest.raises(UserError) as raised:
        run()
    assert "'mine'" in raised.value.primary
    assert raised.value.condition in ("USER_FUNCTION_FAILED", "TYPE_MISMATCH")


def test_a_function_travels_and_its_name_is_its_print() -> None:
    known = subtracting("x").resolve({"x": pl.Int64()})
    back = cloudpickle.loads(cloudpickle.dumps(known))
    assert repr(back) == repr(known)
    assert "0x" not in repr(known)
    assert known == subtracting("x").resolve({"x": pl.Int64()})
    assert back.describe() == "sum_and_count(x) as sum_and_count_x"


def test_half_a_pair_and_a_bad_name_are_refused() -> None:
    working: dict[str, Any] = {"add": len, "merge": max, "result": int, "dtype": pl.Int64()}
    with pytest.raises(UserError, match="serialize"):
        ps.aggregate_function("mine", **working, serialize=repr)
    with pytest.raises(UserError, match="cannot name"):
        ps.aggregate_function("my own", **working)


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_in_a_query_the_cuts_do_not_show(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        return events.key_by("user").window("5s").aggregate(plain("n", "p"), subtracting("n", "q"))

    rows = run_query(query, history, cutting)
    straight = run_query(query, history, STRAIGHT)
    assert sorted(map(repr, rows)) == sorted(map(repr, straight))
    assert all(row["p"] == row["q"] for row in rows)

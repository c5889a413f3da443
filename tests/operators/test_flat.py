"""Explode, flat map and demux: every event's rows, in their order, whoever reads them and however it is cut."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given

import penstock as ps
from penstock import col
from penstock.operators.contract import DERIVED, ORDER, PARTITION, SEQUENCE, TIME
from penstock.operators.strict import number_siblings
from penstock.query.explain import explain_app
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    modestly,
    run_app,
    run_query,
)

pytestmark = pytest.mark.slow

#: the letters of a page: several, one, none, or no list at all
LETTERS = {"/a": ["a", "b", "a"], "/b": ["b"], "/c": [], None: None}


def with_lists(events: ps.Stream) -> ps.Stream:
    letters = pl.col("page").replace_strict(
        {page: "".join(ls) for page, ls in LETTERS.items() if ls is not None}, default=None
    )
    return events.map(letters=letters.str.split("").list.eval(pl.element().filter(pl.element() != "")))


def exploded(history: History) -> list[tuple[Event, str]]:
    return [(event, letter) for event in history.on_time() for letter in LETTERS[event.page] or ()]


@modestly
@given(histories(), cuttings())
def test_a_row_for_every_value(history: History, cutting: Cutting) -> None:
    rows = run_query(
        lambda events: with_lists(events).explode("letters").select("user", "letters"), history, cutting
    )
    expected = [{"user": event.user, "letters": letter} for event, letter in exploded(history)]
    assert in_any_order(rows) == in_any_order(expected)


@modestly
@given(histories(), cuttings())
def test_rows_of_one_event_keep_their_order_for_those_who_ask_for_order(
    history: History, cutting: Cutting
) -> None:
    rows = run_query(
        lambda events: with_lists(events).explode("letters").key_by("user").last(3, "letters", partial=True),
        history,
        cutting,
    )
    seen: dict[Any, list[str]] = defaultdict(list)
    expected = []
    for event, letter in exploded(history):
        seen[event.user].append(letter)
        expected.append({"user": event.user, "letters": seen[event.user][-3:]})
    assert rows == expected


@modestly
@given(histories(), cuttings())
def test_and_keep_it_through_an_operator_that_sent_them_to_different_slices(
    history: History, cutting: Cutting
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        letters = with_lists(events).explode("letters")
        twos = letters.key_by("letters").last(2, "n", partial=True)
        return twos.map(all=ps.lit("all"), n=col("n").list.first()).key_by("all").last(3, "letters", "n")

    rows = run_query(query, history, cutting)
    numbers: dict[Any, list[int | None]] = defaultdict(list)
    seen: list[tuple[str, int | None]] = []
    expected: list[Row] = []
    for event, letter in exploded(history):
        numbers[letter].append(event.n)
        seen.append((letter, numbers[letter][-2:][0]))
        if len(seen) > 2:
            last = seen[-3:]
            expected.append({"all": "all", "letters": [a for a, _ in last], "n": [n for _, n in last]})
    assert rows == expected


def twice_backwards(frame: pl.DataFrame) -> pl.DataFrame:
    """Each event twice, the second copies after all first ones, negative ones not at all."""
    kept = frame.filter(col("n") >= 0)
    return pl.concat([kept.with_columns(turn=pl.lit(turn)) for turn in (1, 2)]).with_columns(
        m=col("n") * col("turn")
    )


@modestly
@given(histories(), cuttings())
def test_a_function_may_make_any_number_of_rows(history: History, cutting: Cutting) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        twice = events.flat_map(twice_backwards, {"user": pl.String, "m": pl.Int64})
        return twice.key_by("user").last(2, "m")

    seen: dict[Any, list[int]] = defaultdict(list)
    expected = []
    for event in history.on_time():
        for turn in (1, 2) if event.n is not None and event.n >= 0 else ():
            seen[event.user].append(event.n * turn)
            if len(seen[event.user]) > 1:
                expected.append({"user": event.user, "m": seen[event.user][-2:]})
    assert run_query(query, history, cutting) == expected


@modestly
@given(histories(), cuttings())
def test_rows_made_of_rows_that_were_made_of_events_are_in_order_too(
    history: History, cutting: Cutting
) -> None:
    def query(events: ps.Stream) -> ps.Stream:
        letters = with_lists(events).explode("letters").filter(col("letters") != "b")
        pairs = letters.map(pair=pl.concat_list("letters", "user")).explode("pair")
        return pairs.key_by("n").last(2, "pair")

    seen: dict[Any, list[str | None]] = defaultdict(list)
    expected = []
    for event, letter in exploded(history):
        for one in (letter, event.user) if letter != "b" else ():
            seen[event.n].append(one)
            if len(seen[event.n]) > 1:
                expected.append({"n": event.n, "pair": seen[event.n][-2:]})
    assert run_query(query, history, cutting) == expected


def test_lists_side_by_side_and_the_rows_of_an_operator_explode() -> None:
    history = History((tuple(Event(0, i, (1_000 + i) * SECOND, "ada", f"/{i}", i, None) for i in range(5)),))

    def query(events: ps.Stream) -> ps.Stream:
        return events.key_by("user").last(2, "page", "n").explode("page", "n")

    expected = [{"user": "ada", "page": f"/{at}", "n": at} for end in range(1, 5) for at in (end - 1, end)]
    assert (
        run_query(query, history)
        == run_query(query, history, Cutting((frozenset(range(5)),), (3,)))
        == expected
    )


def places(*rows: tuple[int, int, int]) -> pl.DataFrame:
    types = {TIME: pl.Int64, PARTITION: pl.UInt32, SEQUENCE: pl.Int64}
    return pl.DataFrame(list(rows), schema=types, orient="row")


@pytest.mark.parametrize(
    "sequence", [0, 7, 2**49 - 1, 2**49, 2**62, -1, -(2**63)], ids=lambda value: f"place {value}"
)
def test_no_two_rows_share_a_place_however_great_it_is(sequence: int) -> None:
    frame = places(*[(5, 3, sequence)] * 4, *[(5, 4, sequence)] * 2, (6, 3, sequence))
    frame = frame.with_columns(pl.Series("word", list("ababcda")))
    apart = number_siblings(frame)
    assert apart.n_unique(ORDER) == frame.height
    assert apart.equals(number_siblings(frame))
    if 0 <= sequence < 2**49:
        assert apart.sort(ORDER).equals(apart)
        assert apart[PARTITION].equals(frame[PARTITION])
    else:
        assert apart[PARTITION].unique().to_list() == [DERIVED]


def test_more_than_a_million_rows_of_one_event_have_places_of_their_own() -> None:
    many = 2**20 + 3
    frame = pl.DataFrame(
        {
            TIME: np.zeros(many, dtype=np.int64),
            PARTITION: np.zeros(many, dtype=np.uint32),
            SEQUENCE: np.full(many, 9),
        }
    )
    assert number_siblings(frame).n_unique(ORDER) == many


# -- demux ---------------------------------------------------------------------------------------


def parts_of(history: History, cutting: Cutting, every_match: bool) -> dict[str, list[Row]]:
    events = events_stream(history, cutting)
    parts = events.demux(
        low=col("n") < 1, ada=col("user") == "ada", high=col("n") > 2, every_match=every_match
    )
    app = ps.app("parts", *(ps.output(name, part.select("user", "n", "x")) for name, part in parts.items()))
    return run_app(app, cutting)


def ways(event: Event) -> list[str]:
    found = []
    if event.n is not None and event.n < 1:
        found.append("low")
    if event.user == "ada":
        found.append("ada")
    if event.n is not None and event.n > 2:
        found.append("high")
    return found or ["rest"]


def alike(parts: dict[str, list[Row]]) -> dict[str, list[str]]:
    return {name: in_any_order(rows) for name, rows in parts.items()}


@modestly
@given(histories(), cuttings())
def test_every_event_goes_to_exactly_one_part(history: History, cutting: Cutting) -> None:
    expected: dict[str, list[Row]] = {"low": [], "ada": [], "high": [], "rest": []}
    for event in history.on_time():
        expected[ways(event)[0]].append({"user": event.user, "n": event.n, "x": event.x})
    found = parts_of(history, cutting, every_match=False)
    assert alike(found) == alike(expected)
    everything = [{"user": e.user, "n": e.n, "x": e.x} for e in history.on_time()]
    assert in_any_order([row for part in found.values() for row in part]) == in_any_order(everything)


@modestly
@given(histories(), cuttings())
def test_or_to_every_part_that_it_fits(history: History, cutting: Cutting) -> None:
    expected: dict[str, list[Row]] = {"low": [], "ada": [], "high": [], "rest": []}
    for event in history.on_time():
        for way in ways(event):
            expected[way].append({"user": event.user, "n": event.n, "x": event.x})
    assert alike(parts_of(history, cutting, every_match=True)) == alike(expected)


def test_what_fits_nowhere_can_be_left_out_or_called_otherwise() -> None:
    events = events_stream(History(((),)))
    assert list(events.demux(a=col("n") > 0, otherwise=None)) == ["a"]
    assert list(events.demux(a=col("n") > 0, otherwise="b")) == ["a", "b"]


def test_every_form_of_a_query_tells_of_these_steps() -> None:
    events = with_lists(events_stream(History(((),))))
    part = events.demux(low=col("n") < 1, ada=col("user") == "ada")["ada"]
    many = part.explode("letters").flat_map(twice_backwards, {"n": pl.Int64})
    forms = explain_app(ps.app("x", ps.output("out", many)))
    for said in ("demux part 'ada'", "explode letters", "flat map with twice_backwards"):
        assert said in forms["as written"]
    assert "a row for every value of letters" in forms["optimised"]
    assert "call twice_backwards on each batch" in forms["optimised"]

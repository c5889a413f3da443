"""Lookups against a dictionary, one change or event after the other, for any history, cutting and slices."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    Row,
    cuttings,
    histories,
    in_any_order,
    modestly,
    run_query,
)
from tests.operators.two_streams import COLUMNS, run_two_streams


def looked_up(events: list[Event], changes: list[Event], how: str, deletes: bool) -> list[Row]:
    """Of one instant, changes come first; a change whose page is /c removes its key."""
    turns = [(change.time, 0, at, change) for at, change in enumerate(changes)]
    turns += [(event.time, 1, at, event) for at, event in enumerate(events)]
    latest: dict[str, Event] = {}
    rows = []
    for _, side, _, one in sorted(turns, key=lambda turn: turn[:3]):
        if side == 0:
            if one.user is not None and deletes and one.page == "/c":
                latest.pop(one.user, None)
            elif one.user is not None:
                latest[one.user] = one
            continue
        found = None if one.user is None else latest.get(one.user)
        if found is not None or how == "left":
            row: Row = {name: getattr(one, name) for name in COLUMNS}
            rows.append(row | {f"{name}_then": getattr(found, name, None) for name in ("n", "page")})
    return rows


@pytest.mark.slow
@modestly
@given(
    histories(most_events=20),
    histories(most_events=20),
    cuttings(),
    cuttings(),
    st.sampled_from(["left", "inner"]),
    st.booleans(),
    st.booleans(),
)
def test_events_meet_the_row_of_their_time(
    history: History,
    changes: History,
    cutting: Cutting,
    other_cutting: Cutting,
    how: Any,
    deletes: bool,
    broadcast: bool,
) -> None:
    rows = run_two_streams(
        lambda one, other: (
            one.key_by("user")
            .lookup(
                other.select("n", "page", id=col("user"), gone=col("page") == "/c")
                .select("n", "page", "gone", user=col("id"))
                .key_by("user"),
                how=how,
                suffix="_then",
                deleted="gone" if deletes else None,
                broadcast=broadcast,
            )
            .select(*COLUMNS, "n_then", "page_then")
        ),
        history,
        changes,
        cutting,
        other_cutting,
    )
    expected = looked_up(history.on_time(), changes.on_time(), how, deletes)
    assert in_any_order(rows) == in_any_order(expected)


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.booleans())
def test_a_stream_looks_itself_up(history: History, cutting: Cutting, broadcast: bool) -> None:
    """An event finds the last of its instant and key: itself or one of its equals in time."""
    rows = run_query(
        lambda events: (
            events.select("user", "n")
            .key_by("user")
            .lookup(events.select("n", who=col("user")).key_by("who"), broadcast=broadcast)
        ),
        history,
        cutting,
    )
    events = history.on_time()
    expected = []
    for event in events:
        same = [one for one in events if one.user == event.user is not None and one.time <= event.time]
        found = same[-1] if same else None
        expected.append(
            {"user": event.user, "n": event.n}
            | {"n_right": found.n if found else None, "who": found.user if found else None}
        )
    assert in_any_order(rows) == in_any_order(expected)


# -- plain cases ---------------------------------------------------------------------------------


def history_of(*events: tuple[float, str | None, int]) -> History:
    return History(
        (tuple(Event(0, at, int(t * SECOND), user, "/", n, None) for at, (t, user, n) in enumerate(events)),)
    )


PIECES = Cutting((frozenset(range(40)),), (1, 3, 2))


@pytest.mark.slow
def test_the_table_is_remembered_and_forgets_the_deleted_over_many_epochs() -> None:
    """Keys come and go; each event sees its key as it is then."""
    table = history_of(*((i + 0.5, f"u{i % 7}", -1 if i % 3 == 0 else i) for i in range(40)))
    events = history_of(*((i + 0.75, f"u{i % 5}", i) for i in range(40)))
    for broadcast in (False, True):
        rows = run_two_streams(
            lambda one, other, broadcast=broadcast: (  # type: ignore[misc]
                one.select("user", "n")
                .key_by("user")
                .lookup(
                    other.select("user", was=col("n"), gone=col("n") < 0).key_by("user"),
                    deleted="gone",
                    broadcast=broadcast,
                )
            ),
            events,
            table,
            PIECES,
            PIECES,
        )
        latest: dict[str, int] = {}
        expected = []
        for i in range(40):
            latest[f"u{i % 7}"] = i
            was = latest.get(f"u{i % 5}")
            was = None if was is None or was % 3 == 0 else was
            expected.append({"user": f"u{i % 5}", "n": i, "was": was})
        assert rows == expected


def test_a_table_of_keys_alone_filters() -> None:
    events = history_of((10, "ada", 1), (11, "bob", 2), (12, None, 3), (13, "ada", 4))
    table = history_of((11, "ada", 0), (12, None, 0))
    rows = run_two_streams(
        lambda one, other: (
            one.select("user", "n").key_by("user").lookup(other.select("user").key_by("user"), how="inner")
        ),
        events,
        table,
    )
    assert rows == [{"user": "ada", "n": 4}]


def test_events_keep_their_order_after_a_lookup() -> None:
    events = history_of(*((10 + i // 3, "ada" if i % 2 else "bob", i) for i in range(12)))
    table = history_of((1, "ada", 7), (12, "bob", 8))

    def query(one: ps.Stream, other: ps.Stream) -> ps.Stream:
        found = one.key_by("user").lookup(other.select("user", was=col("n")).key_by("user"))
        return found.map(all=ps.lit("all")).key_by("all").last(2, "n", "was")

    rows = run_two_streams(query, events, table, PIECES)
    assert [row["n"] for row in rows] == [[i, i + 1] for i in range(11)]


def test_values_of_any_type_are_remembered_and_null_where_there_are_none() -> None:
    columns = {
        "list": pl.concat_list("n", "n"),
        "word": col("page").cast(pl.Categorical),
        "cents": col("n").cast(pl.Decimal(10, 2)),
        "day": col("time").dt.date(),
        "both": pl.struct("page", "n"),
    }
    events = history_of((10, "ada", 1), (20, "ada", 2), (30, "bob", 3), (31, "ada", 4))
    table = history_of((15, "ada", 7), (40, "bob", 8))
    rows = run_two_streams(
        lambda one, other: (
            one.select("user").key_by("user").lookup(other.select("user", **columns).key_by("user"))
        ),
        events,
        table,
        PIECES,
        PIECES,
    )
    nothing = {"user": "ada", **dict.fromkeys(columns)}
    assert rows[0] == nothing
    assert rows[2] == nothing | {"user": "bob"}
    assert rows[1] == rows[3]
    assert rows[1]["both"] == {"page": "/", "n": 7}
    assert rows[1]["list"] == [7, 7]

"""Top-k per group, and a top-k that something follows, against sorting everything by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.query.compile import compile_app
from tests.operators.harness import (
    SECOND,
    Cutting,
    Event,
    History,
    cuttings,
    events_stream,
    histories,
    in_any_order,
    micros,
    modestly,
    run_query,
)

SIZE = 5 * SECOND


def smaller(text: str | None) -> tuple[bool, str]:
    """Texts in order, null after all of them."""
    return (text is None, text or "")


def answers(
    history: History, k: int, *, per: bool, running: bool, least: bool, changes_only: bool
) -> list[dict[str, Any]]:
    """The rows to emit, computed instant by instant."""
    ends: dict[int, list[Any]] = defaultdict(list)
    for event in history.on_time():
        ends[event.time // SIZE * SIZE + SIZE].append(event)
    totals: dict[tuple[str | None, str | None], int] = {}
    last: dict[Any, list[Any]] = {}
    rows = []
    for end in sorted(ends):
        totals = totals if running else {}
        for event in ends[end]:
            at = (event.page, event.user)
            totals[at] = totals.get(at, 0) + (event.n or 0)
        groups: dict[Any, list[Any]] = defaultdict(list)
        for (page, user), total in totals.items():
            groups[page if per else "all"].append(
                (total if least else -total, smaller(page), smaller(user), page, user)
            )
        changed = {event.page if per else "all" for event in ends[end]}
        for group in changed:
            best = [
                (page, user, abs_ if least else -abs_) for abs_, _, _, page, user in sorted(groups[group])[:k]
            ]
            if changes_only and last.get(group) == best:
                continue
            last[group] = best
            for rank, (page, user, total) in enumerate(best, 1):
                when = {"as_of": end} if running else {"window_start": end - SIZE, "window_end": end}
                rows.append({**when, "rank": rank, "page": page, "user": user, "n": total})
    return rows


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_the_best_of_every_group(
    history: History, cutting: Cutting, k: int, per: bool, running: bool, least: bool, changes_only: bool
) -> None:
    def build(events: ps.Stream) -> ps.Stream:
        keyed = events.key_by("page", "user")
        totals = (keyed.running("5s") if running else keyed.window("5s")).sum("n", "n")
        best = totals.top(k, per="page" if per else (), least=least, changes_only=changes_only)
        return best if per else best.filter(col("rank") > 0)  # what follows makes an operator of it

    expected = answers(history, k, per=per, running=running, least=least, changes_only=changes_only)
    assert in_any_order(micros(run_query(build, history, cutting))) == in_any_order(expected)


@pytest.mark.slow
@modestly
@given(histories(), cuttings(), st.integers(1, 3), st.booleans())
def test_a_top_that_something_follows_is_the_one_of_the_gather(
    history: History, cutting: Cutting, k: int, running: bool
) -> None:
    def totals(events: ps.Stream) -> ps.Stream:
        keyed = events.key_by("user")
        return (keyed.running("3s") if running else keyed.window("6s", every="3s")).sum("n", "n")

    global_top = run_query(lambda events: totals(events).top(k), history)
    followed = run_query(lambda events: totals(events).top(k).filter(col("rank") > 0), history, cutting)
    assert in_any_order(followed) == in_any_order(global_top)


@pytest.mark.slow
@modestly
@given(histories(), cuttings())
def test_a_top_goes_on_into_another_operator(history: History, cutting: Cutting) -> None:
    """How often each user was the first of a window."""

    def build(events: ps.Stream) -> ps.Stream:
        first = events.key_by("user").window("5s").count().top(1, changes_only=False)
        return first.key_by("user").window("20s").count("times")

    wins: dict[tuple[int, str | None], int] = defaultdict(int)
    windows: dict[int, dict[str | None, int]] = defaultdict(lambda: defaultdict(int))
    for event in history.on_time():
        windows[event.time // SIZE * SIZE][event.user] += 1
    for start, counts in windows.items():
        winner = min(counts, key=lambda user: (-counts[user], smaller(user)))
        wins[(start + SIZE - 1) // (4 * SIZE) * 4 * SIZE, winner] += 1
    expected = [
        {"window_start": start, "window_end": start + 4 * SIZE, "user": user, "times": times}
        for (start, user), times in wins.items()
    ]
    assert in_any_order(micros(run_query(build, history, cutting))) == in_any_order(expected)


def test_a_running_total_cannot_move_between_groups() -> None:
    events = events_stream(History(()))
    totals = events.key_by("user").running("5s").count().map(half=col("count") // 2)
    with pytest.raises(UserError) as caught:
        totals.top(1, per="half")
    assert caught.value.condition == "BAD_TOP"
    windows = events.key_by("user").window("5s").count().map(half=col("count") // 2)
    assert windows.top(1, per="half").columns == [
        "window_start",
        "window_end",
        "rank",
        "user",
        "count",
        "half",
    ]


def test_groups_that_are_no_columns_are_refused() -> None:
    with pytest.raises(UserError, match="UNKNOWN_COLUMN"):
        events_stream(History(())).key_by("user").window("5s").count().top(1, per="pages")


def test_windows_are_ranked_before_they_travel() -> None:
    events = events_stream(History(()))
    made = compile_app(
        ps.app("a", ps.output("o", events.key_by("page", "user").window("5s").count().top(2, per="page")))
    )
    assert [edge.reduce for edge in made.edges if edge.target.stage == "2-group-top"] == [True]


@pytest.mark.parametrize("followed", [False, True])
def test_a_key_may_be_called_as_the_time_of_another_kind_of_answer(followed: bool) -> None:
    """Found by drawing queries at random: such a key was taken for the answer's time and left out."""
    events = tuple(Event(0, at, (1 + at) * SECOND, "ada", "/a", 1, None) for at in range(3))

    def build(stream: ps.Stream) -> ps.Stream:
        totals = stream.running("1s").count("n").key_by("as_of").window("1m").count().top(2)
        return totals.filter(col("rank") > 0) if followed else totals

    rows = micros(run_query(build, History((events,))))
    assert [(row["rank"], row["as_of"]) for row in rows] == [(1, 2 * SECOND), (2, 3 * SECOND)]

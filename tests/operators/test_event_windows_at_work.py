"""Windows over events among other operators, over many epochs, and what they leave in the state; their mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.operators.contract import (
    NEVER,
    PARTITION,
    SEQUENCE,
    TIME,
    Operator,
    Progress,
    SliceState,
)
from penstock.operators.count_windows import CountWindows
from penstock.operators.landmark_windows import CLOSES, OPENS, LandmarkWindows
from penstock.operators.session_windows import SessionWindows
from penstock.state.buckets import with_hash
from penstock.state.collection import Scope
from penstock.state.manifest import Manifest
from penstock.state.run_store import RunStore
from tests.operators.harness import (
    SECOND,
    Build,
    Cutting,
    Event,
    History,
    events_stream,
    run_app,
    run_query,
)

HISTORY = History(
    (
        tuple(
            Event(0, i, (1_000 + i // 2) * SECOND, "ada" if i % 3 else "bob", f"/{i % 4}", i, i / 4)
            for i in range(40)
        ),
        tuple(Event(1, i, (1_000 + i) * SECOND, "cyd" if i % 2 else None, "/x", -i, None) for i in range(18)),
    )
)
EVERY_EVENT_AN_EPOCH = Cutting((frozenset(range(40)), frozenset(range(18))), (1, 3, 2))
IN_PIECES = Cutting((frozenset({3, 8, 9, 20, 31}), frozenset({1, 5})), (2, 1, 3))

WINDOWS: dict[str, Callable[[ps.Stream], ps.Stream]] = {
    "count": lambda events: events.key_by("user").count_window(4, 3).aggregate(ps.count(), ps.collect("n")),
    "gaps": lambda events: events.key_by("user").count_window(2, 5, partial=True).sum("n"),
    "last": lambda events: events.key_by("user").last_window(3).aggregate(ps.median("n"), ps.last("page")),
    "forgetting": lambda events: events.key_by("user").last_window(3, whole=True, forget_after="2s").count(),
    "session": lambda events: events.key_by("user").session("1s").aggregate(ps.count(), ps.collect("n")),
    "capped session": lambda events: events.key_by("user").session("5s", longest="7s").sum("n"),
    "landmark": lambda events: (
        events.key_by("user").landmark(col("n") % 4 == 0, col("page") == "/2", keep_open=True).sum("n")
    ),
    "capped landmark": lambda events: (
        events.key_by("user").landmark(col("n") % 4 == 0, col("page") == "/2", longest="3s").sum("n")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
def test_memory_lasts_over_many_epochs_and_compactions(kind: str) -> None:
    straight = run_query(WINDOWS[kind], HISTORY)
    assert len(straight) > 3
    assert run_query(WINDOWS[kind], HISTORY, EVERY_EVENT_AN_EPOCH) == straight


CHAINS: dict[str, Build] = {
    "the last sessions": lambda events: WINDOWS["session"](events).key_by("user").last(2, "count"),
    "sessions by time": lambda events: WINDOWS["session"](events).window("4s").sum("count"),
    "landmarks counted": lambda events: (
        WINDOWS["capped landmark"](events).key_by("closed").count_window(2).aggregate(ps.collect("sum_n"))
    ),
    "averages that rise": lambda events: (
        events.key_by("user")
        .last_window(3)
        .aggregate(ps.avg("n", "mean"))
        .key_by()
        .landmark(col("mean") > 3, col("mean") < 0, longest="5s")
        .count()
    ),
    "what was not full, by time": lambda events: WINDOWS["gaps"](events).window("1d").sum("sum_n"),
    "a stream united with itself": lambda events: (
        events.filter(col("n") > 2)
        .union(events.filter(col("n") < 9).map(n=col("n") * 2))
        .key_by("user")
        .last_window(2)
        .aggregate(ps.sum_("n", "sum"))
        .key_by()
        .count_window(3)
        .aggregate(ps.collect("sum"))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_what_reads_the_answers_reads_the_same_however_it_is_cut(chain: str) -> None:
    straight = run_query(CHAINS[chain], HISTORY)
    assert straight
    assert run_query(CHAINS[chain], HISTORY, IN_PIECES) == straight
    assert run_query(CHAINS[chain], HISTORY, EVERY_EVENT_AN_EPOCH) == straight


def test_two_landmark_windows_of_one_stream_have_their_own_marks() -> None:
    events = events_stream(HISTORY)
    some = events.key_by("user").landmark(col("n") == 1, col("n") == 4, keep_open=True).count()
    others = events.key_by("user").landmark(col("n") == 7, col("n") == 8, keep_open=True).count()
    found = run_app(ps.app("test", ps.output("some", some), ps.output("others", others)))
    assert [row["count"] for row in found["some"]] == [3]
    assert [row["count"] for row in found["others"]] == [2]


def test_a_users_function_of_ranges_without_values_answers_nothing() -> None:
    values = [("ada", None), ("bob", 3), ("ada", None)]
    history = History(
        (tuple(Event(0, i, i * SECOND, user, None, n, None) for i, (user, n) in enumerate(values)),)
    )
    most = ps.aggregate_function("most", add=pl.Series.max, merge=max, result=int, dtype=pl.Int64)
    rows = run_query(lambda events: events.key_by("user").count_window(2, 1).aggregate(most("n")), history)
    assert [(row["user"], row["most_n"]) for row in rows] == [("ada", None)]


# -- what is left in the state ------------------------------------------------------------------------------


def left(operator: Operator, folder: Path, collection: str) -> int:
    """Rows in the state after many keys have come, had three events each, and gone."""
    manifest, before = Manifest(), NEVER
    for epoch in range(60):
        # in every epoch five keys come, five have their second event, and five their last
        users = [f"u{5 * (epoch - age) + i}" for age in (0, 1, 2) for i in range(5)]
        frame = pl.DataFrame({"user": users, "n": [age for age in (0, 1, 2) for _ in range(5)]}).with_columns(
            (pl.lit(epoch * SECOND) + pl.int_range(15)).alias(TIME),
            pl.lit(0, pl.UInt32).alias(PARTITION),
            pl.int_range(15 * epoch, 15 * epoch + 15).alias(SEQUENCE),
            (pl.col("n") == 0).alias(OPENS),
            (pl.col("n") == 2).alias(CLOSES),
        )
        scope = Scope(RunStore(folder, None), epoch, frozenset(range(8)), 8)
        state = SliceState("op", manifest.collections.get("op", {}), scope)
        after = (epoch + 1) * SECOND
        operator.process(with_hash(operator.prepare(frame), ["user"]), state, Progress(before, after))
        manifest = manifest.advance(epoch, [("op", name, c) for name, c in state.changes().items()])
        before = after
    return sum(entry.rows for entry in manifest.entries("op", collection))


@pytest.mark.parametrize(
    ("operator", "collection"),
    [
        (SessionWindows(("user",), (ps.count(),), 3 * SECOND // 2), "open"),
        (LandmarkWindows(("user",), (ps.count(),)), "open"),
        (LandmarkWindows(("user",), (ps.count(),), 30 * SECOND), "open"),
        (CountWindows(("user",), (ps.count(),), 10, 1, forget_after=2 * SECOND), "kept"),
    ],
    ids=["session", "landmark", "capped landmark", "forgotten"],
)
def test_a_key_that_is_done_leaves_nothing(operator: Operator, collection: str, tmp_path: Path) -> None:
    open_at_a_time = 15
    capped = isinstance(operator, LandmarkWindows) and operator.longest is not None
    assert left(operator, tmp_path, collection) <= 10 * open_at_a_time * (2 if capped else 1)


# -- mistakes -----------------------------------------------------------------------------------------------


def keyed() -> ps.stream:  # type: ignore[valid-type]
    return events_stream(HISTORY).key_by("user")


MISTAKES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "a count of none": ("BAD_WINDOW", "at least 1", lambda: keyed().count_window(0)),
    "no advance": ("BAD_WINDOW", "at least 1", lambda: keyed().count_window(3, 0)),
    "forgotten and emitted": (
        "BAD_WINDOW",
        "forgotten",
        lambda: keyed().count_window(3, partial=True, forget_after="1s"),
    ),
    "forgotten at once": ("BAD_WINDOW", "forgotten", lambda: keyed().count_window(3, forget_after=0)),
    "the last of none": ("BAD_WINDOW", "last 0", lambda: keyed().last_window(0)),
    "no gap": ("BAD_WINDOW", "silence", lambda: keyed().session(0)),
    "a gap of nonsense": ("BAD_DURATION", "soon", lambda: keyed().session("soon")),
    "a session of no length": ("BAD_WINDOW", "long", lambda: keyed().session("1s", longest=0)),
    "a landmark that may stay open": (
        "WINDOW_UNBOUNDED",
        "for ever",
        lambda: keyed().landmark(col("n") > 1, col("n") < 1),
    ),
    "a landmark of no length": (
        "BAD_WINDOW",
        "long",
        lambda: keyed().landmark(col("n") > 1, col("n") < 1, longest=0),
    ),
    "an opening that is no condition": (
        "TYPE_MISMATCH",
        "'open'",
        lambda: keyed().landmark(col("n") + 1, col("n") < 1, longest="1s"),
    ),
    "a closing that is no expression": (
        "TYPE_MISMATCH",
        "'close'",
        lambda: keyed().landmark(col("n") > 1, "n", longest="1s"),
    ),
    "an opening by a column that is not there": (
        "UNKNOWN_COLUMN",
        "'m'",
        lambda: keyed().landmark(col("m") > 1, col("n") < 1, longest="1s"),
    ),
    "a closing that looks at other rows": (
        "NOT_ROW_WISE",
        "'close'",
        lambda: keyed().landmark(col("n") > 1, col("n") < col("n").shift(1), longest="1s"),
    ),
    "an aggregate of a column that is not there": (
        "UNKNOWN_COLUMN",
        "'m'",
        lambda: keyed().session("1s").sum("m"),
    ),
    "an aggregate of texts": ("TYPE_MISMATCH", "numbers", lambda: keyed().count_window(3).sum("page")),
    "an aggregate named like its window": (
        "NAME_TAKEN",
        "'closed'",
        lambda: keyed().landmark(col("n") > 1, col("n") < 1, longest="1s").count("closed"),
    ),
    "answers before the end": ("BAD_EMIT", "close", lambda: keyed().session("1s").emit("change")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_where_it_was_made(mistake: str) -> None:
    condition, named, make = MISTAKES[mistake]
    with pytest.raises(UserError) as raised:
        make()
    assert raised.value.condition == condition
    assert named in str(raised.value)
    assert "test_event_windows_at_work.py" in str(raised.value.where)

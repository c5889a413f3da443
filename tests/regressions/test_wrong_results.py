"""Queries whose results were wrong once, each the smallest that shows the bug."""

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.testing.inline import run_inline
from tests.regressions.harness import S, ev, run, stream

CUTS = [{"slices": s, "units": u} for s in (1, 2, 3, 5) for u in (1, 3, 1 << 30)]


def assert_same_rows(build):
    """Assert that the rows of a query do not depend on slices and epochs."""
    emitted = [sorted(map(str, run(build(), **cut))) for cut in CUTS]
    assert emitted[0], "there is nothing to compare"
    assert all(rows == emitted[0] for rows in emitted)


_R = random.Random(1)
ROWS = [
    ev(i // 4, user=_R.choice("abcdefgh"), page=_R.choice("PQ"), n=i, x=float(i), tags=["p", "q"])
    for i in range(40)
]


def duplicate_rows(s):
    return s.map(tag=pl.lit("a") + col("user")).union(s.map(tag=pl.lit("b") + col("user")))


def test_a_pattern_with_an_absent_step_skips_overlapping_matches_of_a_silent_key():
    """The match of 1 s overlaps the one of 0 s, which is complete at 3 s, however epochs are cut."""
    rows = [
        ev(0, user="a", n=1),
        ev(1, user="a", n=1),
        ev(2, user="z", n=9),
        ev(3.5, user="z", n=9),
        ev(9, user="z", n=9),
    ]

    def build():
        steps = ps.step("a", col("n") == 1), ps.step("b", col("n") == 2, absent=True)
        return stream(rows).key_by("user").pattern(*steps, within="3s", after="skip").select("user", "a_n")

    assert run(build()) == run(build(), units=1) == [{"user": "a", "a_n": 1}]


def test_an_idle_table_does_not_hold_back_lookups():
    table = stream([ev(1, user="a", page="home")], "tab", finished=False, idle_after="10ms")
    events = stream([ev(100 + i, user="a", n=i) for i in range(60)], "evs", finished=False, idle_after="10ms")
    joined = events.select("user", "n").key_by("user").lookup(table.select("user", "page").key_by("user"))
    rows = run(joined, units=5, watch=lambda report: time.sleep(0.03))
    assert rows  # the docstring of lookup promises it


def test_one_function_with_two_schemas_is_not_shared():
    def same_frame(frame):
        return frame

    s = stream(ROWS)
    ints, floats = (
        s.map_batches(same_frame, {"n": pl.Int64}),
        s.map_batches(same_frame, {"n": pl.Float64, "user": pl.String}),
    )
    _, rows = run(ints, floats)
    assert rows[0] == {"n": 0.0, "user": ROWS[0]["user"]}


@pytest.mark.parametrize("expr", [pl.sum_horizontal(pl.all()), pl.struct(pl.all()), pl.col("^n.*$") + 1])
def test_expressions_over_all_columns_are_refused(expr):
    with pytest.raises(UserError, match="WILDCARD"):
        stream(ROWS).select("n", "x").map(total=expr)
    with pytest.raises(UserError, match="WILDCARD"):
        stream(ROWS).filter(pl.max_horizontal(pl.all()) < 100)


def test_a_filter_protects_the_filter_after_it():
    s = stream([ev(0, page="x"), ev(1, page="7")]).select("page")
    guarded = s.filter(col("page").str.contains(r"^\d+$")).filter(col("page").cast(pl.Int64) > 3)
    assert run(guarded) == [{"page": "7"}]


@pytest.mark.slow
def test_first_and_last_of_lists_do_not_depend_on_epochs():
    def build():
        lists = stream(ROWS).key_by("user").window("4s").aggregate(ps.collect("page", "c"))
        return lists.window("1m").aggregate(ps.first("c"), ps.last("c"), ps.collect("c"))

    assert_same_rows(build)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["distinct", "last", "changes", "rebalance"])
def test_rows_of_a_union_have_positions_of_their_own(how):
    """Two rows of one event share (time, partition, sequence); operators that pass these on must distinguish them."""

    def build():
        s = duplicate_rows(stream(ROWS))
        if how == "distinct":
            s = s.distinct("tag", "n", within="1s")
        elif how == "last":
            s = s.map(z=col("page")).key_by("tag").last(1, "z").map(page=col("z").list.first())
        elif how == "changes":
            s = s.key_by("page", "tag").window("1m").emit("change").count()
        else:
            s = s.rebalance().filter(col("n") % 3 != 0).rebalance()
        return s.key_by("page").last(3, "tag")

    assert_same_rows(build)


def test_rows_exploded_twice_from_a_file_longer_than_8_mb():
    """A file's sequence is its chunk's offset plus a row number, so it depends on cuts; told_apart hashes it."""

    def rows_of(units):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.log"
            with path.open("w") as file:
                for i in range(2600):
                    row = {"time": i // 3 * S, "user": "a", "pad": "x" * 4096, "w": ["1", "2", "3"]}
                    file.write(json.dumps(row) + "\n")
            columns = {"time": pl.Datetime("us", "UTC"), "user": pl.String(), "w": pl.List(pl.String())}
            decoder = ps.json_lines(columns, times={"time": "us"})
            s = ps.stream("s", ps.files(str(path), finished=True), decoder, time="time", lateness=0)
            s = s.map(k=pl.concat_list(pl.lit("u"), pl.lit("v"))).explode("k")
            s = s.distinct("time", "k", within="1us").explode("w").key_by("user").last(6, "w").select("w")
            app = ps.app("t", ps.output("o", s))
            reports = run_inline(app, Path(folder) / "s", slices=1, epoch_units=units)
            return [row for r in reports for rows in r.rows.values() for row in rows.to_dicts()]

    seen = 867 * 2 * 3  # seconds, copies of each, words of each
    expected = [{"w": [str((at + i) % 3 + 1) for i in range(6)]} for at in range(seen - 5)]
    assert rows_of(1 << 40) == rows_of(1_000_000) == expected


@pytest.mark.slow
def test_negative_and_positive_zero_are_one_key():
    rows = {
        "p0": [ev(0, x=-0.0), ev(2, x=0.0), ev(4, x=0.0)],
        "p1": [ev(1, x=0.0), ev(3, x=-0.0), ev(4, x=-0.0)],
    }
    assert_same_rows(lambda: stream(rows).key_by("x").window("1m").count())


def test_an_object_that_is_in_a_state_twice_stays_one_object_between_epochs() -> None:
    def pages(state: Any, row: dict[str, Any], emit: Any) -> Any:
        if state is None:
            seen: list[str] = []
            state = {"seen": seen, "by name": {"seen": seen}}
        state["seen"].append(row["page"])
        emit({"pages": len(state["by name"]["seen"])})
        return state

    def rows_of(units: int) -> Any:
        events = stream([ev(second, user="a", page="/p") for second in range(6)])
        return run(events.key_by("user").apply_rows(pages, {"pages": pl.Int64}), units=units)

    assert rows_of(1) == rows_of(1 << 40) == [{"pages": n} for n in range(1, 7)]

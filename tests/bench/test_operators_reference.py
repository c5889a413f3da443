"""The references of the operator benchmark say what a loop over all calls says, and answers tell rows apart."""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bench import operators_reference as reference
from bench.call_data import CLOSING_CALLER, CallParameters
from bench.dataset import Dataset, make_dataset
from bench.operator_queries import Query, answer
from penstock.logs.calls import COLUMNS

SECOND = 1_000_000
SMALL = CallParameters(600, servers=2, rate=5, callers=30, districts=7)

Call = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(SMALL, tmp_path_factory.mktemp("calls"))


@pytest.fixture(scope="module")
def calls(small: Dataset) -> list[Call]:
    return [
        {
            name: float(value) if name in ("lat", "lon") else value if name in ("src", "dst") else int(value)
            for name, value in zip(COLUMNS, row, strict=True)
        }
        for path in small.files
        for row in csv.reader(path.open())
    ]


def reference_rows(query: Query, dataset: Dataset, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(reference.rows(query, dataset).select(columns).iter_rows())


def kilometres(one: Call, other: Call) -> float:
    """By the law of cosines: good enough where the calls are not at the same place."""
    lat, lat_right = math.radians(one["lat"]), math.radians(other["lat"])
    east = math.radians(one["lon"] - other["lon"])
    cosine = math.sin(lat) * math.sin(lat_right) + math.cos(lat) * math.cos(lat_right) * math.cos(east)
    return 6371.0 * math.acos(min(1.0, cosine))


def test_map(small: Dataset, calls: list[Call]) -> None:
    expected = sorted((call["src"], (call["end"] - call["start"]) // SECOND) for call in calls)
    assert reference_rows(Query("map"), small, "src", "duration") == expected


@pytest.mark.parametrize("windows", [1, 6, 60])
def test_aggregate(windows: int, small: Dataset, calls: list[Call]) -> None:
    advance = 60 // windows * SECOND
    durations: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call in calls:
        start = call["ts"] // advance * advance
        while start + 60 * SECOND > call["ts"]:
            durations[start, call["district"]].append((call["end"] - call["start"]) // SECOND)
            start -= advance
    expected = sorted((*key, len(found), sum(found) / len(found)) for key, found in durations.items())
    found = reference_rows(
        Query("aggregate", windows=windows), small, "window_start", "district", "count", "avg_duration"
    )
    assert found == expected


@pytest.mark.parametrize("seconds", [10, 60])
def test_join(seconds: int, small: Dataset, calls: list[Call]) -> None:
    reach = seconds * SECOND
    expected = sorted(
        (one["src"], one["start"], other["start"], kilometres(one, other))
        for one, other in product(calls, calls)
        if one["src"] == other["src"]
        and abs(one["ts"] - other["ts"]) <= reach
        and 0 < other["start"] - one["start"] <= reach
    )
    found = reference_rows(Query("join", seconds), small, "src", "start", "start_right", "km")
    assert len(found) > 50
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in expected], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 60])
def test_product(seconds: int, small: Dataset, calls: list[Call]) -> None:
    near = [
        (one, other)
        for one, other in product(calls, calls)
        if abs(one["ts"] - other["ts"]) <= seconds * SECOND
    ]
    expected = sorted(
        (one["src"], one["dst"], one["start"], other["src"], other["dst"], other["start"])
        for one, other in near
        if {one["src"], one["dst"]} & {other["src"], other["dst"]}
        and (one["start"] < other["start"] < one["end"] or other["start"] < one["start"] < other["end"])
    )
    columns = ("src", "dst", "start", "src_right", "dst_right", "start_right")
    assert len(expected) > 50
    assert reference_rows(Query("product", seconds), small, *columns) == expected
    assert reference.comparisons(small, seconds) == len(near)


def test_the_heaviest_callers_of_a_window(small: Dataset, calls: list[Call]) -> None:
    expected = []
    for start in sorted({call["ts"] // (60 * SECOND) for call in calls}):
        counts = Counter(call["src"] for call in calls if call["ts"] // (60 * SECOND) == start)
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
        expected += [[start * 60, rank, src, count] for rank, (src, count) in enumerate(best, 1)]
    query = Query("order")
    assert answer(query, reference.rows(query, small)) == expected


@pytest.mark.parametrize("operator", ["map", "aggregate", "join", "product", "order"])
def test_an_answer_does_not_depend_on_the_order_of_rows_or_on_how_times_are_held(
    operator: Any, small: Dataset
) -> None:
    query = Query(operator)
    rows = reference.rows(query, small)
    times = [name for name in rows.columns if "start" in name]
    other = rows.sample(fraction=1, shuffle=True, seed=3).with_columns(
        pl.col(times).cast(pl.Datetime("us", "UTC"))
    )
    assert answer(query, other) == answer(query, rows)


@pytest.mark.parametrize(
    ("operator", "column"),
    [
        ("map", "duration"),
        ("aggregate", "count"),
        ("aggregate", "avg_duration"),
        ("join", "start_right"),
        ("join", "km"),
        ("product", "dst_right"),
        ("order", "src"),
    ],
)
def test_an_answer_tells_a_wrong_value_and_a_row_too_few(operator: Any, column: str, small: Dataset) -> None:
    query = Query(operator)
    rows = reference.rows(query, small)
    first = pl.int_range(pl.len()) == 0
    value = pl.col(column)
    other = pl.when(value == "34600000000").then(pl.lit("34600000001")).otherwise(pl.lit("34600000000"))
    wrong = other if rows.schema[column] == pl.String else value + 1
    assert answer(query, rows.with_columns(pl.when(first).then(wrong).otherwise(value).alias(column))) != (
        answer(query, rows)
    )
    assert answer(query, rows[1:]) != answer(query, rows)


def test_the_closing_call_is_no_part_of_the_answer(tmp_path: Path) -> None:
    made = make_dataset(SMALL, tmp_path)
    closing = sorted(made.rotated.glob("*-p0.log"))[-1].read_bytes().splitlines()[-1]
    assert closing.startswith(f"{CLOSING_CALLER},".encode())
    assert closing.count(b",") == len(COLUMNS) - 1
    rows = pl.DataFrame({"src": [CLOSING_CALLER, "34600000001"], "duration": [0, 5]})
    assert answer(Query("map"), rows) == answer(Query("map"), rows[1:])

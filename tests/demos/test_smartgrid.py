"""Smart plugs against plain Python that keeps every reading."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from penstock.demos.smartgrid import build
from penstock.testing import ListLog
from tests.demos.kit import Row, assert_same_rows, run_three_ways

pytestmark = pytest.mark.slow

BEGIN = int(datetime(2026, 3, 1, 22, tzinfo=UTC).timestamp())
Plug = tuple[int, int, int]


def readings() -> list[tuple[int, float, int, Plug]]:
    """Return readings of two houses with three plugs over two and a half days; some loads are missing."""
    draw = random.Random(6)
    plugs = [(house, plug // 2, plug % 2) for house in (1, 2) for plug in range(3)]
    work = dict.fromkeys(plugs, 5.0)
    missing: dict[Plug, int] = dict.fromkeys(plugs, 0)
    readings_ = []
    for second in range(BEGIN, BEGIN + 60 * 3600, 2400):
        for number, plug in enumerate(plugs):
            load = draw.choice([0.0, 2.5, 40.0, 40.5, 80.0, 200.5])
            work[plug] += load * 2400 / 3.6e6
            missing[plug] = 4 if draw.random() < 0.05 else missing[plug] - 1
            at = second + number * 3
            if missing[plug] <= 0:
                for later in range(0, draw.choice([60, 120]), 30):
                    readings_.append((at + later, load, 1, plug))
            if draw.random() < 0.7:
                readings_.append((at + 150, round(work[plug], 4), 0, plug))
    return sorted(readings_, key=lambda reading: reading[0])


def lines(readings_: list[tuple[int, float, int, Plug]]) -> list[str]:
    return [
        f"{number},{at},{value},{kind},{plug},{household},{house}"
        for number, (at, value, kind, (house, household, plug)) in enumerate(readings_)
    ]


def complete_loads(
    readings_: list[tuple[int, float, int, Plug]],
) -> tuple[list[tuple[int, float, Plug]], list[Row]]:
    """Return all loads, and rows of those that were derived."""
    loads, made = [], []
    since: dict[Plug, dict[str, float]] = {}
    for at, value, kind, plug in readings_:
        trace = since.get(plug)
        if kind == 1:
            loads.append((at, value, plug))
            if trace:
                span = min(at - trace["last"], 60)
                trace["seconds"] += span
                trace["used"] += span * value
                trace["last"] = at
            continue
        if trace:
            uncovered = at - trace["at"] - trace["seconds"]
            left = (value - trace["work"]) * 3.6e6 - trace["used"]
            if uncovered > 60 and left > 0:
                load = round(left / uncovered, 3)
                loads.append((at, load, plug))
                made.append({**plug_columns(plug), "load": load})
            if uncovered <= 60 and not trace["seconds"]:
                continue
        since[plug] = {"work": value, "at": at, "last": at, "seconds": 0, "used": 0}
    return loads, made


def plug_columns(plug: Plug) -> Row:
    return dict(zip(("house", "household", "plug"), plug, strict=True))


def instant(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def expected_predictions(loads: list[tuple[int, float, Plug]], minutes: int) -> tuple[list[Row], list[Row]]:
    size = minutes * 60
    slices: dict[tuple[Plug, int], list[float]] = defaultdict(list)
    for at, load, plug in loads:
        slices[plug, at // size].append(load)
    average = {key: sum(values) / len(values) for key, values in slices.items()}
    plugs, houses = [], defaultdict(float)
    for (plug, number), now in average.items():
        then = number + 2
        days = [average.get((plug, then - day * 1440 // minutes)) for day in range(1, 4)]
        earlier = [one for one in days if one is not None]
        load = (now + median(earlier)) / 2 if earlier else now
        plugs.append({**plug_columns(plug), "minutes": minutes, "start": instant(then * size), "load": load})
        houses[plug[0], then] += load
    sums = [
        {"house": house, "minutes": minutes, "start": instant(then * size), "load": load}
        for (house, then), load in houses.items()
    ]
    return plugs, sums


def expected_outliers(loads: list[tuple[int, float, Plug]], size: int, every: int, name: str) -> list[Row]:
    rows: list[Row] = []
    last_share: dict[int, Any] = {}
    end = BEGIN // every * every
    while end < BEGIN + 90 * 3600:
        end += every
        inside = [(load, plug) for at, load, plug in loads if end - size <= at < end]
        if not inside:
            continue
        of_all = median(load for load, _ in inside)
        by_plug: dict[Plug, list[float]] = defaultdict(list)
        for load, plug in inside:
            by_plug[plug].append(load)
        for house in (1, 2):
            above = [median(values) > of_all for plug, values in by_plug.items() if plug[0] == house]
            if above and last_share.get(house) != (share := sum(above) / len(above)):
                last_share[house] = share
                rows.append({"house": house, "window_end": instant(end), "share": share, "window": name})
    return rows


def test_smart_plug_queries_match_plain_python_three_ways(tmp_path: Path) -> None:
    readings_ = readings()
    log = lines(readings_)
    rows = run_three_ways(
        lambda results: build(ListLog(log), results), tmp_path, units=len(log) // 5, most_slices=2
    )
    loads, made = complete_loads(readings_)
    assert_same_rows(rows["completed"], made)
    assert len(made) > 20
    plugs, houses = [], []
    for minutes in (1, 5, 15, 60, 120):
        of_plugs, of_houses = expected_predictions(loads, minutes)
        plugs += of_plugs
        houses += of_houses
    assert_same_rows(rows["plugs"], plugs)
    assert_same_rows(rows["houses"], houses)
    outliers = expected_outliers(loads, 3600, 300, "1h") + expected_outliers(loads, 86_400, 3600, "24h")
    assert_same_rows(rows["outliers"], outliers)
    assert len(outliers) > 50

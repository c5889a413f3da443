"""The five questions about calls against plain Python that compares every two calls."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.demos.calls import build
from penstock.logs.contract import Span
from penstock.testing import ListLog
from tests.demos.kit import assert_same_rows, run_three_ways

pytestmark = pytest.mark.slow

S = 1_000_000


class Call(NamedTuple):
    ts: int
    partition: int
    place: int
    src: str
    dst: str
    start: int
    end: int
    district: int
    lat: float
    lon: float


def log() -> dict[str, list[str]]:
    """Return calls of few callers who call often, sometimes from far away."""
    made = ps.call_records(total=260, rate=2, callers=25, districts=5, impossible=0.1, live=False)
    return {
        part.id: b"".join(chunk.data for chunk in made.read(Span(part.id, 0, part.latest)))
        .decode()
        .splitlines()
        for part in made.partitions({})
    }


def parse_calls(lines: dict[str, list[str]]) -> list[Call]:
    calls = []
    for partition, name in enumerate(sorted(lines)):
        for place, line in enumerate(lines[name]):
            src, dst, start, end, district, lat, lon, ts = line.split(",")
            call = (src, dst, int(start), int(end), int(district), float(lat), float(lon))
            calls.append(Call(int(ts), partition, place, *call))
    return sorted(calls)


def instant(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def windows(times: list[tuple[int, Any]], size: int, every: int) -> dict[int, list[Any]]:
    """Return the values of each window, by its start."""
    found: dict[int, list[Any]] = defaultdict(list)
    for time, value in times:
        start = time // every * every
        while start > time - size:
            found[start].append(value)
            start -= every
    return found


def kilometres(one: Call, other: Call) -> float:
    """Return the distance of two calls, by the law of cosines for the sphere's chord."""

    def vector(call: Call) -> tuple[float, float, float]:
        lat, lon = math.radians(call.lat), math.radians(call.lon)
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    return 2 * 6371 * math.asin(math.dist(vector(one), vector(other)) / 2)


def averages(calls: list[Call], by: str, size: int, every: int) -> list[dict[str, Any]]:
    rows = []
    for key in {getattr(call, by) for call in calls}:
        mine = [(call.ts, (call.end - call.start) / S) for call in calls if getattr(call, by) == key]
        for start, seconds in windows(mine, size, every).items():
            rows.append(
                {
                    "window_start": instant(start),
                    "window_end": instant(start + size),
                    by: key,
                    "calls": len(seconds),
                    "avg_seconds": sum(seconds) / len(seconds),
                }
            )
    return rows


def test_call_queries_match_plain_python_three_ways(tmp_path: Path) -> None:
    lines = log()
    rows = run_three_ways(
        lambda results: build(ListLog(lines), results, long_seconds=200, near="20s"), tmp_path, units=30
    )
    calls = parse_calls(lines)
    assert_same_rows(rows["districts"], averages(calls, "district", 60 * S, 10 * S))
    hours = averages(calls, "src", 3600 * S, 60 * S)
    assert_same_rows(rows["heavy"], [row for row in hours if row["avg_seconds"] > 200])

    alarms: list[tuple[int, tuple[str, str]]] = []
    far, last = [], {}
    for call in calls:
        before, last[call.src] = last.get(call.src), call
        if before is None:
            continue
        passed = max(0, call.start - before.end) / S / 3600
        if (km := kilometres(before, call)) > 50 + 900 * passed:
            far.append(
                {
                    "src": call.src,
                    "first": instant(before.start),
                    "second": instant(call.start),
                    "km": km,
                    "hours": passed,
                }
            )
            alarms.append((call.ts, (call.src, "too far")))
    found = [{**row, "km": round(row["km"], 3)} for row in rows["too_far"]]
    assert_same_rows(found, [{**row, "km": round(row["km"], 3)} for row in far])

    overlapping = []
    for one, other in combinations(calls, 2):
        if other.ts - one.ts > 20 * S or other.start >= one.end or one.start >= other.end:
            continue
        theirs = {other.src, other.dst}
        number = one.src if one.src in theirs else one.dst if one.dst in theirs else None
        if number:
            overlapping.append(
                {
                    "src": one.src,
                    "dst": one.dst,
                    "start": instant(one.start),
                    "src_right": other.src,
                    "dst_right": other.dst,
                    "start_right": instant(other.start),
                    "number": number,
                }
            )
            alarms.append((other.ts, (number, "overlapping")))
    assert_same_rows(rows["overlapping"], overlapping)

    fraud = []
    for number in {number for _, (number, _) in alarms}:
        mine = [(time, kind) for time, (one, kind) in alarms if one == number]
        for start, kinds in windows(mine, 3600 * S, 600 * S).items():
            if len(kinds) >= 2:
                span = {"window_start": instant(start), "window_end": instant(start + 3600 * S)}
                fraud.append({**span, "number": number, "alarms": len(kinds), "kinds": len(set(kinds))})
    assert_same_rows(rows["fraud"], fraud)
    assert all(len(rows[name]) > 10 for name in ("heavy", "districts", "too_far", "overlapping", "fraud"))

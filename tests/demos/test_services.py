"""Requests served in time, and cards in two places, against plain Python."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.demos import cards, sla
from penstock.testing import ListLog
from tests.demos.kit import Row, assert_same_rows, run_three_ways

BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lines(events: list[Row]) -> list[str]:
    return [json.dumps(event | {"time": event["time"].isoformat()}) for event in events]


def service_events() -> list[Row]:
    """Return requests of two services: in time, just in time, too late, never served; some end without a start."""
    draw, found = random.Random(1), []
    for request in range(150):
        service, start = draw.choice(["pay", "search"]), BEGIN + timedelta(milliseconds=370 * request)
        found.append({"time": start, "service": service, "request": request, "kind": "start"})
        seconds = draw.choice([0.25, 1, 1.5, 2, 2.001, 5, None])
        if seconds is not None:
            end = start + timedelta(seconds=seconds)
            found.append({"time": end, "service": service, "request": request, "kind": "end"})
        if draw.random() < 0.1:
            found.append({"time": start, "service": service, "request": 1_000 + request, "kind": "end"})
    return sorted(found, key=lambda step: step["time"])


@pytest.mark.slow
def test_requests_served_in_time_three_ways(tmp_path: Path) -> None:
    events = service_events()
    halves = {"p0": lines(events[::2]), "p1": lines(events[1::2])}
    rows = run_three_ways(lambda results: sla.build(ListLog(halves), results), tmp_path, units=20)
    missed: list[Row] = []
    windows: dict[tuple[datetime, str], list[float | None]] = defaultdict(list)
    for event in events:
        if event["kind"] == "start":
            request = {"service": event["service"], "request": event["request"]}
            ends = [
                (one["time"] - event["time"]).total_seconds()
                for one in events
                if one["kind"] == "end" and one["request"] == event["request"]
            ]
            took = ends[0] if ends and ends[0] <= 2 else None
            if took is None:
                missed.append({**request, "start_time": event["time"]})
            decided = event["time"] + timedelta(seconds=2 if took is None else took)
            start = EPOCH + (decided - EPOCH) // timedelta(seconds=10) * timedelta(seconds=10)
            windows[start, event["service"]].append(took)
    assert_same_rows(rows["missed"], missed)
    expected = []
    for (start, service), taken in windows.items():
        in_time = [seconds for seconds in taken if seconds is not None]
        expected.append(
            {
                "window_start": start,
                "window_end": start + timedelta(seconds=10),
                "service": service,
                "requests": len(taken),
                "in_time": len(in_time),
                "avg_seconds": sum(in_time) / len(in_time) if in_time else None,
            }
        )
    assert_same_rows(rows["services"], expected)
    assert 30 < len(missed) < 120


def distance(one: Row, other: Row) -> float:
    def vector(place: Row) -> tuple[float, float, float]:
        lat, lon = math.radians(place["lat"]), math.radians(place["lon"])
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    return 2 * 6371 * math.asin(math.dist(vector(one), vector(other)) / 2)


def test_cards_in_two_places_three_ways(tmp_path: Path) -> None:
    draw, at, events = random.Random(2), BEGIN, []
    cities = [(40.4, -3.7), (41.4, 2.2), (37.4, -6.0), (40.5, -3.6)]
    for _ in range(250):
        at += timedelta(minutes=draw.choice([0, 1, 5, 30]))
        lat, lon = draw.choice(cities)
        card, present = f"c{draw.randrange(8)}", draw.random() < 0.8
        events.append({"time": at, "card": card, "lat": lat, "lon": lon, "amount": 1.5, "present": present})
    rows = run_three_ways(lambda results: cards.build(ListLog(lines(events)), results), tmp_path, units=25)
    last: dict[str, Row] = {}
    expected: list[dict[str, Any]] = []
    for event in events:
        if not event["present"]:
            continue
        before, last[event["card"]] = last.get(event["card"]), event
        if before is None or event["time"] - before["time"] > timedelta(hours=6):
            continue
        hours, km = (event["time"] - before["time"]).total_seconds() / 3600, distance(before, event)
        if km > 20 + 900 * hours:
            row = {"card": event["card"], "km": round(km, 3)}
            for step, use in (("here", before), ("there", event)):
                row |= {f"{step}_{name}": use[name] for name in ("time", "lat", "lon", "amount")}
            expected.append(row)
    assert_same_rows([row | {"km": round(row["km"], 3)} for row in rows["suspicious"]], expected)
    assert len(expected) > 20

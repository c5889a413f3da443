"""The taxi challenge against plain Python that recounts everything at every trip."""

from __future__ import annotations

import gzip
import random
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.demos.taxi import build
from penstock.testing import ListLog
from tests.demos.kit import data, run_three_ways

pytestmark = pytest.mark.slow

FORMAT = "%Y-%m-%d %H:%M:%S"
BEGIN = datetime(2013, 1, 1)


def lines(count: int, seed: int = 4) -> list[str]:
    """Return trips of few taxis between few cells over two hours, some without a position and some beyond the grid."""
    draw, at, made = random.Random(seed), BEGIN, []
    for _ in range(count):
        at += timedelta(seconds=draw.choice([0, 0, 0, 30, 60, 60, 120]))
        pickup_at = at - timedelta(seconds=draw.randrange(0, 1500))
        lon, lat, to_lon, to_lat = (
            base + 0.002 * draw.randrange(4) for base in (-73.98, 40.75, -73.98, 40.75)
        )
        if draw.random() < 0.05:
            lon = lat = 0.0
        if draw.random() < 0.05:
            to_lon = -80.0
        fare, tip = draw.choice([3.5, 6, 8.5, 12]), draw.choice([0, 0, 1, 2.25])
        made.append(
            f"T{draw.randrange(12)},L,{pickup_at:{FORMAT}},{at:{FORMAT}},60,0.44,{lon:.6f},{lat:.6f},"
            f"{to_lon:.6f},{to_lat:.6f},CSH,{fare:.2f},0.50,0.50,{tip:.2f},0.00,4.50"
        )
    return made


def cell(lon: str, lat: str, metres: int) -> str | None:
    """East and south of the corner half a cell of 500 m north-west of the first cell's middle."""
    east, south, most = 0.005986 * metres / 500, 0.004491556 * metres / 500, 150_000 // metres
    x = int((float(lon) - (-74.913585 - 0.005986 / 2)) // east) + 1
    y = int(((41.474937 + 0.004491556 / 2) - float(lat)) // south) + 1
    return f"{x}.{y}" if 1 <= x <= most and 1 <= y <= most else None


class Trip(NamedTuple):
    number: int
    at: datetime
    taxi: str
    route: str
    pickup_at: str
    ended: str
    earned: float


def expected_lines(trips: list[str]) -> tuple[list[str], list[str], dict[str, int]]:
    """Return lines about routes, lines about areas, and how many trips were dropped for which reason."""
    seen: list[Trip] = []
    number = 0
    routes: list[str] = []
    areas: list[str] = []
    last_routes: list[str] = []
    last_areas: list[str] = []
    out: Counter[str] = Counter()
    for line in trips:
        trip = line.split(",")
        places = trip[6:10]
        if any(float(place) == 0 for place in places):
            out["no place"] += 1
            continue
        if not cell(*places[:2], 500) or not cell(*places[2:], 500):
            out["outside the grid"] += 1
            continue
        now = datetime.strptime(trip[3], FORMAT)
        route = f"{cell(*places[:2], 500)},{cell(*places[2:], 500)}"
        ends = (str(cell(*places[:2], 250)), str(cell(*places[2:], 250)))
        seen = [one for one in seen if one.at > now - timedelta(minutes=30)]
        number += 1
        seen.append(Trip(number, now, trip[0], route, *ends, float(trip[11]) + float(trip[14])))

        counts: Counter[str] = Counter()
        last: dict[str, int] = {}
        for one in seen:
            counts[one.route] += 1
            last[one.route] = one.number
        best = sorted(counts, key=lambda route: (-counts[route], -last[route]))[:10]
        if best != last_routes:
            last_routes = best
            routes.append(",".join([*trip[2:4], *best, *["NULL,NULL"] * (10 - len(best)), "0.0"]))

        fares: dict[str, list[float]] = defaultdict(list)
        taxis: dict[str, str] = {}
        touched: dict[str, int] = {}
        for one in seen:
            touched[one.pickup_at] = touched[one.ended] = one.number
            taxis[one.taxi] = one.ended
            if one.at > now - timedelta(minutes=15):
                fares[one.pickup_at].append(one.earned)
        free = Counter(taxis.values())
        ranked = []
        for area, values in fares.items():
            if free[area]:
                values.sort()
                middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
                ranked.append((-middle / free[area], -touched[area], area, free[area], middle))
        ranked.sort()
        names = [area for _, _, area, _, _ in ranked[:10]]
        if names != last_areas:
            last_areas = names
            fields = [
                f"{area},{count},{mid:.2f},{-profit:.2f}" for profit, _, area, count, mid in ranked[:10]
            ]
            areas.append(
                ",".join([*trip[2:4], *fields, *["NULL,NULL,NULL,NULL"] * (10 - len(fields)), "0.0"])
            )
    return routes, areas, dict(out)


def standing() -> float:
    return 0.0


def test_routes_and_areas_match_plain_python_three_ways(tmp_path: Path) -> None:
    trips = lines(400)
    log = ListLog(trips)
    rows = run_three_ways(lambda results: build(log, results, clock=standing), tmp_path, units=37)
    routes, areas, out = expected_lines(trips)
    assert [row["line"] for row in rows["routes"]] == routes
    assert [row["line"] for row in rows["areas"]] == areas
    assert {row["why"]: row["trips"] for row in rows["left_out"]} == out
    assert len(routes) > 50
    assert len(areas) > 50
    assert all(out.values())


@pytest.mark.may_skip("the real data")
def test_the_first_trips_of_2013(tmp_path: Path) -> None:
    file = data("taxi_trips_2013-01-01.csv.gz")
    trips = gzip.decompress(file.read_bytes()).decode().splitlines()[:600]
    rows = run_three_ways(lambda results: build(ListLog(trips), results, clock=standing), tmp_path, units=90)
    routes, areas, out = expected_lines(trips)
    assert [row["line"] for row in rows["routes"]] == routes
    assert [row["line"] for row in rows["areas"]] == areas
    assert {row["why"]: row["trips"] for row in rows["left_out"]} == out

"""Credit cards: was a card used in two places too far apart for the time between?

    penstock demo cards

The input is payments. Output:
- `suspicious`: two consecutive payments of one card with its owner present, at most `within` apart, from places too
  far from each other. Payments without the owner (by telephone, in web shops) do not count.
"""

from __future__ import annotations

import json
from pathlib import Path

import penstock as ps
from penstock import col
from penstock.demos.distance import kilometres
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.logs import Log, Profile

COLUMNS = {
    "time": ps.Datetime("us", "UTC"),
    "card": ps.String(),
    "lat": ps.Float64(),
    "lon": ps.Float64(),
    "amount": ps.Float64(),
    "present": ps.Boolean(),
}
#: the fastest travel, and how inexact a place is
FASTEST_KMH, EXACT_KM = 900.0, 20.0


def build(log: Log, results: str | Path = "out/cards", *, lateness: str = "2s", within: str = "6h") -> ps.App:
    """The application over a log of JSON lines."""
    payments = ps.stream("payments", log, ps.json_lines(COLUMNS), time="time", lateness=lateness)
    before = {name: ps.prev("here", name) for name in ("time", "lat", "lon")}
    hours = (col("time") - before["time"]).dt.total_microseconds() / 3.6e9
    km = kilometres(before["lat"], before["lon"], col("lat"), col("lon"))
    in_a_row = (
        payments.filter(col("present"))
        .key_by("card")
        .pattern(
            ps.step("here", ps.lit(True)),
            ps.step("there", km > EXACT_KM + FASTEST_KMH * hours),
            within=within,
            matching="contiguous",
            columns=["lat", "lon", "amount"],
        )
    )
    places = (col(f"{step}_{name}") for step in ("here", "there") for name in ("lat", "lon"))
    suspicious = in_a_row.map(km=kilometres(*places))
    return ps.app("cards", ps.output("suspicious", suspicious, ps.jsonl(Path(results) / "suspicious")))


def payment(draw: Draws, number: int, micros: int) -> str:
    """A payment near the card's home; one in 300 somewhere else in the country."""
    card = draw.low(20_000)
    home = Draws(card if draw.below(300) else number)
    lat, lon = (low + home.below(500) / 100 + draw.below(100) / 1000 for low in (38, -8))
    place = {"lat": round(lat, 4), "lon": round(lon, 4), "amount": draw.low(20_000) / 100}
    return json.dumps(
        {"time": format_time(micros), "card": f"c{card}", **place, "present": draw.below(5) > 0}
    )


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return generate_log(payment, rate=rate or 1_000, profile=profile)


app = build(generated())

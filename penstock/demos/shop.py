"""A web shop's three jobs on one stream (ELF): promotion, bundles, and a prediction that reads the other two.

    penstock demo shop
    penstock ask micro_promotion --state .penstock/demo-shop      while it runs, or after

The input is clicks and purchases as JSON lines. The jobs are those of `shop.sql`, here on a generated stream.
"""

from __future__ import annotations

import json
from pathlib import Path

import penstock as ps
from penstock.catalogue import JobsApp
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.logs import Log, Profile

COLUMNS = {
    "at": ps.Datetime("us", "UTC"),
    **dict.fromkeys(["user", "product", "store", "action"], ps.String()),
    "n": ps.Int64(),
}
PRODUCTS = ("Angry Birds", "Chess", "Go", "Tetris", "Pong", "Dune", "Emma", "Ulysses")


def build(log: Log, results: str | Path = "", *, lateness: str = "2s") -> JobsApp:
    """The jobs over a log of events. Their results are in the state directory, not in `results`."""
    sql = Path(__file__).with_suffix(".sql").read_text()
    events = ps.stream("shop", log, ps.json_lines(COLUMNS), time="at", lateness=lateness)
    return ps.jobs_app("shop", sql[sql.index("-- micro-promotion") :], streams={"shop": events})


def event(draw: Draws, number: int, micros: int) -> str:
    """A click, or one time in ten a purchase: games (the first five products) more often than books."""
    product = draw.low(len(PRODUCTS))
    row = {"at": format_time(micros), "user": f"u{draw.low(500)}", "product": PRODUCTS[product]}
    row |= {"store": "games" if product < 5 else "books", "action": "click" if draw.below(10) else "buy"}
    return json.dumps({**row, "n": 1 + draw.below(3)})


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return generate_log(event, rate=rate or 100, profile=profile)


app = build(generated())

"""Service level agreements: was every request served in time?

    penstock demo sla

The input is the starts and ends of requests, as services log them. Outputs:
- `missed`: requests that did not end within `promised` of their start, emitted as soon as that is certain;
- `services`: by service and ten seconds, the number of decided requests, those served in time, and their mean seconds.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.logs import Log, Profile

COLUMNS = {
    "time": ps.Datetime("us", "UTC"),
    "service": ps.String(),
    "request": ps.Int64(),
    "kind": ps.String(),
}
SERVICES = ("pay", "search", "stock", "login")
_AHEAD = 250
"""In the generated log, the number of starts between a request's start and its end."""


def build(log: Log, results: str | Path = "out/sla", *, lateness: str = "2s", promised: str = "2s") -> ps.App:
    """The application over a log of JSON lines."""
    steps = ps.stream("steps", log, ps.json_lines(COLUMNS), time="time", lateness=lateness)
    served = steps.key_by("service", "request").pattern(
        ps.step("start", col("kind") == "start"),
        ps.step("end", col("kind") == "end"),
        within=promised,
        timeouts=True,
        columns=[],
    )
    seconds = (col("end_time") - col("start_time")).dt.total_microseconds() / 1e6
    decided = served.map(seconds=seconds, met=col("matched").cast(pl.Int64))
    services = (
        decided.key_by("service")
        .window("10s")
        .aggregate(ps.count("requests"), ps.sum_("met", "in_time"), ps.avg("seconds"))
    )
    missed = served.filter(~col("matched")).select("service", "request", "start_time")
    return ps.app(
        "sla",
        ps.output("missed", missed, ps.jsonl(Path(results) / "missed")),
        ps.output("services", services, ps.jsonl(Path(results) / "services")),
    )


def step(draw: Draws, number: int, micros: int) -> str:
    """Starts and ends alternate, an end some time after its start; one request in 50 does not end."""
    request, odd = divmod(number, 2)
    kind = "start"
    if odd:
        request = max(request - _AHEAD, 0)
        kind = "end" if Draws(request).below(50) else "trouble"
    service = SERVICES[request % len(SERVICES)]
    return json.dumps({"time": format_time(micros), "service": service, "request": request, "kind": kind})


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return generate_log(step, rate=rate or 1_000, profile=profile)


app = build(generated())

"""The streaming workloads of HiBench, with which UPM-CEP was measured.

    penstock demo hibench

The input is lines of an access log. Outputs:
- `identity`: the requests as they are;
- `repartition`: the same, sent round-robin to all tasks on the way;
- `wordcount`: the number of requests of a page so far, at every request;
- `fixed_window`: the requests of each address in 30 seconds, and the times of the first and the last.
"""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock.demos import clickstream
from penstock.logs import Log, Profile


def build(
    log: Log,
    results: str | Path = "out/hibench",
    *,
    cookie: str | None = "session",
    lateness: str = "2s",
) -> ps.App:
    """The application over a log of combined lines. `cookie`: the lines have a field of cookies."""
    decoder = ps.combined_log(extra=[ps.Cookie(cookie)] if cookie else [])
    clicks = ps.stream("clicks", log, decoder, time="time", lateness=lateness)
    visits = clicks.select("time", "host", "path", "status")
    fixed = visits.key_by("host").window("30s")
    outputs = {
        "identity": visits,
        "repartition": visits.rebalance().select("time", "host", "path", "status"),
        "wordcount": visits.key_by("path").running().emit("change").count(),
        "fixed_window": fixed.aggregate(ps.count("visits"), ps.earliest("first"), ps.latest("last")),
    }
    return ps.app(
        "hibench", *(ps.output(name, rows, ps.jsonl(Path(results) / name)) for name, rows in outputs.items())
    )


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return clickstream.generated(rate or 5_000, profile)


app = build(generated())

"""The streaming part of HiBench, as UPM-CEP was measured by it.

    penstock demo hibench

Receives lines of an access log; hands four outputs:
- `identity`: the requests as they are;
- `repartition`: the same, dealt out evenly over all tasks on the way;
- `wordcount`: how often a page has been asked for up to now, at every request;
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
    """The application over a log of combined lines. `cookie`: there is a field of cookies after the agent."""
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

"""The demo of the dashboard: the visitors' paths, and two jobs in SQL that can be altered.

    penstock demo                        with a story: a change, a spike, a crash
    penstock serve penstock/demos/show.py by itself; the dashboard's address is in the first line

The input is lines of an access log. Outputs: the most frequent sequences of three pages, popular pages, and errors.
"""

from __future__ import annotations

import penstock as ps
from penstock import col
from penstock.catalogue import JobsApp
from penstock.demos.clickstream import ASSETS
from penstock.logs import Log

SQL = """
CREATE JOB popular AS SELECT path, COUNT(*) AS n FROM clicks
    GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 5 SECONDS;
CREATE JOB errors AS SELECT status, COUNT(*) AS n FROM clicks WHERE status >= 400
    GROUP BY status WINDOWING 5 SECONDS
"""


def build(log: Log, *, lateness: str = "2s") -> JobsApp:
    """The jobs over a log of combined lines with a session cookie."""
    decoder = ps.combined_log(extra=[ps.Cookie("session")])
    clicks = ps.stream("clicks", log, decoder, time="time", lateness=lateness)
    pages = clicks.select(visitor=col("session"), page=col("path")).filter(
        col("visitor").is_not_null() & ~col("page").str.contains(ASSETS)
    )
    walks = pages.key_by("visitor").last(3, "page").select(pattern=col("page").list.join(" > "))
    patterns = walks.key_by("pattern").running("5s").count().top(10)
    return ps.jobs_app("show", SQL, streams={"clicks": clicks}, queries={"patterns": patterns})


def generated(
    rate: float = 10_000, spike: float = 1.0, at_seconds: float = 25.0, for_seconds: float = 40.0
) -> Log:
    """A generated shop; the rate is multiplied by `spike` for `for_seconds` from `at_seconds` on."""
    return ps.generated(
        rate=rate,
        profile="spike" if spike != 1 else "constant",
        spike_factor=spike,
        at_seconds=at_seconds,
        for_seconds=for_seconds,
    )


app = build(generated())

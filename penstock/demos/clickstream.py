"""The click stream: which three pages do visitors look at in a row, and which pages are popular now?

    penstock demo clickstream                 on a generated web shop
    penstock demo --log '/var/log/nginx/*.log' on your own access logs

The input is lines of an access log. Outputs, as JSON lines:
- `patterns`: the most frequent sequences of pages that a visitor saw, over all events so far, on change;
- `pages`: the most requested pages of each window of 30 seconds;
- `sites` and `segments`: the same by the site that visitors came from, and by their kind of client.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import penstock as ps
from penstock import col
from penstock.logs import Log, Profile

#: what a browser loads for a page: nobody "visits" these
ASSETS = r"(?i)\.(css|js|png|jpe?g|gif|svg|ico|woff2?|ttf|map)$"
#: kinds of clients by their user agents; the first that fits
SEGMENTS = {"robot": "(?i)bot|crawl|spider", "phone": "Mobile|Android|iPhone", "computer": "Mozilla|Opera"}


def segment() -> pl.Expr:
    """The kind of a visitor's client."""
    found: pl.Expr = ps.lit("other")
    for name, agents in reversed(SEGMENTS.items()):
        found = pl.when(col("agent").str.contains(agents)).then(ps.lit(name)).otherwise(found)
    return found


def build(
    log: Log,
    results: str | Path = "out/clickstream",
    *,
    cookie: str | None = "session",
    lateness: str = "2s",
    steps: int = 3,
    best: int = 10,
) -> ps.App:
    """The application over a log of combined lines.

    `cookie` is the name of the session cookie in the field after the agent. Without one (None) host and agent identify
    a visitor. `steps` pages make a pattern; the `best` most frequent ones are emitted.
    """
    decoder = ps.combined_log(extra=[ps.Cookie(cookie)] if cookie else [])
    requests = ps.stream("clicks", log, decoder, time="time", lateness=lateness)
    visitor = col(cookie) if cookie else col("host") + " " + col("agent").fill_null("-")

    came_from = col("referer").str.extract(r"^https?://([^/:]+)").fill_null("none")
    page = col("path").str.split("?").list.first()
    clicks = requests.select(visitor=visitor, page=page, site=came_from, segment=segment()).filter(
        col("visitor").is_not_null() & col("page").is_not_null() & ~col("page").str.contains(ASSETS)
    )

    # the last pages of a visitor at each click, their counts, and the best of them
    walks = clicks.key_by("visitor").last(steps, "page")
    patterns = walks.select(pattern=col("page").list.join(" > "))
    top_patterns = patterns.key_by("pattern").running("5s").count().top(best)

    # the most popular pages of every half minute
    top_pages = clicks.key_by("page").window("30s").count().top(best)

    top_of_sites = clicks.key_by("site", "page").window("30s").count().top(best, per="site")
    top_of_segments = clicks.key_by("segment", "page").window("30s").count().top(best, per="segment")

    return ps.app(
        "clickstream",
        ps.output("patterns", top_patterns, ps.jsonl(Path(results) / "patterns")),
        ps.output("pages", top_pages, ps.jsonl(Path(results) / "pages")),
        ps.output("sites", top_of_sites, ps.jsonl(Path(results) / "sites")),
        ps.output("segments", top_of_segments, ps.jsonl(Path(results) / "segments")),
    )


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log: a generated web shop."""
    return ps.generated(rate=rate or 20_000, profile=profile)


app = build(generated())

"""A query with windows, and each user's last pages in strict order, ranked: stages on two levels."""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock import col
from penstock.testing.list_log import ListLog
from tests import golden_query as golden


def build(out: Path, log: ListLog | None = None) -> ps.App:
    log = log or ListLog(golden.lines())
    events = ps.stream("events", log, golden.decoder(), time="time", lateness=golden.LATENESS)
    paths = events.key_by("user").last(3, "page").map(pattern=col("page").list.join(">"))
    sums = events.key_by("user").window("30s").aggregate(ps.sum_("amount", "sum"), ps.count())
    top = paths.key_by("pattern").running("10s").count().top(3)
    return ps.app(
        "driven",
        ps.output("patterns", paths.select("user", "pattern"), ps.jsonl(out / "patterns")),
        ps.output("top", top, ps.jsonl(out / "top")),
        ps.output("sums", sums, ps.jsonl(out / "sums")),
    )

"""An app whose outputs are jobs: paused, altered from a file, emptied and dropped, with jobs created beside them; and
an app whose file has changed, with state dropped."""

from __future__ import annotations

import penstock as ps
from penstock import col
from tests.golden.given import FromFile, Given

#: an output of the app with another condition after its operator
ALTERED = """
import penstock as ps

log = ps.call_records(
    total=400, callers=20, districts=5, call_seconds=20, rate=4, impossible=0.05, seed=5, live=False
)
calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness="5s", idle_after=None)
rows = calls.key_by("src").last(2, "dst").filter(ps.col("src") {condition} "34650000000")
last = ps.output("last", rows, ps.jsonl("out/last"))
"""


def _altered(condition: str) -> FromFile:
    return FromFile("alter", {"altered.py": ALTERED.format(condition=condition)}, "last", "last")


#: before which epoch; those after the cut are executed by the engine that continues
CHANGES = {
    1: "CREATE STREAM spare FROM generated(total => 10, live => FALSE) FORMAT combined_log EVENT TIME time "
    "LATENESS 2 SECONDS; CREATE JOB beside AS SELECT src, COUNT(*) AS n FROM calls GROUP BY src WINDOWING 35 SECONDS "
    "INTO jsonl('out/beside'); CREATE JOB reads AS SELECT district, MAX(n) AS most FROM districts GROUP BY district "
    "WINDOWING 70 SECONDS INTO jsonl('out/reads')",
    2: "DROP STREAM spare; PAUSE JOB tops; ALTER JOB districts SET RECOVERY gap",
    3: (_altered(">="), "ALTER JOB beside SET WHERE district > 0"),
    4: "PAUSE JOB callers; DROP JOB long; EMPTY JOB busy",
    5: "RESUME JOB tops; PAUSE JOB reads; ALTER JOB districts SET RECOVERY precise",
    7: "RESUME JOB callers; RESUME JOB reads; PAUSE JOB districts",
    8: (
        _altered("<"),
        "DROP JOB beside; RESUME JOB districts; ALTER JOB districts SET RECOVERY DEFAULT",
        "CREATE JOB long AS SELECT src, COUNT(*) AS n FROM calls GROUP BY src WINDOWING 10 SECONDS "
        "INTO jsonl('out/long_again')",
    ),
}


def changed_by_commands(given: Given) -> ps.App:
    """Two outputs that share a stage, one with a stage of its own, one with two, a ranking, and one without state."""
    log = ps.call_records(
        total=400, callers=20, districts=5, call_seconds=20, rate=4, impossible=0.05, seed=5, live=False
    )
    calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness="5s", idle_after=None)
    districts = calls.key_by("district").window("30s", every="10s").count("n")
    rows = {
        "districts": districts,
        "busy": districts.filter(col("n") > 3).select("district", "n"),
        "callers": calls.key_by("src").session("30s").aggregate(ps.count("n"), ps.min_("lat", "lat")),
        "long": calls.key_by("dst").session("6s").count("n").key_by("dst").window("40s").count("n"),
        "tops": calls.key_by("src").running("9s").count("n").top(3),
        "far": calls.filter(col("lat") > 40).select("src", "lat"),
    }
    return ps.app(
        "app-outputs",
        *(given.output(name, one) for name, one in rows.items()),
        ps.output("last", calls.key_by("src").last(2, "dst"), ps.jsonl("out/last")),
    )


def before_the_change(given: Given) -> ps.App:
    """The app until its file was changed."""
    users = given.stream("events").key_by("user")
    rows = {
        "counts": users.window("60s").count("n"),
        "last": users.last(3, "page"),
        "sessions": users.session("5s").count("n"),
    }
    return ps.app("changed-file", *(given.output(name, one) for name, one in rows.items()))


def after_the_change(given: Given) -> ps.App:
    """The same windows; last values that are others, so their state starts empty; a ranking instead of sessions."""
    users = given.stream("events").key_by("user")
    rows = {
        "counts": users.window("60s").count("n"),
        "last": users.last(2, "page", "n"),
        "best": users.running("6s").sum("n", "total").top(2),
    }
    return ps.app("changed-file", *(given.output(name, one) for name, one in rows.items()))

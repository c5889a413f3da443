"""Jobs in SQL: of one template and of plans of their own, reading each other, fed back, paused, altered, dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

import penstock as ps
from penstock.catalogue.jobs_app import JobsApp
from tests.golden.given import BEGIN, Given

#: jobs that are alike but for constants, in every kind of window that such jobs have
TEMPLATES = """
CREATE JOB page_a AS SELECT user, COUNT(*) AS n FROM events WHERE page = '/a' GROUP BY user
    WINDOWING 15 SECONDS INTO jsonl('out/page_a');
CREATE JOB page_b AS SELECT user, COUNT(*) AS n FROM events WHERE page = '/b' GROUP BY user
    WINDOWING 15 SECONDS INTO jsonl('out/page_b');
CREATE JOB page_c AS SELECT user, COUNT(*) AS n FROM events WHERE page = '/c' GROUP BY user
    WINDOWING 40 SECONDS INTO jsonl('out/page_c');
CREATE JOB summed AS SELECT page, SUM(n) AS total, AVG(n) AS mean, MIN(n) AS least, MAX(n) AS most, window_end
    FROM events WHERE n > 0 GROUP BY page WINDOWING 20 SECONDS INTO jsonl('out/summed');
CREATE JOB hopping AS SELECT page, COUNT(*) AS n, MAX(n) AS most FROM events GROUP BY page
    WINDOWING 30 SECONDS EVERY 10 SECONDS INTO jsonl('out/hopping');
CREATE JOB hopping_x AS SELECT page, COUNT(*) AS n, MAX(n) AS most FROM events WHERE tags = 'x' GROUP BY page
    WINDOWING 30 SECONDS EVERY 10 SECONDS INTO jsonl('out/hopping_x');
CREATE JOB gaps AS SELECT user, COUNT(*) AS n, SUM(n) AS total FROM events GROUP BY user
    WINDOWING 15 SECONDS EVERY 20 SECONDS INTO jsonl('out/gaps');
CREATE JOB best AS SELECT page, COUNT(*) AS n FROM events GROUP BY page ORDER BY n DESC LIMIT 2
    WINDOWING 15 SECONDS INTO jsonl('out/best');
CREATE JOB wide AS SELECT page, MEDIAN(amount) AS middle, COUNT(DISTINCT user) AS users, STDDEV(amount) AS spread
    FROM events GROUP BY page WINDOWING 25 SECONDS INTO jsonl('out/wide');
CREATE JOB chosen AS SELECT time, user, n FROM events WHERE n > 4 INTO jsonl('out/chosen')
"""

#: jobs of plans of their own, some of which read others
OWN_PLANS = """
CREATE JOB sessions AS SELECT user, COUNT(*) AS n, SUM(n) AS total, window_end FROM events GROUP BY user
    WINDOWING SESSION 3 SECONDS INTO jsonl('out/sessions'), sqlite('out/rows.db', 'sessions');
CREATE JOB joined AS SELECT e.user, e.n, o.n AS other_n FROM events e
    JOIN other o ON e.user = o.user AND e.page = o.page WITHIN 3 SECONDS INTO jsonl('out/joined');
CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 5 SECONDS
    INTO jsonl('out/counts');
CREATE JOB totals AS SELECT page, SUM(n) AS n, MAX(n) AS most FROM counts GROUP BY page WINDOWING 30 SECONDS
    INTO jsonl('out/totals');
CREATE JOB seen AS SELECT e.time, e.user, c.n FROM events e JOIN LATEST(counts) c ON e.page = c.page
    INTO jsonl('out/seen');
CREATE JOB doubled AS SELECT user, SUM(twice(n)) AS total FROM events GROUP BY user WINDOWING 20 SECONDS
    INTO jsonl('out/doubled');
CREATE JOB lasting AS SELECT user, sum FROM running WHERE sum > 3 INTO jsonl('out/lasting')
"""

FEEDBACK = """
CREATE JOB frequent AS SELECT user, COUNT(*) AS n FROM events GROUP BY user HAVING COUNT(*) > 2
    WINDOWING 5 SECONDS INTO jsonl('out/frequent');
CREATE JOB watched AS SELECT e.user, e.page, f.n FROM events e JOIN LATEST(PREVIOUS(frequent)) f ON e.user = f.user
    INTO jsonl('out/watched');
CREATE JOB through AS SELECT e.user, e.n, e.time FROM events e
    LEFT JOIN LATEST(PREVIOUS(bound, 'most BIGINT')) b ON TRUE WHERE e.n <= COALESCE(b.most, 4)
    INTO jsonl('out/through');
CREATE JOB bound AS SELECT COUNT(*) AS most FROM through WINDOWING 13 SECONDS INTO jsonl('out/bound')
"""

CHANGING = """
CREATE JOB steady AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 20 SECONDS
    INTO jsonl('out/steady');
CREATE JOB paused AS SELECT user, COUNT(*) AS n, SUM(n) AS total FROM events GROUP BY user WINDOWING 120 SECONDS
    INTO jsonl('out/paused');
CREATE JOB paused_sessions AS SELECT user, COUNT(*) AS n FROM events GROUP BY user WINDOWING SESSION 60 SECONDS
    INTO jsonl('out/paused_sessions');
CREATE JOB altered AS SELECT page, COUNT(*) AS n FROM events WHERE n > 0 GROUP BY page WINDOWING 60 SECONDS
    INTO jsonl('out/altered');
CREATE JOB dropped AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 10 SECONDS
    INTO jsonl('out/dropped');
CREATE JOB template AS SELECT user, COUNT(*) AS n FROM events WHERE page = $page GROUP BY user WINDOWING 15 SECONDS
    INTO jsonl('out/template') WITH ($page = '/a');
CREATE JOB rebuilt AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 30 SECONDS
    INTO jsonl('out/rebuilt');
CREATE JOB emptied AS SELECT user, COUNT(*) AS n FROM events GROUP BY user WINDOWING 90 SECONDS
    INTO jsonl('out/emptied');
CREATE JOB failed AS SELECT user, COUNT(*) AS n FROM events WHERE touchy(time) > 0 GROUP BY user
    WINDOWING 90 SECONDS INTO jsonl('out/failed')
"""
#: before which epoch; those after the cut are said to the engine that continues
CHANGES = {
    2: "PAUSE JOB paused; PAUSE JOB paused_sessions",
    3: "ALTER JOB altered SET WHERE n > 1; ALTER JOB template SET $page = '/b'; EMPTY JOB emptied",
    4: "DROP JOB dropped; ALTER JOB rebuilt AS SELECT page, SUM(n) AS total FROM events GROUP BY page "
    "WINDOWING 45 SECONDS REBUILD; CREATE JOB later AS SELECT user, COUNT(*) AS n FROM events GROUP BY user "
    "WINDOWING 60 SECONDS INTO jsonl('out/later')",
    6: "RESUME JOB paused; RESUME JOB paused_sessions; ALTER JOB template SET $page = '/c'; "
    "RESUME JOB failed",
    7: "ALTER JOB altered SET WHERE n > 2; PAUSE JOB later; FLUSH JOB steady",
    8: "RESUME JOB later; CREATE JOB dropped AS SELECT page, COUNT(*) AS n FROM events GROUP BY page "
    "WINDOWING 10 SECONDS INTO jsonl('out/dropped_again')",
}


#: rankings of running totals, whose rows are state
RANKED = """
CREATE JOB best AS SELECT page, COUNT(*) AS n FROM events GROUP BY page ORDER BY n DESC LIMIT 2
    INTO jsonl('out/best');
CREATE JOB paused AS SELECT user, SUM(n) AS total FROM events GROUP BY user ORDER BY total DESC LIMIT 3
    INTO jsonl('out/paused');
CREATE JOB grown AS SELECT user, COUNT(*) AS n FROM events GROUP BY user ORDER BY n LIMIT 1
    INTO jsonl('out/grown');
CREATE JOB emptied AS SELECT page, COUNT(*) AS n FROM events GROUP BY page ORDER BY n DESC LIMIT 3
    INTO jsonl('out/emptied');
CREATE JOB resumed AS SELECT page, MAX(n) AS most FROM events GROUP BY page ORDER BY most DESC LIMIT 2
    INTO jsonl('out/resumed');
CREATE JOB read AS SELECT user, total FROM totals INTO jsonl('out/read');
CREATE JOB flushed AS SELECT user, COUNT(*) AS n FROM events GROUP BY user WINDOWING 100 SECONDS
    INTO jsonl('out/flushed')
"""
RANKED_CHANGES = {
    1: "PAUSE JOB resumed",
    2: "PAUSE JOB paused; EMPTY JOB emptied; ALTER JOB best SET RECOVERY gap",
    3: "RESUME JOB resumed; FLUSH JOB flushed",
    4: "ALTER JOB best SET RECOVERY precise",  # what may lose epochs cannot be compared exactly
    6: "RESUME JOB paused; ALTER JOB grown SET LIMIT 3; FLUSH JOB flushed",
    7: "PAUSE JOB best; EMPTY JOB resumed",
    8: "RESUME JOB best; DROP JOB emptied",
}


def _twice(values: pl.Series) -> pl.Series:
    return values * 2


def _touchy(times: pl.Series) -> pl.Series:
    """Fails in the events of one second, which an epoch before the cut has."""
    if times.is_between(BEGIN + timedelta(seconds=12), BEGIN + timedelta(seconds=13)).any():
        raise ValueError("not at this time")
    return pl.repeat(1, len(times), dtype=pl.Int64, eager=True)


FUNCTIONS: dict[str, Any] = {"twice": lambda n: n.map_batches(_twice, return_dtype=pl.Int64)}
TOUCHY: dict[str, Any] = {"touchy": lambda time: time.map_batches(_touchy, return_dtype=pl.Int64)}


#: a stream that SQL creates, which nobody has to be given
ALL_IN_SQL = """
CREATE STREAM clicks FROM generated(total => 400, live => FALSE, rate => 10, users => 7, pages => 5, seed => 3)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 2 SECONDS;
CREATE JOB hits AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 9 SECONDS
    INTO jsonl('out/hits');
CREATE JOB visits AS SELECT host, COUNT(*) AS n FROM clicks GROUP BY host WINDOWING SESSION 1 SECONDS
    INTO jsonl('out/visits')
"""


def all_in_sql(given: Given) -> JobsApp:
    """Jobs over a stream that is in the commands."""
    return ps.jobs_app("all-in-sql", ALL_IN_SQL)


def templates(given: Given) -> JobsApp:
    """Jobs that share one plan."""
    return ps.jobs_app("templates", TEMPLATES, streams={"events": given.stream("events")})


def own_plans(given: Given) -> JobsApp:
    """Jobs with operators of their own."""
    events, other = given.stream("events"), given.stream("other")
    running = events.key_by("user").running("8s").sum("n", "sum")
    return ps.jobs_app(
        "own-plans",
        OWN_PLANS,
        streams={"events": events, "other": other},
        queries={"running": running},
        functions=FUNCTIONS,
    )


def feedback(given: Given) -> JobsApp:
    """Jobs that read what jobs emitted an epoch before: their rows depend on where epochs are cut."""
    return ps.jobs_app("feedback", FEEDBACK, streams={"events": given.stream("events")})


def changing(given: Given) -> JobsApp:
    """Jobs that come, change, rest and go."""
    return ps.jobs_app("changing", CHANGING, streams={"events": given.stream("events")}, functions=TOUCHY)


def ranked(given: Given) -> JobsApp:
    """Jobs that rank running totals, and one that reads a ranking that Python gives."""
    events = given.stream("events")
    totals = events.key_by("user").running("7s").sum("n", "total").top(2)
    return ps.jobs_app("ranked", RANKED, streams={"events": events}, queries={"totals": totals})

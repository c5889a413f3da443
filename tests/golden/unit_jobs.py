"""The jobs that the engines of an HA unit run, which commands change. They read the events of `unit_app`."""

from __future__ import annotations

import os
from pathlib import Path

import penstock as ps
from penstock.catalogue.jobs_app import JobsApp
from penstock.testing import ListLog
from tests.golden.given import COLUMNS, Given
from tests.golden.unit_app import FOLDER, Growing

NAME = "golden-jobs"
SQL = """
CREATE JOB steady AS SELECT user, COUNT(*) AS n, SUM(n) AS total FROM events GROUP BY user WINDOWING 20 SECONDS
    INTO jsonl('out/steady'), sqlite('out/rows.db', 'steady');
CREATE JOB sessions AS SELECT user, COUNT(*) AS n, window_end FROM events GROUP BY user WINDOWING SESSION 3 SECONDS
    INTO jsonl('out/sessions');
CREATE JOB paused AS SELECT user, COUNT(*) AS n, SUM(n) AS total FROM events GROUP BY user WINDOWING 120 SECONDS
    INTO jsonl('out/paused');
CREATE JOB altered AS SELECT page, COUNT(*) AS n FROM events WHERE n > 0 GROUP BY page WINDOWING 60 SECONDS
    INTO jsonl('out/altered');
CREATE JOB dropped AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 10 SECONDS
    INTO jsonl('out/dropped');
CREATE JOB template AS SELECT user, COUNT(*) AS n FROM events WHERE page = $page GROUP BY user WINDOWING 15 SECONDS
    INTO jsonl('out/template') WITH ($page = '/a')
"""
#: by lines of each partition: what is executed when so many have been read; after the cut by whoever continues
CHANGES = {
    18: "PAUSE JOB paused; CREATE JOB later AS SELECT page, COUNT(*) AS n FROM events GROUP BY page "
    "WINDOWING 60 SECONDS INTO jsonl('out/later')",
    40: "ALTER JOB altered SET WHERE n > 1; DROP JOB dropped; ALTER JOB template SET $page = '/b'; "
    "CREATE JOB joined AS SELECT e.user, e.page, s.n FROM events e JOIN LATEST(sessions) s ON e.user = s.user "
    "INTO jsonl('out/joined')",
    50: "PAUSE JOB later",
    70: "RESUME JOB paused; RESUME JOB later; ALTER JOB template SET $page = '/c'",
    85: "ALTER JOB altered SET WHERE n > 2; DROP JOB joined; "
    "CREATE JOB dropped AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 10 SECONDS "
    "INTO jsonl('out/dropped_again')",
}


def over(log: ListLog) -> JobsApp:
    """The jobs to start with."""
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    events = ps.stream("events", log, decoder, time="time", lateness="4s", idle_after=None)
    return ps.jobs_app(NAME, SQL, streams={"events": events})


def build(given: Given) -> JobsApp:
    """The same over all events at once."""
    return over(ListLog(given.lines["events"]))


if FOLDER in os.environ:
    app = over(Growing(Path(os.environ[FOLDER]), "events"))

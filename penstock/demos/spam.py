"""Accounts that write most about a topic (ELF), in a job that is altered while it runs:

    penstock demo spam
    penstock jobs alter campaign "SET WHERE text LIKE '%win%' AND followers < 20" --state .penstock/demo-spam

The input is posts as JSON lines. The job is that of `spam.sql`, here on a generated stream with a campaign in it.
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
    "account": ps.String(),
    "text": ps.String(),
    "followers": ps.Int64(),
}
TEXTS = ("hello", "you win!", "to win is fun", "what a day", "nothing new")


def build(log: Log, results: str | Path = "", *, lateness: str = "2s") -> JobsApp:
    """The job over a log of posts. Its results are in the state directory, not in `results`."""
    sql = Path(__file__).with_suffix(".sql").read_text()
    posts = ps.stream("posts", log, ps.json_lines(COLUMNS), time="at", lateness=lateness)
    return ps.jobs_app("spam", sql[sql.index("CREATE JOB") :], streams={"posts": posts})


def post(draw: Draws, number: int, micros: int) -> str:
    """One post in five is a bot's: it has few followers and promises a win."""
    bot = draw.below(5) == 0
    row = {"at": format_time(micros), "account": f"bot{draw.below(9)}" if bot else f"person{draw.low(400)}"}
    row["text"] = TEXTS[1] if bot else TEXTS[draw.below(len(TEXTS))]
    return json.dumps({**row, "followers": draw.below(15) if bot else 30 + draw.low(5_000)})


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return generate_log(post, rate=rate or 500, profile=profile)


app = build(generated())

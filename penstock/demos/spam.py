"""Who writes most about a topic (ELF), and zooming in while it runs:

    penstock demo spam
    penstock jobs alter campaign "SET WHERE text LIKE '%win%' AND followers < 20" --state .penstock/demo-spam

Receives posts as JSON lines. The job is that of `spam.sql`, here on a made-up stream with a campaign in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import penstock as ps
from penstock.catalogue import JobsApp
from penstock.demos.made import Draws, iso, made_log
from penstock.logs import Log, Profile

COLUMNS = {
    "at": ps.Datetime("us", "UTC"),
    "account": ps.String(),
    "text": ps.String(),
    "followers": ps.Int64(),
}
TEXTS = ("hello", "you win!", "to win is fun", "what a day", "nothing new")


def build(log: Log, results: str | Path = "", *, lateness: str = "2s") -> JobsApp:
    """The job over a log of posts. It keeps its answers in the state directory, not in `results`."""
    sql = Path(__file__).with_suffix(".sql").read_text()
    posts = ps.stream("posts", log, ps.json_lines(COLUMNS), time="at", lateness=lateness)
    return ps.jobs_app("spam", sql[sql.index("CREATE JOB") :], streams={"posts": posts})


def post(draw: Draws, number: int, micros: int) -> str:
    """One post in five is of a bot: few followers, and it lets you win."""
    bot = draw.below(5) == 0
    said = {"at": iso(micros), "account": f"bot{draw.below(9)}" if bot else f"person{draw.low(400)}"}
    said["text"] = TEXTS[1] if bot else TEXTS[draw.below(len(TEXTS))]
    return json.dumps({**said, "followers": draw.below(15) if bot else 30 + draw.low(5_000)})


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return made_log(post, rate=rate or 500, profile=profile)


app = build(generated())

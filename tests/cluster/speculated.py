"""An engine on a cluster with Spark's speculative execution, and a slice task whose first attempt is slow: a process of
its own, since Spark is one a process.

Receives a folder and the master's URL; leaves the rows below the folder, a file for every attempt at a slow task, and
what it saw in `seen.json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path

import polars as pl

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.spark.session import session
from penstock.state.directory import StateDirectory
from penstock.testing.list_log import ListLog

SLOW_SECONDS = 30.0
#: of two fast slices and a slow one, the slow one is copied soon
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.locality.wait": "0s",
}
SLICES = 3
KEYS = 24


def lines() -> list[str]:
    return [
        json.dumps({"time": f"2026-03-01T12:{n // 60:02}:{n % 60:02}Z", "user": f"u{n % KEYS}", "n": n})
        for n in range(600)
    ]


class Straggling:
    """Slow for the first attempt at the window that starts at a given minute: a copy of the task is fast."""

    def __init__(self, attempts: Path | None) -> None:
        self.attempts = attempts

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        mine = frame.filter(pl.col("user") == "u0")
        if self.attempts is not None and mine.height:
            for start in mine["window_start"].dt.minute().to_list():
                if start in (2, 5):
                    self._seen(int(start))
        return frame

    def _seen(self, minute: int) -> None:
        assert self.attempts is not None
        (self.attempts / f"{minute}-{uuid.uuid4().hex}").touch()
        try:
            os.close(os.open(self.attempts / f"first-{minute}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        time.sleep(SLOW_SECONDS)
        (self.attempts / f"woke-{minute}").touch()


def build(out: Path, attempts: Path | None) -> ps.App:
    columns = {"time": ps.Datetime("us", "UTC"), "user": ps.String(), "n": ps.Int64()}
    events = ps.stream("events", ListLog(lines()), ps.json_lines(columns), time="time")
    sums = events.key_by("user").window("1m").aggregate(ps.sum_("n", "sum"), ps.count())
    slow = sums.map_batches(Straggling(attempts))
    return ps.app(
        "speculated",
        ps.output("sums", slow, ps.jsonl(out / "sums"), ps.parquet(out / "parquet")),
        ps.output("last", events.key_by("user").last(2, "n"), ps.jsonl(out / "last")),
    )


def main(folder: Path, url: str) -> None:
    attempts = folder / "attempts"
    attempts.mkdir()
    settings = Settings(
        state=folder / "state",
        master=url,
        most_epoch_units=70,
        epoch_interval_seconds=0.0,
        slices=SLICES,
        drain=True,
        warm_up=True,
        small_epoch_bytes=0,
        spark=SPECULATION,
    )
    spark = session(settings, folder / "spark.log")
    longest = 0.0

    def watch(report: EpochReport) -> None:
        nonlocal longest
        longest = max(longest, report.seconds)

    run = Engine(build(folder / "out", attempts), settings, spark).run(watch)
    state = StateDirectory(folder / "state")
    manifest = state.manifests.latest()
    seen = {
        "epochs": run.epochs,
        "events": run.events,
        "longest": longest,
        "missing": [name for name in manifest.runs() if not any(folder.glob(f"state/**/{name}*"))],
    }
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

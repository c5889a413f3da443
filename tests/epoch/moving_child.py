"""An engine on executors of its own, whose buckets migrate while it runs. `python moving_child.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.migration import MapChange
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.spark.session import session
from penstock.state.bucket_map import ExecutorLocation, even_maps
from penstock.testing.list_log import ListLog
from tests import golden_query as golden

BUCKETS = 64
#: of the golden query: windows, a join, sessions, a custom operator, and one that hands rows on
OUTPUTS = ("sliding", "joined", "sessions", "before", "exploded")


def build(out: Path) -> ps.App:
    """A query with every kind of state in it."""
    events = ps.stream(
        "events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=golden.LATENESS
    )
    other = ps.stream(
        "other",
        ListLog(golden.lines(seed=8, count=60, partitions=1)),
        golden.decoder(),
        time="time",
        lateness=60,
    )
    rows = golden.by_description(events, other)
    return ps.app("moving", *(ps.output(name, rows[name], ps.jsonl(out / name)) for name in OUTPUTS))


def main(folder: Path) -> None:
    """Run the query on two executors: from one executor to both, by each protocol, and back."""
    spark_settings = {
        "spark.executor.memory": "600m",
        "spark.driver.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
    }
    settings = Settings(
        state=folder / "state",
        master="local-cluster[2,1,600]",
        most_epoch_units=60,
        epoch_interval_seconds=0.0,
        slices=2,
        drain=True,
        warm_up=False,
        small_epoch_bytes=0,
        cache_root=folder / "cache",
        spark=spark_settings,
    )
    engine = Engine(build(folder / "out"), settings, session(settings, folder / "spark.log"))
    first, second = (ExecutorLocation("127.0.0.1", number) for number in "01")
    one, both = even_maps(BUCKETS, 2, [first, first]), even_maps(BUCKETS, 2, [first, second])
    changes = {
        1: MapChange(one),
        2: MapChange(both, "warm"),
        5: MapChange(
            one.with_owners(None, {7: 2, 40: 2}).with_locations([first, first, second]), "immediate"
        ),
        7: MapChange(both.with_locations([second, first])),
    }
    log = open(folder / "reports.jsonl", "a")  # noqa: SIM115 - open until the process dies

    def watch(report: EpochReport) -> None:
        moved = report.migration
        assert report.maps is not None
        ran = {task.number: task.executor for task in report.tasks if task.stage == "slice 1"}
        line = {
            "epoch": report.epoch,
            "ran": ran,
            "places": [None if place is None else place.executor for place in report.maps.locations],
            "moved": None if moved is None else [moved.protocol, moved.done, moved.buckets, moved.reason],
        }
        print(json.dumps(line), file=log, flush=True)
        if report.epoch + 1 in changes:
            engine.request_map_change(changes[report.epoch + 1])

    engine.run(watch)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

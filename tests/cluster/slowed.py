"""A run on two executors one of which becomes slow, under Penstock's own rules: its buckets should move away."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from penstock.cluster import LocalCluster
from penstock.engine import elasticity
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.logs.contract import Partition
from penstock.scaling.decisions import Move
from penstock.scaling.record import Outcome
from penstock.scaling.settings import ElasticSettings
from penstock.spark.session import session
from penstock.testing.list_log import ListLog
from tests import golden_query as golden
from tests.cluster import query
from tests.cluster.driven import settings

RULES = ElasticSettings(
    window_seconds=3.0,
    patience_seconds=600.0,
    cool_down_seconds=0.0,
    least_executors=2,
    most_executors=2,
    upper_imbalance=0.005,
    move_timeout_seconds=30.0,
)
PARTITIONS, LINES, LINES_PER_EPOCH = 2, 40_000, 200
#: epochs before one of the executors becomes slow, and seconds until its buckets must have moved
CALM, SOON = 6, 120.0


class RevealedLog(ListLog):
    """A log whose lines are revealed little by little."""

    def __init__(self, lines: Mapping[str, list[str]]) -> None:
        super().__init__(lines)
        self._revealed = 0

    def reveal(self, count: int) -> None:
        self._revealed += count

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        all_ = super().partitions(offsets)
        return [Partition(p.id, 0, min(self._revealed, p.latest), self._revealed >= p.latest) for p in all_]

    def closed(self) -> bool:
        return all(self._revealed >= len(part) for part in self._lines.values())

    def cut(self, partition: str, start: int, units: int) -> int:
        return min(self._revealed, super().cut(partition, start, units))


def lines() -> dict[str, list[str]]:
    """Events of some hundred users, in order."""
    draw, found = Random(11), {}
    for partition in range(PARTITIONS):
        at, part = golden.BEGIN, []
        for _ in range(LINES):
            at += timedelta(milliseconds=draw.choice([1, 5, 20]))
            amount = draw.choice([0.5, 1.25, -2.0])
            part.append(f"{at.isoformat()},u{draw.randrange(400)},/{draw.choice('abcde')},{amount}")
        found[f"p{partition}"] = part
    return found


def run(folder: Path, cluster: LocalCluster, spark: Any) -> dict[str, Any]:
    """Run the query; write its rows to `folder`, return the decisions and the owners of the buckets."""
    folder.mkdir()
    log = RevealedLog(lines())
    log.reveal(LINES_PER_EPOCH)
    run_settings = settings(folder, master=cluster.status().url, executors=2, elastic=RULES, buckets=16)
    run_settings = replace(run_settings, most_epoch_units=None)
    engine = Engine(query.build(folder / "out", log), run_settings, spark)
    strain: subprocess.Popen[bytes] | None = None
    seen: dict[str, Any] = {}
    deadline = float("inf")

    def moved() -> bool:
        assert engine.elasticity is not None
        return any(
            isinstance(entry.decision, Move) and entry.outcome in (Outcome.watched, Outcome.helped)
            for entry in engine.elasticity.loop.record.entries
        )

    def watch(report: EpochReport) -> None:
        nonlocal strain, deadline
        loop = engine.elasticity
        resting = None if loop is None else loop.loop.resting
        logging.info("slowed: epoch %s took %.2f s; %s", report.epoch, report.seconds, resting)
        if loop is None or len(loop.placement) < 2 or report.epoch < CALM or "after" in seen:
            log.reveal(LINES_PER_EPOCH if "after" not in seen else LINES)
            return
        if strain is None:
            seen["slow"] = slow = loop.placement[-1]
            seen["before"] = count_buckets(engine, slow)
            name = next(w.name for w in cluster.status().workers if any(e == slow for _, e in w.executors))
            command = [sys.executable, "-m", "tests.cluster.strain", str(cluster.directory), name]
            strain = subprocess.Popen(command, stdin=subprocess.PIPE)
            deadline = time.monotonic() + SOON
        elif moved() or time.monotonic() > deadline:
            seen["after"] = count_buckets(engine, seen["slow"])
            strain.communicate()
        log.reveal(LINES_PER_EPOCH)

    defaults = elasticity.PERIOD_SECONDS, elasticity.IDLE_SECONDS
    elasticity.PERIOD_SECONDS, elasticity.IDLE_SECONDS = 1.0, 30.0
    try:
        engine.run(watch)
    finally:
        elasticity.PERIOD_SECONDS, elasticity.IDLE_SECONDS = defaults
        if strain is not None:
            strain.communicate()
    assert engine.elasticity is not None
    record = engine.elasticity.loop.record
    seen["decisions"] = [
        [type(e.decision).__name__, e.decision.reason, str(e.outcome)] for e in record.entries
    ]
    seen["resting"] = engine.elasticity.loop.resting
    return seen


def main(folder: Path, cluster: LocalCluster) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    elasticity.LOOK_SECONDS = 0.1
    spark = session(settings(folder, master=cluster.status().url, executors=2), folder / "spark.log")
    seen = run(folder / "slowed", cluster, spark)
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(seen))


def count_buckets(engine: Engine, executor: str) -> dict[str, int]:
    """How many buckets of each stage an executor owns."""
    maps = engine.maps
    assert maps is not None
    places = [None if place is None else place.executor for place in maps.locations]
    return {sub: sum(places[slice_] == executor for slice_ in maps.of(sub)) for sub in engine.plan.stages}


if __name__ == "__main__":
    main(Path(sys.argv[1]), LocalCluster(Path(sys.argv[2])))

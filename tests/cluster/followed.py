"""Engines whose executors follow a loop while workers die: run as a process of its own, since Spark is one a process.

Receives a folder and the cluster's directory; leaves the rows of each run below the folder, and what it saw in
`seen.json`. The loop's judgement is replaced by one that wants something in every run; the rest is the engine's own.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cluster import LocalCluster
from penstock.engine import collect, elasticity
from penstock.engine.engine import Engine
from penstock.engine.status_server import status
from penstock.epoch.runner import EpochReport
from penstock.scaling.decide import Situation
from penstock.scaling.decisions import Decision, Decommission, Provision
from penstock.scaling.settings import ElasticSettings
from penstock.spark.session import session
from tests.cluster import query
from tests.cluster.driven import SOON, settings

RULES = ElasticSettings(
    window_seconds=0.5,
    patience_seconds=0.5,
    cool_down_seconds=0.0,
    most_executors=3,
    start_timeout_seconds=90.0,
    move_timeout_seconds=60.0,
    retries=1,
)


class Wish:
    """Wants one thing, once it is told to."""

    def __init__(self) -> None:
        self.wanted: Callable[[Situation], Decision] | None = None

    def decide(self, now: Situation) -> Sequence[Decision]:
        wanted, self.wanted = self.wanted, None
        return [] if wanted is None else [wanted(now)]


def one_more(now: Situation) -> Decision:
    return Provision(1, "a test wants one more")


def the_last_goes(now: Situation) -> Decision:
    return Decommission((now.snapshot.fleet.ids[-1],), "a test wants one fewer")


class Followed:
    """A run of the query whose epochs wait for what should happen at their ends."""

    def __init__(
        self,
        folder: Path,
        name: str,
        cluster: LocalCluster,
        spark: Any,
        executors: int,
        rules: ElasticSettings = RULES,
    ) -> None:
        self.wish, self.cluster, self._name = Wish(), cluster, name
        self.refused = False
        self.outcomes: list[str] = []
        (folder / name).mkdir()
        asked = settings(
            folder / name, master=cluster.status().url, executors=executors, elastic=rules, manager=self.wish
        )
        self.engine = Engine(query.build(folder / name / "out"), asked, spark)

    def run(self, at: dict[int, list[Callable[[Followed], None]]]) -> dict[str, Any]:
        def watch(report: EpochReport) -> None:
            logging.info("%s: epoch %s took %.2f s", self._name, report.epoch, report.seconds)
            for step in at.get(report.epoch, []):
                step(self)
            if self.engine.elasticity is not None:
                record = self.engine.elasticity.loop.record
                self.outcomes = [str(entry.outcome) for entry in record.entries]

        run = self.engine.run(watch)
        elastic = self.engine.elasticity
        assert elastic is not None
        maps = self.engine.maps
        assert maps is not None
        shown = status(self.engine, self.engine.meter.latest).to_json()
        used = {slice_ for owners in (maps.default, *maps.operators.values()) for slice_ in owners}
        return {
            "epochs": run.epochs,
            "refused": self.refused,
            "outcomes": self.outcomes,
            "status": shown["elastic"],
            "memory": shown["executors"],
            "owners": sorted({str(elastic.placement[slice_]) for slice_ in used}),
            "there": sorted(elastic.slice_owners),
        }

    # -- what is done and waited for between epochs ------------------------------------------------

    def grow(self) -> None:
        self.wish.wanted = one_more

    def shrink(self) -> None:
        self.wish.wanted = the_last_goes

    def until_seated(self, count: int) -> None:
        self._until(lambda: len(self._elastic.slice_owners) == count, f"{count} executors seated")

    def until_settled(self) -> None:
        self._until(lambda: not self._elastic.loop.orders, "all orders ended")

    def until_refused(self) -> None:
        self._until(lambda: "failed last time" in self._elastic.loop.resting, "the same wish to be refused")
        self.refused = True

    def until_caches(self, count: int) -> None:
        """The caches of executors that have gone are gone."""
        assert self.engine._runner is not None
        cache = Path(str(self.engine._runner._location.cache))
        self._until(lambda: len(list(cache.glob("executor-*"))) == count, f"{count} caches")

    def until_a_second(self) -> None:
        self._until(lambda: len(self.engine.workers()) == 2, "a second executor")

    def until_asked(self) -> None:
        self._until(lambda: bool(self._elastic.loop.record.entries), "a decision")

    def until_still(self) -> None:
        """All orders have ended, or wait for the next epoch themselves."""
        self._until(
            lambda: not self._elastic._changes.is_idle or not self._elastic.loop.orders, "all orders ended"
        )

    @property
    def _elastic(self) -> elasticity.Elasticity:
        self._until(lambda: self.engine.elasticity is not None, "the loop")
        assert self.engine.elasticity is not None
        return self.engine.elasticity

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 2 * SOON
        while not reached():
            if time.monotonic() > deadline:
                faulthandler.dump_traceback(all_threads=True)
                raise TimeoutError(f"{self._name}: waited in vain for {what}")
            time.sleep(0.05)


def seated(count: int) -> Callable[[Followed], None]:
    """Waits until so many executors have slices."""
    return lambda run: run.until_seated(count)


def main(folder: Path, cluster: LocalCluster) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    elasticity.LOOK_SECONDS, elasticity.PERIOD_SECONDS, elasticity.IDLE_SECONDS = 0.1, 0.1, 0.3
    collect.COLD_EPOCHS = 0  # the first epochs wait for decisions here
    seen: dict[str, Any] = {}
    spark = session(settings(folder, master=cluster.status().url, executors=1), folder / "spark.log")

    def followed(name: str, executors: int) -> Followed:
        return Followed(folder, name, cluster, spark, executors)

    def kill_the_last(run: Followed) -> None:
        """The worker of the executor that came last dies, and another joins."""
        last = run.engine.workers()[-1].id
        name = next(w.name for w in cluster.status().workers if any(e == last for _, e in w.executors))
        cluster.kill(name)
        cluster.add()

    # -- up and down, as the loop says -------------------------------------------------------------
    seen["calm"] = followed("calm", 1).run(
        {
            0: [seated(1)],
            1: [Followed.grow],
            2: [seated(2)],
            3: [Followed.until_still],
            4: [Followed.until_still],
            5: [Followed.until_still, Followed.shrink],
            6: [Followed.until_still],
            7: [seated(1), lambda run: run.until_caches(1)],
        }
    )
    # -- one more than the cluster has cores for: it never comes, and nothing else changes ------------
    full = Followed(folder, "full", cluster, spark, 2, replace(RULES, start_timeout_seconds=4))
    seen["full"] = full.run(
        {
            0: [seated(2)],
            1: [Followed.grow, Followed.until_asked],
            3: [Followed.until_settled, Followed.grow, Followed.until_refused],
        }
    )
    seen["full"]["workers"] = [len(worker.executors) for worker in cluster.status().workers]
    # -- the worker of the new executor dies as soon as it is there: in the warm-up or in the move ---
    seen["coming"] = followed("coming", 1).run(
        {
            0: [seated(1)],
            1: [Followed.grow],
            2: [Followed.until_a_second, kill_the_last],
            **{epoch: [Followed.until_still] for epoch in range(4, 9)},
        }
    )
    # -- one dies while it should leave ---------------------------------------------------------------
    seen["leaving"] = followed("leaving", 2).run(
        {
            0: [seated(2)],
            1: [Followed.shrink, Followed.until_asked, kill_the_last],
            **{epoch: [Followed.until_still] for epoch in range(4, 9)},
        }
    )
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), LocalCluster(Path(sys.argv[2])))

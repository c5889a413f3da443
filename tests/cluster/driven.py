"""An engine on a cluster while executors join, leave and die: a process of its own, since Spark is one a process.

Receives a folder and the cluster's directory; leaves the rows of each run below the folder, and what it saw in
`seen.json`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.cluster import LocalCluster
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.settings import Settings
from penstock.spark.executors import Executors
from penstock.spark.session import session
from tests.cluster import query

SOON, NEVER = 60.0, 2.0


def settings(folder: Path, **more: Any) -> Settings:
    """Small epochs, each cut into two slices."""
    return Settings(
        state=folder / "state",
        most_epoch_units=60,
        epoch_interval_seconds=0.0,
        slices=2,
        drain=True,
        warm_up=False,
        small_epoch_bytes=0,
        **more,
    )


class Background:
    """Work on a thread beside the epochs; `done` waits for it and raises its failure."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as failure:
            self._failure = failure

    def done(self) -> None:
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def main(folder: Path, cluster: LocalCluster) -> None:
    seen: dict[str, Any] = {}
    requested = settings(folder, master=cluster.status().url, executors=1)
    spark = session(requested, folder / "spark.log")
    executors = Executors(spark.sparkContext)

    def run(name: str, count: int, at: dict[int, Callable[[], None]]) -> None:
        """Run the query, at first on so many executors; `at` says what is done at the end of an epoch."""

        def watch(report: EpochReport) -> None:
            at.get(report.epoch, lambda: None)()

        (folder / name).mkdir()
        app = query.build(folder / name / "out")
        found = Engine(app, settings(folder / name, master=requested.master, executors=count), spark).run(
            watch
        )
        seen[f"{name} epochs"] = found.epochs

    # -- one executor, then two, then one ---------------------------------------------------------
    executors.wait_for_first(1, SOON)
    seen["begins with"] = len(executors.staying())
    (first,) = executors.staying()
    pending: list[Background] = []

    def grow() -> None:
        assert executors.request(2)  # it starts while epochs continue

    def wait_for_growth() -> None:
        seen["grown to two"] = executors.wait_for(2, SOON)

    def request_too_many() -> None:
        seen["five taken note of"] = executors.request(5)
        seen["five came"] = executors.wait_for(5, NEVER)

    def shrink() -> None:
        seen["tasks of the second"] = executors.list()[1].done_tasks
        going = [executor.id for executor in executors.staying() if executor.id != first.id]
        seen["retired"] = len(executors.retire(going)) == 1
        pending.append(Background(lambda: seen.update(gone=executors.wait_gone(going, SOON))))

    def wait_for_shrinking() -> None:
        pending.pop().done()
        seen["shrunk to"] = [executor.id for executor in executors.list()] == [first.id]

    run("elastic", 1, {1: grow, 2: wait_for_growth, 4: request_too_many, 5: shrink, 6: wait_for_shrinking})

    # -- a worker dies with its executor ----------------------------------------------------------
    executors.request(2)
    seen["two again"] = executors.wait_for(2, SOON)

    def kill_worker() -> None:
        pending.append(Background(lambda: seen.update(killed=cluster.kill("worker-1"))))

    def wait_for_kill() -> None:
        pending.pop().done()

    run("killed", 2, {1: kill_worker, 3: wait_for_kill})
    seen["left"] = len(executors.list())
    cluster.add()
    seen["replaced"] = executors.wait_for(2, SOON)
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), LocalCluster(Path(sys.argv[2])))

"""Epochs without Spark: the master `inline`, which carries out every task in the engine's own process.

Receives an admission; hands each epoch to the runner, as Spark's streaming query does. For tests of what lies around
the engine (recovery, leases, commands) in milliseconds instead of the seconds that a Spark session takes to start.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence

from pyspark import cloudpickle

from penstock.engine.admission import Admission, Offset
from penstock.engine.greeting import shares_of
from penstock.engine.stages import REHEARSED, Parts, Shares, one_after_the_other, packed, received
from penstock.engine.task import EpochTask, StatePlace, Warmed, warmed
from penstock.engine.whereabouts import standing_at
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.state.bucket_map import Place
from penstock.state.run import Piece

#: names the seed of the order in which tasks are carried out and messages arrive
SEED = "PENSTOCK_INLINE_SEED"


class LocalStages:
    """Carries out an epoch's tasks one after the other, each slice as if on the executor it has for its place.

    As on Spark, tasks have copies of the plan and of what they are told, and messages arrive in any order: one that a
    seed draws.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._draw = random.Random(int(os.environ.get(SEED, "0")) if seed is None else seed)
        self._shipped: tuple[Plan, Plan] | None = None

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        return self._carried_out(task, shares)

    def warm(self, place: StatePlace, wanted: Mapping[Place, Sequence[Piece]]) -> list[Warmed]:
        done = []
        for at, pieces in wanted.items():
            with standing_at(at.executor):
                done.append(warmed(place, at, pieces))
        return done

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        self._carried_out(task, shares_of(task, spans), REHEARSED)

    def _carried_out(self, task: EpochTask, shares: Shares, parts: Parts | None = None) -> list[bytes]:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            self._shipped = shipped = task.plan, cloudpickle.loads(packed(task.plan))
        return one_after_the_other(received(task, shipped[1]), shares, parts, self._draw)


class LocalQuery:
    """Asks admission for epochs and has them carried out, in a thread; looks like Spark's query to the engine."""

    def __init__(
        self, admission: Admission, start: Offset, epoch: Callable[[int, Offset, Offset], None]
    ) -> None:
        self._admission, self._start, self._epoch = admission, start, epoch
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="local-query", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> BaseException | None:
        return self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                end = self._admission.latest(self._start)
                if end != self._start and not self._stop.is_set():
                    self._epoch(end["epoch"], self._start, end)
                    self._start = end
        except BaseException as failure:
            self._failure = failure
            if self._admission.failure is None:
                self._admission.failure = failure

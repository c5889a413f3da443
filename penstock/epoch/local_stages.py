"""The stages of an epoch without Spark: the master `inline` executes every task in the engine's own process.

For tests of what lies around the engine (recovery, leases, commands) in milliseconds instead of the seconds that a
Spark session takes to start.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

import cloudpickle

from penstock.epoch.executor_identity import standing_at
from penstock.epoch.rehearsal import shares_of
from penstock.epoch.stages import REHEARSED, Parts, Shares, one_after_the_other, packed, received
from penstock.epoch.task import EpochTask, StatePlace, Warmed, warmed
from penstock.logs.contract import Span
from penstock.query.physical import Plan
from penstock.state.bucket_map import ExecutorLocation
from penstock.state.run import Piece

#: names the seed of the order in which tasks are executed and messages arrive
SEED = "PENSTOCK_INLINE_SEED"


class LocalStages:
    """Executes an epoch's tasks one after the other, each slice as if on the executor it has for its place.

    As on Spark, tasks have copies of the plan and of what they are told, and messages arrive in any order: one that a
    seed draws.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._draw = random.Random(int(os.environ.get(SEED, "0")) if seed is None else seed)
        self._shipped: tuple[Plan, Plan] | None = None

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        return self._execute(task, shares)

    def warm(self, place: StatePlace, wanted: Mapping[ExecutorLocation, Sequence[Piece]]) -> list[Warmed]:
        done = []
        for at, pieces in wanted.items():
            with standing_at(at.executor):
                done.append(warmed(place, at, pieces))
        return done

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        self._execute(task, shares_of(task, spans), REHEARSED)

    def _execute(self, task: EpochTask, shares: Shares, parts: Parts | None = None) -> list[bytes]:
        shipped = self._shipped
        if shipped is None or shipped[0] is not task.plan:
            self._shipped = shipped = task.plan, cloudpickle.loads(packed(task.plan))
        return one_after_the_other(received(task, shipped[1]), shares, parts, self._draw)

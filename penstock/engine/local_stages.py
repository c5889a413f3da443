"""The stages of an epoch without Spark: the master `inline` executes every task in the engine's own process.

For tests of what lies around the engine (recovery, leases, commands) in milliseconds instead of the seconds that a
Spark session takes to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.engine.greeting import shares_of
from penstock.engine.stages import REHEARSED, Shares, one_after_the_other
from penstock.engine.task import EpochTask, StatePlace, Warmed, warmed
from penstock.engine.whereabouts import standing_at
from penstock.logs.contract import Span
from penstock.state.bucket_map import Place
from penstock.state.run import Piece


class LocalStages:
    """Carries out an epoch's tasks one after the other, each slice as if on the executor it has for its place."""

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        return one_after_the_other(task, shares)

    def warm(self, place: StatePlace, wanted: Mapping[Place, Sequence[Piece]]) -> list[Warmed]:
        done = []
        for at, pieces in wanted.items():
            with standing_at(at.executor):
                done.append(warmed(place, at, pieces))
        return done

    def rehearse(self, task: EpochTask, spans: list[tuple[str, Span]]) -> None:
        one_after_the_other(task, shares_of(task, spans), REHEARSED)

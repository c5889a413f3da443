"""Decides what follows from the lag of a follower: resynchronization, or a leader that waits between epochs.

The leader keeps its newest manifests, and lets logs forget what is before the oldest of them. A follower that has not
come that far may find its input gone. So it copies the leader's state, and takes no lease until then.

A follower takes as long as the leader for an epoch, and longer on the same machine. If the leader recorded small epochs
without a pause, the follower would fall further and further behind, and a failover would take as much longer. So the
leader waits a little between epochs: these have more events instead, which costs neither engine anything.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from penstock.ha.schemes import SCHEMES
from penstock.ha.unit import Unit, UnitEngine, UnitRecord
from penstock.state.directory import StateDirectory

#: what ends only the engine itself: it was replaced, or runs its own version of a file
_OWN_ERRORS = ("FENCED", "LEASE_LOST", "STORE_UNAVAILABLE", "REPLICA_RUNS_OTHER_CODE")
#: what ends only a follower
_FOLLOWER_ERRORS = ("FOLLOWS_OTHERWISE", "COMMANDS_GONE")
#: a follower this many epochs behind copies the leader's state, which is quicker
MOST_BEHIND = 100
#: epochs that a follower may lack without a wait: the one under way
_USUAL_EPOCHS = 1
#: how long the leader waits for each further epoch, and at most, in seconds
_WAIT_SECONDS_PER_EPOCH = 0.4
MOST_SECONDS = 1.0
#: how long the leader waits for a follower without progress, in seconds: it hangs, or copies the state
PATIENCE_SECONDS = 5.0


def must_resync(reached: int, recorded: Sequence[int], manifests: Sequence[int], every: int = 1) -> bool:
    """Whether a follower must copy the leader's state.

    `reached` is the last epoch it has executed; `recorded` and `manifests` are the epochs of the unit's epoch records
    and of the leader's manifests, ascending; `every` is the number of epochs from one manifest to the next.
    """
    records_gone = bool(recorded) and recorded[0] > reached + 1
    too_many = bool(recorded) and recorded[-1] - reached > max(MOST_BEHIND, 2 * every)
    input_gone = bool(manifests) and manifests[0] > max(reached, 0)
    return records_gone or too_many or input_gone


def is_left_behind(error: PenstockError) -> bool:
    """Whether a follower's error means that what it had to repeat is gone, or in no copy of the log that it reaches."""
    return error.condition in ("LOG_SPAN_GONE", "COPY_BEHIND", "COMMANDS_GONE")


def may_end_others(error: PenstockError, *, led: bool) -> bool:
    """Whether the error that ends an engine may end other engines of the unit too. `led`: it was the leader.

    What is away outside comes back: an error that passes never counts when a unit is given up.
    """
    if error.is_transient:
        return False
    return error.condition not in _OWN_ERRORS and (led or error.condition not in _FOLLOWER_ERRORS)


class LeaderThrottle:
    """How long a leader waits from one epoch to the next."""

    def __init__(self) -> None:
        #: the last epoch of each follower, and since when
        self._progress: dict[str, tuple[int, float]] = {}

    def least_interval(self, unit: Unit, record: UnitRecord, admitted: int, program: Program) -> float:
        """The least seconds from one epoch to the next, by the last one that the leader has admitted."""
        followers = follower_epochs(unit, record) if SCHEMES[record.scheme].runs_epochs else {}
        # a follower of jobs starts an epoch only when the leader has committed it (see `EngineRole.recorded_end`)
        expected = admitted - program.epochs.isolates_failures(program.commands)
        return self.seconds(expected, followers, time.monotonic())

    def seconds(self, expected: int, followers: Mapping[str, int], now: float) -> float:
        """The same, by the epoch that followers should have reached and the one that each has."""
        self._progress = {
            name: known if (known := self._progress.get(name)) and known[0] == epoch else (epoch, now)
            for name, epoch in followers.items()
        }
        waited_for = [epoch for epoch, since in self._progress.values() if now - since < PATIENCE_SECONDS]
        lacking = max((expected - epoch for epoch in waited_for), default=0)
        return min(max(lacking - _USUAL_EPOCHS, 0) * _WAIT_SECONDS_PER_EPOCH, MOST_SECONDS)


def follower_epochs(unit: Unit, record: UnitRecord) -> dict[str, int]:
    """The last epoch of each engine that repeats the leader's epochs now."""
    return {
        name: last_epoch(engine)
        for name, engine in unit.engines().items()
        if name != record.leader and engine.phase == "following" and not engine.paused and engine.seems_up
    }


def last_epoch(engine: UnitEngine) -> int:
    """The last epoch that a follower has executed: as it reports, or by its directory if that has more."""
    durable: list[int] = []
    with contextlib.suppress(OSError):  # the follower may be creating the directory again
        durable = StateDirectory(Path(engine.directory)).manifests.epochs() if engine.directory else []
    return max([engine.epoch, *durable[-1:]])

"""Migrates buckets: changes the bucket maps while the engine runs, at the boundary between two epochs.

Requests come from any thread. Every epoch gets the maps in force, and each request a future with its result.

Guarantees:
- Maps change in `start_epoch` only, which the engine's thread calls between epochs. So an epoch has one set of maps.
- One migration at a time, in the order of requests. It is executed whole, or cancelled with a reason. A migration under
  way writes nothing, so an engine that dies in the middle of it has nothing to repair.
- Until the switch the future may be cancelled; then the migration does not happen.

On failure: the future of a request for a protocol which its query rules out raises `UserError` RECREATION_IMPOSSIBLE,
at the first boundary; nothing has changed then.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol as Contract

from penstock.epoch.kill_points import reached
from penstock.epoch.migration_cost import (
    Choice,
    Circumstances,
    Estimate,
    MigrationPlan,
    MigrationRules,
    Protocol,
    choose_protocol,
    plan_migration,
)
from penstock.epoch.task import CacheFill, StateLocation
from penstock.errors import UserError
from penstock.operators.contract import FOREVER, NEVER
from penstock.query.physical import Plan
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.state.manifest import Manifest
from penstock.state.run import Piece, epoch_of

#: bytes of runs that an executor reads a second, before any measurement
READ_BYTES_PER_SECOND = 150e6
#: how long an epoch takes, before any measurement
USUAL_SECONDS = 1.0
#: how many epochs the usual length is measured over
USUAL_EPOCHS = 9


class Warmer(Contract):
    """Fills the caches of executors."""

    def warm(
        self, location: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        """Have each executor bring these pieces of runs into its cache; returns what was done, and where."""


@dataclass(frozen=True)
class MapChange:
    """The maps to change to; with a protocol, if it should not be chosen."""

    maps: BucketMaps
    protocol: Protocol | None = None


@dataclass(frozen=True)
class MigrationResult:
    """The result of a migration. `done`: the maps are in force; otherwise the former ones are, and `reason` says why.

    `pause_seconds`: how much longer than usual the first epoch with the new maps took.
    `seconds`: from the start to the switch. `bytes`: what new owners have read or must read because of it.
    """

    done: bool
    version: int
    protocol: Protocol
    reason: str
    started_epoch: int
    switched_epoch: int | None = None
    buckets: int = 0
    bytes: int = 0
    rounds: int = 0
    seconds: float = 0.0
    pause_seconds: float | None = None
    estimates: tuple[Estimate, ...] = ()
    #: bytes that an executor reads a second, where this migration has measured it
    read_rate: float | None = None


@dataclass
class _Active:
    """The migration under way."""

    change: MapChange
    ticket: Future[MigrationResult]
    choice: Choice
    started_epoch: int
    started_at: float
    #: the event time at which the windows end that were open at the start
    windows_end: int | None
    filled: dict[ExecutorLocation, set[Piece]] = field(default_factory=dict)
    #: the round of cache fills under way, how many there were, and how many failed
    round: Future[list[CacheFill]] | None = None
    rounds: int = 0
    failed_rounds: int = 0
    bytes: int = 0
    read_rate: float | None = None


class Migrations:
    """The bucket maps of an engine; migrations that wait, and the one under way."""

    def __init__(
        self, maps: BucketMaps, warmer: Warmer, location: StateLocation, rules: MigrationRules | None = None
    ) -> None:
        self.maps = maps
        self._warmer, self._location, self._rules = warmer, location, rules or MigrationRules()
        self._lock = threading.Lock()
        self._queue: deque[tuple[MapChange, Future[MigrationResult]]] = deque()
        self._active: _Active | None = None
        #: the migration that has switched and whose first epoch is under way
        self._switched: tuple[MigrationResult, Future[MigrationResult]] | None = None
        self._epoch_seconds: deque[float] = deque(maxlen=USUAL_EPOCHS)
        #: when each of the last epochs ended, and the watermark after it
        self._watermarks: deque[tuple[float, int]] = deque(maxlen=USUAL_EPOCHS)
        self._read_rate = READ_BYTES_PER_SECOND
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def request(self, change: MapChange) -> Future[MigrationResult]:
        """Request other maps as soon as possible. From any thread; the future has the result."""
        change.maps.check(self.maps.buckets)
        ticket: Future[MigrationResult] = Future()
        with self._lock:
            if self._closed:
                ticket.set_result(self._cancelled(change, "the engine has ended"))
            else:
                self._queue.append((change, ticket))
        return ticket

    def reset(self, maps: BucketMaps) -> None:
        """Take other maps at once, unless they are the same: for an engine that starts, or another number of slices."""
        if not maps.same_as(self.maps):
            self.maps = replace(maps, version=self.maps.version + 1)

    # -- between epochs --------------------------------------------------------------------------

    def start_epoch(self, epoch: int, plan: Plan, manifest: Manifest) -> BucketMaps:
        """The maps of the next epoch."""
        if self._active is not None and self._active.ticket.cancelled():
            self._active = None
        active = self._active or self._start_next(epoch, plan, manifest)
        if active is not None:
            migration = plan_migration(plan, manifest.collections, self.maps, active.change.maps)
            match active.choice.protocol:
                case "immediate":
                    is_ready = True
                case "warm":
                    is_ready = self._are_caches_filled(active, migration, epoch)
                case "recreate":
                    is_ready = self._are_windows_over(active, migration, plan, manifest)
            if is_ready:
                self._switch(active, migration, epoch)
        return self.maps

    def finish_epoch(self, seconds: float, watermark: int | None) -> MigrationResult | None:
        """Record how long the epoch took and its watermark; returns the migration whose first epoch it was."""
        result = None
        if self._switched is not None:
            switched, ticket = self._switched
            self._switched = None
            usual = statistics.median(self._epoch_seconds) if self._epoch_seconds else seconds
            result = replace(switched, pause_seconds=max(0.0, seconds - usual))
            ticket.set_result(result)
        self._epoch_seconds.append(seconds)
        if watermark is not None and watermark < FOREVER:
            self._watermarks.append((time.monotonic(), watermark))
        return result

    def close(self) -> None:
        """The engine ends: cancel what has not switched."""
        with self._lock:
            self._closed = True
            waiting = list(self._queue)
            self._queue.clear()
        if self._active is not None:
            waiting.insert(0, (self._active.change, self._active.ticket))
            self._active = None
        for change, ticket in waiting:
            _resolve(ticket, self._cancelled(change, "the engine has ended"))
        if self._switched is not None:
            self._switched[1].set_result(self._switched[0])
            self._switched = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # -- the protocols ---------------------------------------------------------------------------

    def _start_next(self, epoch: int, plan: Plan, manifest: Manifest) -> _Active | None:
        """Start the next requested migration, if there is one."""
        while True:
            with self._lock:
                while self._queue and self._queue[0][1].cancelled():
                    self._queue.popleft()
                if not self._queue:
                    return None
                change, ticket = self._queue.popleft()
            migration = plan_migration(plan, manifest.collections, self.maps, change.maps)
            end = windows_end(plan, manifest, migration)
            protocol = change.protocol if migration.count else None  # without buckets every protocol will do
            try:
                now = self._circumstances(migration, manifest, end)
                choice = choose_protocol(now, self._rules, protocol)
                break
            except UserError as refusal:
                if ticket.set_running_or_notify_cancel():
                    ticket.set_exception(refusal)
        self._active = _Active(change, ticket, choice, epoch, time.monotonic(), end)
        reached("chosen", epoch)
        return self._active

    def _are_caches_filled(self, active: _Active, migration: MigrationPlan, epoch: int) -> bool:
        """Whether the new owners have what they need; if not, they continue to read while the old owners work."""
        if active.round is not None:
            if not active.round.done():
                return False
            reached("warmed", epoch)
            if not self._finish_round(active, active.round):
                return False
        rest = {
            place: {
                piece: size for piece, size in pieces.items() if piece not in active.filled.get(place, ())
            }
            for place, pieces in migration.pieces.items()
            if place is not None
        }
        rest = {place: pieces for place, pieces in rest.items() if pieces}
        most = max((sum(pieces.values()) for pieces in rest.values()), default=0)
        enough = active.rounds > 0 and most / self._read_rate <= self._rules.pause_seconds / 2
        if not rest or enough or active.rounds >= self._rules.most_rounds:
            active.bytes += sum(sum(pieces.values()) for pieces in rest.values())
            return True
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "penstock-warm-up")
        active.rounds += 1
        wanted = {place: list(pieces) for place, pieces in rest.items()}
        active.round = self._pool.submit(self._warmer.warm, self._location, wanted)
        return False

    def _finish_round(self, active: _Active, finished: Future[list[CacheFill]]) -> bool:
        """Count a round of cache fills; False if the migration is cancelled because of it."""
        active.round = None
        failure = finished.exception()
        fills = [] if failure is not None else finished.result()
        misplaced = [str(fill.place) for fill in fills if fill.executor != fill.place.executor]
        for fill in fills:
            active.bytes += fill.bytes
            if fill.executor == fill.place.executor:
                active.filled.setdefault(fill.place, set()).update(fill.pieces)
            if fill.bytes > 1 << 20 and fill.seconds > 0:
                self._read_rate = (self._read_rate + fill.bytes / fill.seconds) / 2
                active.read_rate = self._read_rate
        if failure is not None or misplaced:
            active.failed_rounds += 1
            active.rounds -= 1  # it is retried
        if active.failed_rounds < 2:
            return True
        reason = (
            f"{', '.join(misplaced)} did not take the work" if misplaced else f"the warm-up failed: {failure}"
        )
        _resolve(active.ticket, self._cancelled(active.change, reason, active))
        self._active = None
        return False

    def _are_windows_over(
        self, active: _Active, migration: MigrationPlan, plan: Plan, manifest: Manifest
    ) -> bool:
        """Whether the windows that were open are over, and those after them have little state."""
        assert active.windows_end is not None
        over = _least_watermark(plan, manifest, migration) >= active.windows_end
        if over and migration.most_bytes / self._read_rate <= self._rules.pause_seconds:
            active.bytes = migration.bytes
            return True
        if time.monotonic() - active.started_at > self._rules.patience_seconds:
            second = choose_protocol(self._circumstances(migration, manifest, None), self._rules)
            reason = f"the windows were not over within {self._rules.patience_seconds:.0f} s; {second.reason}"
            active.choice = replace(second, reason=reason, estimates=active.choice.estimates)
        return False

    # -- the switch ------------------------------------------------------------------------------

    def _switch(self, active: _Active, migration: MigrationPlan, epoch: int) -> None:
        self._active = None
        if not active.ticket.set_running_or_notify_cancel():
            return
        self.maps = replace(active.change.maps, version=self.maps.version + 1)
        result = MigrationResult(
            done=True,
            version=self.maps.version,
            protocol=active.choice.protocol,
            reason=active.choice.reason,
            started_epoch=active.started_epoch,
            switched_epoch=epoch,
            buckets=migration.count,
            bytes=migration.bytes if active.choice.protocol == "immediate" else active.bytes,
            rounds=active.rounds,
            seconds=time.monotonic() - active.started_at,
            estimates=active.choice.estimates,
            read_rate=active.read_rate,
        )
        self._switched = result, active.ticket
        reached("switched", epoch)

    def _cancelled(self, change: MapChange, reason: str, active: _Active | None = None) -> MigrationResult:
        """The result of a migration that does not happen."""
        if active is None:
            return MigrationResult(False, self.maps.version, change.protocol or "immediate", reason, -1)
        return MigrationResult(
            False,
            self.maps.version,
            active.choice.protocol,
            reason,
            active.started_epoch,
            bytes=active.bytes,
            rounds=active.rounds,
            seconds=time.monotonic() - active.started_at,
            estimates=active.choice.estimates,
        )

    # -- what estimates are made of --------------------------------------------------------------

    def _circumstances(
        self, migration: MigrationPlan, manifest: Manifest, windows_end: int | None
    ) -> Circumstances:
        new_bytes = [
            sum(size for piece, size in pieces.items() if epoch_of(piece.name) == manifest.epoch)
            for pieces in migration.pieces.values()
        ]
        usual = statistics.median(self._epoch_seconds) if self._epoch_seconds else USUAL_SECONDS
        end_in = None
        if windows_end is not None:
            now = self._watermarks[-1][1] if self._watermarks else windows_end
            end_in = max(0.0, (windows_end - now) / 1e6 / self._event_time_rate())
        return Circumstances(
            bytes=migration.bytes,
            most_bytes=migration.most_bytes,
            bytes_per_epoch=max(new_bytes, default=0),
            read_bytes_per_second=self._read_rate,
            epoch_seconds=max(usual, 0.01),
            placed=bool(migration.pieces) and None not in migration.pieces,
            windows_end_in=end_in,
        )

    def _event_time_rate(self) -> float:
        """Seconds of event time that pass in a second."""
        if len(self._watermarks) < 2:
            return 1.0
        (started, first), (ended, last) = self._watermarks[0], self._watermarks[-1]
        return max((last - first) / 1e6 / max(ended - started, 1e-6), 1e-3)


def _resolve(ticket: Future[MigrationResult], result: MigrationResult) -> None:
    """Set the result of a future, unless it was cancelled."""
    if ticket.set_running_or_notify_cancel():
        ticket.set_result(result)


def windows_end(plan: Plan, manifest: Manifest, migration: MigrationPlan) -> int | None:
    """When the windows open now are over, of all stages whose buckets migrate; None if one has no such time."""
    ends = [
        plan.stages[stage].operator.drained_at(_watermark(plan, manifest, stage))
        for family in plan.families
        if family[0] in migration.buckets
        for stage in family
    ]
    return None if not ends or None in ends else max(end for end in ends if end is not None)


def _least_watermark(plan: Plan, manifest: Manifest, migration: MigrationPlan) -> int:
    """The least watermark of the stages whose buckets migrate."""
    return min((_watermark(plan, manifest, stage) for stage in migration.buckets), default=FOREVER)


def _watermark(plan: Plan, manifest: Manifest, stage: str) -> int:
    streams = [manifest.streams.get(name) for name in plan.stages[stage].streams]
    return min((NEVER if s is None or s.watermark is None else s.watermark for s in streams), default=FOREVER)

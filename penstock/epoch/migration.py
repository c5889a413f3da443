"""Moves: maps that change while the engine runs, at the boundary between two epochs.

Receives wishes from any thread; hands every epoch the maps in force, and whoever asked what became of it.

Invariants:
- BucketMaps change in `before` only, which the engine's thread calls between epochs. So an epoch has one set of maps.
- One move at a time, in the order they were asked for. It is carried out whole, or undone and said why; nothing is
  written for one that is under way, so an engine that dies in the middle has nothing to mend.
- Whoever asked may cancel the future until the switch: then the move is forgotten, and is never made.

On failure: the future of a move that asks for a protocol which its query rules out raises `UserError`
RECREATION_IMPOSSIBLE, at the first boundary; nothing has changed then.
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
from penstock.epoch.map_rules import Moving, moving
from penstock.epoch.migration_cost import Choice, Circumstances, Estimate, Protocol, Rules, chosen
from penstock.epoch.task import StatePlace, Warmed
from penstock.errors import UserError
from penstock.operators.contract import FOREVER, NEVER
from penstock.query.physical import Plan
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.state.manifest import Manifest
from penstock.state.run import Piece, epoch_of

#: bytes of runs an executor reads a second, as long as none has been seen to
READ_BYTES_PER_SECOND = 150e6
#: how long an epoch takes, as long as none has been run
USUAL_SECONDS = 1.0
#: how many epochs tell how long one usually takes
USUAL_EPOCHS = 9


class Warmer(Contract):
    """Whatever can fill the caches of executors."""

    def warm(self, place: StatePlace, wanted: Mapping[ExecutorLocation, Sequence[Piece]]) -> list[Warmed]:
        """Have each executor bring these pieces of runs into its cache; returns what was done, and where."""


@dataclass(frozen=True)
class Change:
    """What the maps should become, made of those in force; with a protocol, if it should not be chosen."""

    maps: BucketMaps
    protocol: Protocol | None = None


@dataclass(frozen=True)
class Moved:
    """What became of a change. `done`: the maps are in force; otherwise those before it are, and `reason` says why.

    `pause_seconds`: how much longer the first epoch with the new maps took than the epochs before it usually did.
    `seconds`: from asking to the switch. `bytes`: what new owners have read or must read because of it.
    """

    done: bool
    version: int
    protocol: Protocol
    reason: str
    asked_epoch: int
    switched_epoch: int | None = None
    buckets: int = 0
    bytes: int = 0
    rounds: int = 0
    seconds: float = 0.0
    pause_seconds: float | None = None
    estimates: tuple[Estimate, ...] = ()
    #: bytes an executor reads a second, where this move has measured it
    read_rate: float | None = None


@dataclass
class _Active:
    change: Change
    ticket: Future[Moved]
    choice: Choice
    asked_epoch: int
    asked_at: float
    #: the event time at which the windows are over that were open when it was asked for
    fresh_at: int | None
    warm: dict[ExecutorLocation, set[Piece]] = field(default_factory=dict)
    round: Future[list[Warmed]] | None = None
    rounds: int = 0
    missed: int = 0
    bytes: int = 0
    buckets: int = 0
    #: as in `Moved`
    read_rate: float | None = None


class Moves:
    """The maps of an engine, and the moves asked for, under way and done."""

    def __init__(
        self,
        maps: BucketMaps,
        warmer: Warmer,
        place: StatePlace,
        rules: Rules | None = None,
    ) -> None:
        self.maps = maps
        self._warmer, self._place, self._rules = warmer, place, rules or Rules()
        self._lock = threading.Lock()
        self._queue: deque[tuple[Change, Future[Moved]]] = deque()
        self._active: _Active | None = None
        self._switched: tuple[Moved, Future[Moved]] | None = None
        self._usual: deque[float] = deque(maxlen=USUAL_EPOCHS)
        self._marks: deque[tuple[float, int]] = deque(maxlen=USUAL_EPOCHS)
        self._read_rate = READ_BYTES_PER_SECOND
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def ask(self, change: Change) -> Future[Moved]:
        """Have the maps changed as soon as may be. From any thread; what became of it is told by the future."""
        change.maps.check(self.maps.buckets)
        ticket: Future[Moved] = Future()
        with self._lock:
            if self._closed:
                ticket.set_result(self._undone(change, -1, "the engine has ended"))
            else:
                self._queue.append((change, ticket))
        return ticket

    def reset(self, maps: BucketMaps) -> None:
        """Take other maps at once, unless they say the same: for an engine that begins, or is cut anew by hand."""
        if not maps.same_as(self.maps):
            self.maps = replace(maps, version=self.maps.version + 1)

    # -- between epochs --------------------------------------------------------------------------

    def before(self, epoch: int, plan: Plan, manifest: Manifest) -> BucketMaps:
        """The maps of the epoch that comes now."""
        if self._active is not None and self._active.ticket.cancelled():
            self._active = None
        active = self._active or self._begun(epoch, plan, manifest)
        if active is not None:
            found = moving(plan, manifest.collections, self.maps, active.change.maps)
            ready = {"immediate": self._at_once, "warm": self._warmed, "recreate": self._over}
            if ready[active.choice.protocol](active, found, plan, manifest, epoch):
                self._switch(active, found, epoch)
        return self.maps

    def after(self, seconds: float, watermark: int | None) -> Moved | None:
        """Told how long the epoch took and how far it came; returns the move whose first epoch it was."""
        moved = None
        if self._switched is not None:
            report, ticket = self._switched
            self._switched = None
            usual = statistics.median(self._usual) if self._usual else seconds
            moved = replace(report, pause_seconds=max(0.0, seconds - usual))
            ticket.set_result(moved)
        self._usual.append(seconds)
        if watermark is not None and watermark < FOREVER:
            self._marks.append((time.monotonic(), watermark))
        return moved

    def close(self) -> None:
        """The engine ends: what was not carried out is not."""
        with self._lock:
            self._closed = True
            waiting = list(self._queue)
            self._queue.clear()
        if self._active is not None:
            waiting.insert(0, (self._active.change, self._active.ticket))
            self._active = None
        for change, ticket in waiting:
            _told(ticket, self._undone(change, -1, "the engine has ended"))
        if self._switched is not None:
            self._switched[1].set_result(self._switched[0])
            self._switched = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # -- the protocols ---------------------------------------------------------------------------

    def _begun(self, epoch: int, plan: Plan, manifest: Manifest) -> _Active | None:
        while True:
            with self._lock:
                while self._queue and self._queue[0][1].cancelled():
                    self._queue.popleft()
                if not self._queue:
                    return None
                change, ticket = self._queue.popleft()
            found = moving(plan, manifest.collections, self.maps, change.maps)
            fresh_at = fresh(plan, manifest, found)
            wanted = change.protocol if found.count else None  # nothing that moves rules nothing out
            try:
                choice = chosen(self._circumstances(found, manifest, fresh_at), self._rules, wanted)
                break
            except UserError as refusal:
                if ticket.set_running_or_notify_cancel():
                    ticket.set_exception(refusal)
        self._active = _Active(change, ticket, choice, epoch, time.monotonic(), fresh_at, buckets=found.count)
        reached("asked", epoch)
        return self._active

    def _at_once(self, active: _Active, found: Moving, plan: Plan, manifest: Manifest, epoch: int) -> bool:
        return True

    def _warmed(self, active: _Active, found: Moving, plan: Plan, manifest: Manifest, epoch: int) -> bool:
        """Whether the new owners have what they need; if not, they go on reading while the old owner works."""
        if active.round is not None:
            if not active.round.done():
                return False
            reached("warmed", epoch)
            if not self._taken(active, active.round):
                return False
        rest = {
            place: {piece: size for piece, size in pieces.items() if piece not in active.warm.get(place, ())}
            for place, pieces in found.wanted.items()
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
        active.round = self._pool.submit(self._warmer.warm, self._place, wanted)
        return False

    def _taken(self, active: _Active, finished: Future[list[Warmed]]) -> bool:
        """Count in what a round of warming up has done; False if the move is given up."""
        active.round = None
        failure = finished.exception()
        done = [] if failure is not None else finished.result()
        astray = [str(warmed.place) for warmed in done if warmed.executor != warmed.place.executor]
        for warmed in done:
            active.bytes += warmed.bytes
            if warmed.executor == warmed.place.executor:
                active.warm.setdefault(warmed.place, set()).update(warmed.pieces)
            if warmed.bytes > 1 << 20 and warmed.seconds > 0:
                self._read_rate = (self._read_rate + warmed.bytes / warmed.seconds) / 2
                active.read_rate = self._read_rate
        if failure is not None or astray:
            active.missed += 1
            active.rounds -= 1  # it is tried again
        if active.missed < 2:
            return True
        why = f"{', '.join(astray)} did not take the work" if astray else f"the warm-up failed: {failure}"
        _told(active.ticket, self._undone(active.change, active.asked_epoch, why, active))
        self._active = None
        return False

    def _over(self, active: _Active, found: Moving, plan: Plan, manifest: Manifest, epoch: int) -> bool:
        """Whether the windows that were open are over, and little has come for those after them."""
        assert active.fresh_at is not None
        over = _watermark(plan, manifest, found) >= active.fresh_at
        if over and found.most_bytes / self._read_rate <= self._rules.pause_seconds:
            active.bytes = found.bytes
            return True
        if time.monotonic() - active.asked_at > self._rules.patience_seconds:
            second = chosen(self._circumstances(found, manifest, None), self._rules)
            reason = f"the windows were not over within {self._rules.patience_seconds:.0f} s; {second.reason}"
            active.choice = replace(second, reason=reason, estimates=active.choice.estimates)
        return False

    # -- the switch ------------------------------------------------------------------------------

    def _switch(self, active: _Active, found: Moving, epoch: int) -> None:
        if not active.ticket.set_running_or_notify_cancel():
            self._active = None
            return
        self.maps = replace(active.change.maps, version=self.maps.version + 1)
        self._active = None
        report = Moved(
            done=True,
            version=self.maps.version,
            protocol=active.choice.protocol,
            reason=active.choice.reason,
            asked_epoch=active.asked_epoch,
            switched_epoch=epoch,
            buckets=found.count,
            bytes=found.bytes if active.choice.protocol == "immediate" else active.bytes,
            rounds=active.rounds,
            seconds=time.monotonic() - active.asked_at,
            estimates=active.choice.estimates,
            read_rate=active.read_rate,
        )
        self._switched = report, active.ticket
        reached("switched", epoch)

    def _undone(self, change: Change, epoch: int, why: str, active: _Active | None = None) -> Moved:
        protocol = change.protocol or "immediate"
        if active is None:
            return Moved(False, self.maps.version, protocol, why, epoch)
        return Moved(
            False,
            self.maps.version,
            active.choice.protocol,
            why,
            epoch,
            bytes=active.bytes,
            rounds=active.rounds,
            seconds=time.monotonic() - active.asked_at,
            estimates=active.choice.estimates,
        )

    # -- what an estimate is made of -------------------------------------------------------------

    def _circumstances(self, found: Moving, manifest: Manifest, fresh_at: int | None) -> Circumstances:
        sizes = [
            sum(size for piece, size in pieces.items() if epoch_of(piece.name) == manifest.epoch)
            for pieces in found.wanted.values()
        ]
        usual = statistics.median(self._usual) if self._usual else USUAL_SECONDS
        end_in = None
        if fresh_at is not None:
            end_in = max(0.0, (fresh_at - self._now(fresh_at)) / 1e6 / self._pace())
        return Circumstances(
            bytes=found.bytes,
            most_bytes=found.most_bytes,
            bytes_per_epoch=max(sizes, default=0),
            read_bytes_per_second=self._read_rate,
            epoch_seconds=max(usual, 0.01),
            placed=bool(found.wanted) and None not in found.wanted,
            windows_end_in=end_in,
        )

    def _now(self, otherwise: int) -> int:
        return self._marks[-1][1] if self._marks else otherwise

    def _pace(self) -> float:
        """Seconds of event time that pass in a second."""
        if len(self._marks) < 2:
            return 1.0
        (began, first), (ended, last) = self._marks[0], self._marks[-1]
        return max((last - first) / 1e6 / max(ended - began, 1e-6), 1e-3)


def _told(ticket: Future[Moved], moved: Moved) -> None:
    """Say what became of a move, unless nobody wants to know any more."""
    if ticket.set_running_or_notify_cancel():
        ticket.set_result(moved)


def fresh(plan: Plan, manifest: Manifest, found: Moving) -> int | None:
    """When the windows open now are over, of all sub-queries whose buckets move; None if that cannot be said of one."""
    ends = [
        plan.stages[sub].operator.drained_at(_mark(plan, manifest, sub))
        for family in plan.families
        if family[0] in found.buckets
        for sub in family
    ]
    return None if not ends or None in ends else max(end for end in ends if end is not None)


def _watermark(plan: Plan, manifest: Manifest, found: Moving) -> int:
    """The least watermark of the sub-queries whose buckets move."""
    return min((_mark(plan, manifest, sub) for sub in found.buckets), default=FOREVER)


def _mark(plan: Plan, manifest: Manifest, sub: str) -> int:
    streams = [manifest.streams.get(name) for name in plan.stages[sub].streams]
    return min((NEVER if s is None or s.watermark is None else s.watermark for s in streams), default=FOREVER)

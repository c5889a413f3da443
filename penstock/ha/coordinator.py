"""The coordinator of an HA unit: starts engines, notices lost ones, and starts what the scheme needs.

Each engine is a process of its own that outlives the coordinator. The coordinator keeps its knowledge in the
coordination store, so it can be killed at any moment: engines keep running, and the next coordinator finds them in
the store. Of several coordinators one is active, by lease; the others stand by. It decides nothing about epochs;
engines need it only to start new engines.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Protocol

from penstock.coordination.contract import Session
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError
from penstock.ha.needs import find_needs, find_returning, is_taking_over, next_secondary_time
from penstock.ha.unit import NODE, Kind, Unit, UnitEngine, UnitRecord
from penstock.ha.unit_controller import UnitController
from penstock.state.durable import make_private, open_private

#: how often it checks the unit
LOOK_SECONDS = 0.2
#: an engine that has not joined after this time counts as lost
_JOIN_SECONDS = 60.0
#: engines that may end with an error in a row, without an epoch between them
_STRIKES = 3
#: for so long after an outage of the coordination store, and a few leases more, engines are expected to join again
_RETURN_SECONDS = 10.0
#: the least time between two starts after an engine ended with an error
_PAUSE_SECONDS = 5.0

#: the logs of so many engines are kept, the latest
_LOGS = 50
#: how much of the end of a log is searched for an error
_TAIL_BYTES = 20_000

#: starts an engine; returns None if a node on another host does
Starter = Callable[[Unit, str, Kind], "subprocess.Popen[bytes] | None"]
#: the engines requested of nodes that will certainly not start
Watch = Callable[[Unit, UnitRecord], Collection[str]]


class LocalStarter(Protocol):
    """Starts an engine on this host."""

    def __call__(self, unit: Unit, name: str, kind: Kind, node: str = "") -> subprocess.Popen[bytes]: ...


def start_engine(unit: Unit, name: str, kind: Kind, node: str = "") -> subprocess.Popen[bytes]:
    """Start an engine in a process and a session of its own, so that no signal to this process and no end of it reaches
    the engine. `node`: the name of the node that it reports."""
    command = [sys.executable, "-m", "penstock.cli.engine_process"]
    log = unit.log(name)
    make_private(log.parent)
    with open(log, "ab", opener=open_private) as out:
        return subprocess.Popen(
            [*command, "--state", str(unit.root), "--name", name, "--kind", kind],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=unit.launch.folder,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), NODE: node},
        )


class Coordinator:
    """One coordinator. `run` returns when the unit is done, stopped or failed."""

    def __init__(
        self,
        unit: Unit,
        start: Starter = start_engine,
        report: Callable[[str], None] = print,
        watch: Watch = lambda unit, record: (),
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._unit, self._start, self._report, self._watch = unit, start, report, watch
        #: applies what was requested of this coordinator; called once, when it first has its lease
        self._prepare_unit: Callable[[], None] | None = prepare
        #: the phase of the unit when this coordinator first tried to acquire the lease
        self._first_phase: str | None = None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[str, UnitEngine] = {}
        #: all that were seen and whose processes may still be up
        self._known: dict[str, UnitEngine] = {}
        self._stop = threading.Event()
        self._not_before = 0.0
        #: when followers were lost that had not been asked to leave, while the leader was up
        self._losses: dict[str, float] = {}
        self._reported_wait = 0.0
        #: whether the last engine started here that ended did so with an error
        self._ended_with_error = False
        self._store_unavailable = False
        #: until then engines that an outage of the store has cut off are expected to join again
        self._returning_until = 0.0
        self._reported_leader: tuple[str | None, int] = (None, 0)
        self._reported_phase: dict[str, str] = {}
        self._controller = UnitController(unit, report)

    def stop(self) -> None:
        """Let all engines end after the epoch under way. May be called from a signal handler."""
        self._stop.set()

    def run(self, for_seconds: float | None = None) -> UnitRecord:
        """Coordinate the unit until it ends; returns its last record.

        If the lease is lost, because this process was paused or the coordination store was unreachable for too long,
        it tries to acquire it again. Meanwhile the engines keep running, or have ended too and are started again.
        """
        deadline = None if for_seconds is None else time.monotonic() + for_seconds
        session = self._unit.store.start_session(self._unit.launch.lease_seconds)
        while True:
            try:
                ended = self._supervise(session, deadline)
            finally:
                session.close()
            if ended is not None:
                return ended
            self._report("this coordinator has lost its lease and tries to acquire it again")
            session = self._start_session()

    def _start_session(self) -> Session:
        """Start another session, once the store is reachable."""
        while True:
            try:
                return self._unit.store.start_session(self._unit.launch.lease_seconds)
            except ExternalError as away:
                if away.condition != "STORE_UNAVAILABLE" or self._stop.is_set():
                    raise
                self._report_store(away)
            time.sleep(LOOK_SECONDS)

    def _supervise(self, session: Session, deadline: float | None) -> UnitRecord | None:
        """Acquire the lease and check the unit repeatedly; returns None when the session has ended."""
        leads = False
        with contextlib.suppress(ExternalError):
            self._unit.register_coordinator(session)
        while session.is_held():
            if deadline is not None and time.monotonic() >= deadline:
                self._stop.set()
            try:
                if not leads and not (leads := self._elect(session)):
                    return self._unit.record() if session.is_held() else None
                if self._prepare() and (ended := self._look()) is not None:
                    return ended
                self._report_store(None)
            except ExternalError as away:
                if away.condition != "STORE_UNAVAILABLE":
                    raise
                self._report_store(away)
            self._wait()
        return None

    def _report_store(self, away: ExternalError | None) -> None:
        """Report once that the coordination store is unreachable, and that it is back."""
        if away is not None and not self._store_unavailable:
            self._report(f"{away.text()} Until it is back, no engine is started.")
        if away is not None or self._store_unavailable:
            self._returning_until = time.monotonic() + _RETURN_SECONDS + 3 * self._unit.launch.lease_seconds
        if away is None and self._store_unavailable:
            self._report(f"the coordination store {self._unit.store.describe()} is back")
        self._store_unavailable = away is not None

    def _elect(self, session: Session) -> bool:
        waiting = False
        if self._first_phase is None:
            self._first_phase = self._unit.record().phase
        while session.is_held() and not (self._stop.is_set() and not self._children):
            lease: Lease | None = acquire(
                self._unit.store, self._unit.coordinator_path, session, seconds=LOOK_SECONDS
            )
            if lease is not None:
                return True
            if not waiting:
                self._report("another coordinator is active; this one stands by")
                waiting = True
            if self._first_phase == "running" and self._unit.record().phase not in ("running", "stopping"):
                return False
        return False

    def _prepare(self) -> bool:
        """Apply what was requested of this coordinator, once; returns whether that is done. Engines that have to stop
        end first. If the unit ended while this coordinator stood by, this coordinator ends too."""
        if self._prepare_unit is None:
            return True
        before = self._unit.record()
        ended = self._first_phase == "running" and before.phase != "running"
        if not ended and before.phase == "stopping" and self._unit.engines() and not self._stop.is_set():
            if self._first_phase != "waiting":
                self._report("the unit is stopping: it starts again when its engines have ended")
                self._first_phase = "waiting"
            return False
        if not ended and not self._stop.is_set():
            self._prepare_unit()
            if (scheme := self._unit.record().scheme) is not before.scheme:
                self._report(f"scheme {before.scheme} -> {scheme}")
        self._prepare_unit, self._first_phase = None, "running"
        return True

    def _wait(self) -> None:
        """Wait until the next check, or until an engine started here ends: others wait for its lease."""
        handles = []
        try:
            for child in self._children.values():
                with contextlib.suppress(OSError):
                    handles.append(os.pidfd_open(child.pid))
            select.select(handles, [], [], LOOK_SECONDS)
        finally:
            for handle in handles:
                os.close(handle)

    # -- one check -------------------------------------------------------------------------------

    def _look(self) -> UnitRecord | None:
        engines = self._unit.engines()
        record = self._record_changes(engines)
        self._report_engines(record, engines)
        if self._stop.is_set() and record.phase == "running":
            record = self._unit.change(
                lambda now: replace(now, phase="stopping") if now.phase == "running" else now
            )
        record = self._drop_pending(record)
        if record.phase != "running":
            for child in self._children.values():
                child.poll()
            waiting = [name for name, child in self._children.items() if child.returncode is None]
            return None if engines or waiting else self._unit.record()
        if self._is_hopeless(record, engines):
            self._unit.change(lambda now: replace(now, phase="failed"))
            return None
        if self._controller.look(record, engines) is not None:
            record = self._unit.record()
        self._supply(record, engines)
        return None

    def _record_changes(self, engines: dict[str, UnitEngine]) -> UnitRecord:
        """Record which engines have joined and which are lost."""
        now = time.time()
        lost = {name for name in self._seen if name not in engines}
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                lost.add(name)
                self._ended_with_error = child.returncode > 0
                self._report_end(name, child.returncode)
                del self._children[name]
                if name in engines:  # it has certainly ended: do not wait until its lease runs out
                    self._unit.store.end_session(engines[name].session)
        self._seen = {name: engine for name, engine in engines.items() if name not in lost}
        self._known = {name: engine for name, engine in {**self._known, **engines}.items() if engine.seems_up}

        unexpected: set[str] = set()

        def update(record: UnitRecord) -> UnitRecord:
            nonlocal unexpected
            unexpected = lost - {record.leader, *record.leaving} if record.leader in self._seen else set()
            pending = {
                name: (kind, at)
                for name, (kind, at) in record.pending.items()
                if name not in engines and name not in lost and now - at < _JOIN_SECONDS
            }
            before = {name: at for name, at in record.lost.items() if name not in self._seen}
            gone = {name: before.get(name, now) for name in lost}
            lost_at = dict(sorted({**gone, **before}.items(), key=lambda one: one[1])[-50:])
            recoveries = tuple(
                replace(one, failed_at=lost_at[one.lost])
                if one.failed_at is None and one.lost in lost_at and lost_at[one.lost] <= one.lease_at
                else one
                for one in record.recoveries
            )
            leaving = tuple(name for name in record.leaving if name in engines)
            return replace(record, pending=pending, lost=lost_at, leaving=leaving, recoveries=recoveries)

        record = self._unit.change(update)
        self._losses = dict.fromkeys(unexpected, time.monotonic()) | self._losses
        return record

    def _report_end(self, name: str, code: int) -> None:
        if code < 0:
            self._report(f"engine {name} was ended by signal {-code}")
        elif code > 0:
            log = self._unit.log(name)
            self._report(f"engine {name} ended with exit code {code}: {last_error(log)} (its log: {log})")

    def _drop_pending(self, record: UnitRecord) -> UnitRecord:
        """Stop waiting for engines that will not start."""
        never = {*self._watch(self._unit, record)} & {*record.pending}
        if not never:
            return record
        self._report(f"these engines will not start: {', '.join(sorted(never))}")
        return self._unit.change(
            lambda now: replace(
                now, pending={name: one for name, one in now.pending.items() if name not in never}
            )
        )

    def _is_hopeless(self, record: UnitRecord, engines: dict[str, UnitEngine]) -> bool:
        """Whether there is no leader, engines end with errors, and starting more does not help. Engines that are up or
        starting are given a try, unless several leaders in a row have ended with an error."""
        if not record.errors or record.leader in engines:
            return False
        up = [name for name, engine in engines.items() if engine.seems_up and name not in record.leaving]
        if up or record.pending:
            led = {record.leader, *(name for one in record.recoveries for name in (one.lost, one.leader))}
            return sum(error[0] in led for error in record.errors[-_STRIKES:]) == _STRIKES
        last = record.errors[-1]
        if last[1] == 2:  # the user has to change something
            return True
        reached = max(self._unit.shared_records.epochs(), default=-1)
        recent = [error for error in record.errors[-_STRIKES:] if error[3] >= reached - 1]
        return len(recent) == _STRIKES

    def _supply(self, record: UnitRecord, engines: dict[str, UnitEngine]) -> None:
        pending: dict[str, Kind] = {name: kind for name, (kind, _) in record.pending.items()}  # type: ignore[misc]
        needs = find_needs(record.scheme, record.leader, engines, record.leaving, pending)
        if needs.leave:
            self._unit.change(lambda now: replace(now, leaving=tuple(sorted({*now.leaving, *needs.leave}))))
        if is_taking_over(record, self._seen, time.time()):
            return  # a start beside it would slow it down
        after_outage = self._store_unavailable or time.monotonic() < self._returning_until
        lease_seconds = self._unit.launch.lease_seconds
        if find_returning(
            record, self._known, self._seen, time.time(), lease_seconds, after_outage=after_outage
        ):
            return
        for kind in needs.start:
            if time.monotonic() < self._not_before or (record.leader in self._seen and self._is_delayed()):
                continue
            self._not_before = time.monotonic() + (
                _PAUSE_SECONDS if record.errors or self._ended_with_error else 0.0
            )
            after = self._unit.change(
                lambda now, kind=kind: replace(  # type: ignore[misc]
                    now,
                    started=now.started + 1,
                    pending={**now.pending, f"e{now.started + 1}": (kind, time.time())},
                )
            )
            name = f"e{after.started}"
            self._remove_unused(after, engines)
            self._report(f"starting engine {name} ({kind})")
            child = self._start(self._unit, name, kind)
            if child is not None:
                self._children[name] = child

    def _is_delayed(self) -> bool:
        """Whether the next follower has to wait, because too many were lost recently."""
        now = time.monotonic()
        at = next_secondary_time(sorted(self._losses.values()), now)
        if at > now and at != self._reported_wait:
            self._reported_wait = at
            self._report(f"followers are lost repeatedly: the next one starts in {at - now:.0f} s")
        return at > now

    def _remove_unused(self, record: UnitRecord, engines: dict[str, UnitEngine]) -> None:
        """Remove the state of followers that are gone, and the logs of engines that are gone for long."""
        returning = find_returning(record, self._known, engines, time.time())
        used = {*engines, *record.pending, *returning, os.path.basename(record.directory)}
        folder = self._unit.shared / "replicas"
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name not in used:
                rmtree(folder / name, ignore_errors=True)
        logs = self._unit.log("any").parent
        for name in os.listdir(logs) if logs.is_dir() else ():
            engine = name.removesuffix(".log").removesuffix("-spark")
            if (
                re.fullmatch(r"e\d+", engine)
                and int(engine[1:]) <= record.started - _LOGS
                and engine not in used
            ):
                (logs / name).unlink(missing_ok=True)

    def _report_engines(self, record: UnitRecord, engines: dict[str, UnitEngine]) -> None:
        for name, engine in engines.items():
            if self._reported_phase.get(name) != engine.phase:
                self._report(f"engine {name} (process {engine.pid}): {engine.phase}")
                self._reported_phase[name] = engine.phase
        for name in [name for name in self._reported_phase if name not in engines]:
            self._report(f"engine {name} is gone")
            del self._reported_phase[name]
        if (record.leader, record.generation) != self._reported_leader and record.leader is not None:
            self._reported_leader = record.leader, record.generation
            self._report(f"engine {record.leader} leads (generation {record.generation})")


def last_error(log: Path) -> str:
    """The last error that an engine has printed, or else its last line."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError as failure:
        return f"its log cannot be read: {failure.strerror}"
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.match(r"\[[A-Z_]+\] ", line)]
    return next(iter(errors[-1:] or lines[-1:]), "it printed nothing")


def wait_for(unit: Unit, wanted: Callable[[UnitRecord, dict[str, UnitEngine]], bool], seconds: float) -> bool:
    """Wait until a condition holds for the unit, at most so long; returns whether it does."""
    deadline = time.monotonic() + seconds
    while not wanted(unit.record(), unit.engines()):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True

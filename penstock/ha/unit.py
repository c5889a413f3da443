"""Reads and changes what the engines of an HA unit share, in the coordination store and in the state directory.

units/NAME/record        scheme, state directory in use, leader, history: changed by compare-and-set
units/NAME/leader        the lease of the leader
units/NAME/coordinator   the lease of the active coordinator
units/NAME/controller    the last decision of the controller, and the loads it is based on
units/NAME/members       the engines with live sessions, and what each reports
units/NAME/coordinators  the coordinators with live sessions: the active one and those that stand by
STATE/ha/unit.json       how engines start, and where the coordination store is
STATE/ha/agreed/         the shared epoch records
STATE/ha/replicas/NAME/  the state of an engine that follows, or did before it was promoted
STATE/ha/logs/NAME.log   what an engine printed
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from penstock.coordination.address import open_store
from penstock.coordination.contract import Session, Store
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError, UserError
from penstock.ha.history import ReportedLoad
from penstock.ha.launch import Launch, read_launch, write_launch
from penstock.ha.schemes import SCHEMES, Scheme
from penstock.state.directory import REPLICAS, SHARED, StateDirectory
from penstock.state.shared_records import SharedRecords

#: passive: takes over on the unit's state directory; active: follows on a state directory of its own
Kind = Literal["passive", "active"]
#: the environment variable with the node of an engine
NODE = "PENSTOCK_NODE"
#: recoveries, and measurements of a figure, that are retained
KEPT = 50


def kind_of(scheme: Scheme) -> Kind | None:
    """The kind of the second engine in a scheme; None if there is none."""
    facts = SCHEMES[scheme]
    return None if not facts.up else "active" if facts.runs_epochs else "passive"


@dataclass(frozen=True)
class Recovery:
    """One failover or restart. Times are wall clock times in seconds since 1970."""

    lost: str
    leader: str
    generation: int
    scheme: str
    lease_at: float
    #: when the coordinator noticed the failure; None: it did not
    failed_at: float | None = None
    first_result_at: float | None = None
    first_epoch: int | None = None
    #: when the last epoch before the failure was committed
    last_result_at: float | None = None
    #: the estimate before the failure: in all, and of its steps alone
    estimated_seconds: float | None = None
    expected_seconds: float | None = None
    #: the recovery semantics, and what was lost or repeated, in all and by job (see `epoch.recovery`)
    semantics: str = "precise"
    outcome: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def began_at(self) -> float | None:
        """When the failure happened, or the last sign before it: the end of an engine that hangs is not noticed."""
        return self.last_result_at if self.failed_at is None else self.failed_at

    @property
    def detected_after(self) -> float | None:
        """Seconds from the failure to the new lease; an upper bound if the failure was not noticed."""
        return None if self.began_at is None else max(self.lease_at - self.began_at, 0.0)

    @property
    def first_result_after(self) -> float | None:
        """Seconds from the failure to the first result; an upper bound if the failure was not noticed."""
        if self.began_at is None or self.first_result_at is None:
            return None
        return self.first_result_at - self.began_at


@dataclass(frozen=True)
class UnitRecord:
    """What the engines of a unit agree on."""

    scheme: Scheme
    directory: str
    #: whether the controller chooses the scheme and the checkpoint interval
    controlled: bool = False
    checkpoint_every: int = 1
    phase: Literal["running", "stopping", "done", "failed"] = "running"
    leader: str | None = None
    generation: int = 0
    #: engines started so far; the number is part of their names
    started: int = 0
    #: kind and time of the start of engines that have not joined yet
    pending: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    #: engines asked to leave
    leaving: tuple[str, ...] = ()
    #: engines lost, and when that was noticed
    lost: Mapping[str, float] = field(default_factory=dict)
    #: errors with which engines ended since the last leader with results: name, exit code, text, last epoch
    errors: tuple[tuple[str, int, str, int], ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    #: changes of scheme: when, from, to
    switches: tuple[tuple[float, str, str], ...] = ()
    #: values of each figure, newest last (see `history.FIGURES`)
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_bytes(content: bytes) -> UnitRecord:
        known = {one.name for one in fields(UnitRecord)}
        plain = {name: value for name, value in json.loads(content).items() if name in known}
        return UnitRecord(
            **plain
            | {
                "scheme": Scheme(plain["scheme"]),
                "leaving": tuple(plain["leaving"]),
                "pending": {name: (kind, at) for name, (kind, at) in plain["pending"].items()},
                "errors": tuple(tuple(one) for one in plain["errors"]),
                "recoveries": tuple(Recovery(**one) for one in plain["recoveries"]),
                "switches": tuple(tuple(one) for one in plain["switches"]),
                "measured": {name: tuple(values) for name, values in plain["measured"].items()},
            }
        )

    def add_measurements(self, **figures: float) -> UnitRecord:
        """The record with these measurements added."""
        measured = dict(self.measured)
        for name, value in figures.items():
            measured[name] = (*measured.get(name, ())[1 - KEPT :], round(value, 4))
        return replace(self, measured=measured)


@dataclass(frozen=True)
class UnitEngine:
    """What an engine reports of itself."""

    pid: int
    host: str
    kind: Kind
    #: its session in the coordination store
    session: str = ""
    #: starting, ready (waits for the lease), following (executes the leader's epochs), primary (leads), leaving
    phase: str = "starting"
    directory: str = ""
    epoch: int = -1
    #: epochs whose results it holds back
    held: int = 0
    #: bytes of state it has in its cache
    cached_bytes: int = 0
    #: seconds of work in its backlog
    behind: float = 0.0
    #: whether it pauses so that the leader on its host has the machine to itself
    paused: bool = False
    since: float = 0.0
    #: the node that started it; "" if its coordinator did
    node: str = field(default_factory=lambda: os.environ.get(NODE, ""))
    #: whether some output needs its epochs repeated after a loss
    repeats: bool = False
    #: its recent load, if it leads
    load: ReportedLoad | None = None
    #: what it can read of the copies of replicated logs, if it follows (see `replica.copy_agreement`)
    reach: Mapping[str, Mapping[str, Mapping[str, list[int]]]] = field(default_factory=dict)
    #: engines that the leader does not wait for, and what they lack of replicated logs
    passed_over: Mapping[str, list[str]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_bytes(content: bytes) -> UnitEngine:
        plain = json.loads(content)
        load = plain.pop("load", None)
        return UnitEngine(**plain, load=ReportedLoad(**load) if load else None)

    @property
    def seems_up(self) -> bool:
        """Whether its process is up, as far as can be seen here: a session ends only after its timeout."""
        return seems_up(self.pid, self.host)


def seems_up(pid: int, host: str) -> bool:
    """Whether a process is up; True if it is on another host, where that cannot be seen."""
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Unit:
    """A unit, as one process sees it. Must be closed."""

    def __init__(self, root: Path, launch: Launch, store: Store) -> None:
        self.root, self.launch, self.store = root, launch, store
        self.shared = root / SHARED
        self.shared_records = SharedRecords(self.shared / "agreed")
        base = f"units/{launch.unit}"
        self.leader_path, self.coordinator_path = f"{base}/leader", f"{base}/coordinator"
        self._record, self._engines = f"{base}/record", f"{base}/members"
        self._controller, self._coordinators = f"{base}/controller", f"{base}/coordinators"

    @staticmethod
    def at(root: Path) -> Unit:
        """The unit on a state directory."""
        root = root.resolve()
        launch = read_launch(root)
        if launch is None:
            raise _no_unit(root)
        return Unit(root, launch, open_store(launch.coordination))

    @staticmethod
    def create(root: Path, launch: Launch) -> Unit:
        """Make a unit on a state directory, or change its launch; `ha.claim` checks whether that is allowed."""
        root = root.resolve()
        write_launch(root, launch)
        return Unit(root, launch, open_store(launch.coordination))

    def replica(self, engine: str) -> Path:
        """The state directory of a follower."""
        return self.shared / REPLICAS / engine

    def log(self, engine: str) -> Path:
        """The log file of an engine."""
        return self.shared / "logs" / f"{engine}.log"

    def renew_shared_records(self) -> None:
        """Only read the shared epoch records from now on: this process does not lead any more."""
        self.shared_records = SharedRecords(self.shared / "agreed")

    def require_launch(self) -> None:
        """Raise NO_UNIT if the unit is no longer on its state directory: nobody waits for it any more."""
        if read_launch(self.root) is None:
            raise _no_unit(self.root)

    # -- the record ------------------------------------------------------------------------------

    def record(self) -> UnitRecord:
        """The current record."""
        found = self.store.get(self._record)
        if found is None:
            raise ExternalError(
                "NO_UNIT_RECORD",
                f"the coordination store {self.store.describe()} has no unit {self.launch.unit}",
                hint="Start it with `penstock run APP --ha`, and with the same store as before.",
            )
        return UnitRecord.from_bytes(found.value)

    def create_record(self, first: UnitRecord) -> UnitRecord:
        """Create the record if there is none; returns the current one."""
        self.store.create(self._record, first.to_bytes())
        return self.record()

    def change(self, update: Callable[[UnitRecord], UnitRecord]) -> UnitRecord:
        """Change the record; the function may be called several times."""
        while True:
            found = self.store.get(self._record)
            if found is None:
                return self.record()  # raises
            before = UnitRecord.from_bytes(found.value)
            after = update(before)
            if (
                after == before
                or self.store.replace(self._record, after.to_bytes(), found.version) is not None
            ):
                return after

    def forget(self) -> None:
        """Remove the record, so that the unit starts from nothing; refused while engines are up."""
        self.require_down()
        found = self.store.get(self._record)
        if found is not None:
            self.store.delete(self._record, found.version)

    def switch_scheme(
        self, scheme: Scheme, *, controlled: bool | None = None, checkpoint_every: int | None = None
    ) -> UnitRecord:
        """Change the scheme and, if given, the checkpoint interval and whether the controller may change both."""

        def update(record: UnitRecord) -> UnitRecord:
            after = replace(
                record,
                controlled=record.controlled if controlled is None else controlled,
                checkpoint_every=checkpoint_every or record.checkpoint_every,
            )
            if record.scheme is scheme:
                return after
            change = (time.time(), str(record.scheme), str(scheme))
            return replace(after, scheme=scheme, switches=(*record.switches[1 - KEPT :], change))

        return self.change(update)

    def controller(self) -> dict[str, Any]:
        """What the controller has stored; empty before its first turn."""
        found = self.store.get(self._controller)
        return {} if found is None else dict(json.loads(found.value))

    def save_controller(self, plain: Mapping[str, Any]) -> None:
        """Store what the controller knows; only the active coordinator does."""
        content = json.dumps(plain).encode()
        found = self.store.get(self._controller)
        if found is None:
            self.store.create(self._controller, content)
        else:
            self.store.replace(self._controller, content, found.version)

    def find_committed(self) -> int:
        """The last epoch that the leader is known to have committed, and so delivered; -1 before the first."""
        record = self.record()
        leader = self.engines().get(record.leader or "")
        reported = leader.epoch if leader is not None and leader.phase == "primary" else -1
        durable, recorded = (
            StateDirectory(Path(record.directory)).manifests.epochs(),
            self.shared_records.epochs(),
        )
        # an engine that records an epoch has committed the one before
        return max(*durable[-1:], *(epoch - 1 for epoch in recorded[-1:]), reported, -1)

    def is_followable(self) -> bool:
        """Whether a leader has committed an epoch of the shared epoch records."""
        epochs = self.shared_records.epochs()
        return bool(epochs) and self.record().leader is not None and self.find_committed() >= epochs[0]

    # -- engines ---------------------------------------------------------------------------------

    def engines(self) -> dict[str, UnitEngine]:
        """The engines with live sessions."""
        return {
            name: UnitEngine.from_bytes(content)
            for name, content in self.store.members(self._engines).items()
        }

    def join(self, session: Session, name: str, engine: UnitEngine) -> bool:
        """Register an engine, or change what is reported of it."""
        return session.join(self._engines, name, engine.to_bytes())

    def primary(self, other: str) -> UnitEngine | None:
        """The leader, if it is up and not the engine of this name."""
        name = self.record().leader
        leader = self.engines().get(name or "")
        return leader if name != other and leader is not None and leader.seems_up else None

    def register_coordinator(self, session: Session) -> None:
        """Register a coordinator of the unit for the life of a session."""
        me = {"pid": os.getpid(), "host": socket.gethostname()}
        session.join(self._coordinators, session.id, json.dumps(me).encode())

    def list_up(self) -> list[str]:
        """The names of engines and coordinators that are up."""
        names = [name for name, engine in self.engines().items() if engine.seems_up]
        others = [json.loads(content) for content in self.store.members(self._coordinators).values()]
        return names + [f"coordinator {one['pid']}" for one in others if seems_up(one["pid"], one["host"])]

    def require_down(self) -> None:
        """Raise UNIT_RUNNING while engines or coordinators are up."""
        if up := self.list_up():
            raise ExternalError(
                "UNIT_RUNNING",
                f"the unit on {self.root} is still up: {', '.join(up)}",
                hint="Stop it first: `penstock ha stop --state DIR`.",
            )

    def lease(
        self, session: Session, own: Sequence[Path], seconds: float, *, preempt: bool = False
    ) -> Lease | None:
        """The leader's lease, if it becomes free within so many seconds, or at once if its holder is to lose it. Its
        generation is above all that have written to the unit's state or to the directories in `own`."""

        def above() -> int:
            places = [Path(self.record().directory), *own]
            newest = [StateDirectory(place).newest_generation for place in places]
            return max(self.shared_records.newest_generation, *newest)

        return acquire(self.store, self.leader_path, session, above=above, seconds=seconds, preempt=preempt)

    def close(self) -> None:
        self.store.close()


def _no_unit(root: Path) -> UserError:
    return UserError(
        "NO_UNIT",
        f"no HA unit was started on {root}",
        hint="Start one with `penstock run APP --ha --state DIR`.",
    )


def unit_name(app: str, root: Path) -> str:
    """The name of the unit of an app on a state directory, the same in every process."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", app).strip(".-")[:80] or "app"
    return f"{readable}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:8]}"

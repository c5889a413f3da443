"""An HA unit: several engines that together run one application, as the coordination store knows it.

    units/NAME/record        scheme, state directory in force, who leads, what happened: changes by compare-and-set
    units/NAME/leader        the lease of whoever leads
    units/NAME/coordinator   the lease of the coordinator at work
    units/NAME/controller    what the controller has decided last, and from which loads
    units/NAME/members       the engines whose sessions live, and what each says of itself
    units/NAME/coordinators  the coordinators whose sessions live: the one at work, and those that stand by
    STATE/ha/unit.json       how engines are started, and where the coordination store is
    STATE/ha/agreed/         what the epochs consist of
    STATE/ha/replicas/NAME/  the state of an engine that follows, or did before it came to lead
    STATE/ha/logs/NAME.log   what an engine printed

Receives changes from the coordinator and the engines; hands each of them, and people, the record in force.
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

#: what an engine is started as: to take over on the unit's directory, or to follow on one of its own
Kind = Literal["passive", "active"]
#: says to an engine on which node it is
NODE = "PENSTOCK_NODE"
#: recoveries and measurements of a figure that are kept
KEPT = 50


def kind_of(scheme: Scheme) -> Kind | None:
    """The kind of secondary a scheme asks for."""
    facts = SCHEMES[scheme]
    return None if not facts.up else "active" if facts.runs_epochs else "passive"


@dataclass(frozen=True)
class Recovery:
    """One change of leader. Times are the wall clock's, in seconds since 1970."""

    lost: str
    leader: str
    generation: int
    scheme: str
    lease_at: float
    #: when the failure was seen to have happened; None: nobody was watching
    failed_at: float | None = None
    first_result_at: float | None = None
    first_epoch: int | None = None
    #: when the last epoch before it was committed
    last_result_at: float | None = None
    #: what had been reckoned with: in all, and by its steps alone
    estimated_seconds: float | None = None
    expected_seconds: float | None = None
    #: what it was to keep, and what it did lose or repeat, in all and by job (see `engine.comeback`)
    semantics: str = "precise"
    outcome: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def began_at(self) -> float | None:
        """When the failure happened, or the last sign that it had not: of an engine that hangs nobody sees the end."""
        return self.last_result_at if self.failed_at is None else self.failed_at

    @property
    def detected_after(self) -> float | None:
        """Where the failure was not seen: at most."""
        return None if self.began_at is None else max(self.lease_at - self.began_at, 0.0)

    @property
    def first_result_after(self) -> float | None:
        """Where the failure was not seen: at most."""
        if self.began_at is None or self.first_result_at is None:
            return None
        return self.first_result_at - self.began_at


@dataclass(frozen=True)
class UnitRecord:
    """What the unit's members agree on."""

    scheme: Scheme
    directory: str
    #: whether the controller picks the scheme, and the epochs from one durable manifest to the next
    controlled: bool = False
    checkpoint_every: int = 1
    phase: Literal["running", "stopping", "done", "failed"] = "running"
    leader: str | None = None
    generation: int = 0
    #: engines started so far: each has a number for its name
    started: int = 0
    #: names given, and when, until the engine has joined
    pending: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    #: engines asked to leave
    leaving: tuple[str, ...] = ()
    #: engines lost, and when that was seen
    lost: Mapping[str, float] = field(default_factory=dict)
    #: errors that engines ended with since one came to lead and had results: name, exit code, text, the epoch it had
    #: come to
    errors: tuple[tuple[str, int, str, int], ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    #: changes of scheme: when, from, to
    switches: tuple[tuple[float, str, str], ...] = ()
    #: figure: values, newest last (see `history.FIGURES`)
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_bytes(content: bytes) -> UnitRecord:
        said = json.loads(content)
        known = {one.name for one in fields(UnitRecord)}
        said = {name: value for name, value in said.items() if name in known}
        return UnitRecord(
            **said
            | {
                "scheme": Scheme(said["scheme"]),
                "leaving": tuple(said["leaving"]),
                "pending": {name: (kind, at) for name, (kind, at) in said["pending"].items()},
                "errors": tuple(tuple(one) for one in said["errors"]),
                "recoveries": tuple(Recovery(**one) for one in said["recoveries"]),
                "switches": tuple(tuple(one) for one in said["switches"]),
                "measured": {name: tuple(values) for name, values in said["measured"].items()},
            }
        )

    def add_measurements(self, **figures: float) -> UnitRecord:
        """With these measurements too."""
        measured = dict(self.measured)
        for name, value in figures.items():
            measured[name] = (*measured.get(name, ())[1 - KEPT :], round(value, 4))
        return replace(self, measured=measured)


@dataclass(frozen=True)
class Member:
    """What an engine says of itself."""

    pid: int
    host: str
    kind: Kind
    #: its session in the coordination store
    session: str = ""
    #: starting, ready (waits for the lease), following (runs the leader's epochs), primary, leaving
    phase: str = "starting"
    directory: str = ""
    epoch: int = -1
    #: epochs whose rows it holds back
    held: int = 0
    #: bytes of state it has in its cache
    cached_bytes: int = 0
    #: seconds of work that wait for it
    behind: float = 0.0
    #: whether it pauses, so that the primary on its host has the machine to itself
    paused: bool = False
    since: float = 0.0
    #: the node that started it; "": its coordinator did
    node: str = field(default_factory=lambda: os.environ.get(NODE, ""))
    #: whether some output of what it runs would have its epochs repeated after a loss
    repeats: bool = False
    #: what it did of late, if it leads
    load: ReportedLoad | None = None
    #: what it reaches of the copies of replicated logs, if it does not lead (see `engine.copies`)
    reach: Mapping[str, Mapping[str, Mapping[str, list[int]]]] = field(default_factory=dict)
    #: the engines that are not waited for, if it leads, and what of replicated logs they lack
    passed_over: Mapping[str, list[str]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_bytes(content: bytes) -> Member:
        """What an engine has said of itself."""
        said = json.loads(content)
        load = said.pop("load", None)
        return Member(**said, load=ReportedLoad(**load) if load else None)

    @property
    def seems_up(self) -> bool:
        """Whether its process is there, where we can see it: a session is seen to end only after a while."""
        return seems_up(self.pid, self.host)


def seems_up(pid: int, host: str) -> bool:
    """Whether a process is there, where we can see that."""
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
    """A unit, seen by one process. To be closed."""

    def __init__(self, root: Path, launch: Launch, store: Store) -> None:
        self.root, self.launch, self.store = root, launch, store
        self.shared = root / SHARED
        self.shared_records = SharedRecords(self.shared / "agreed")
        base = f"units/{launch.unit}"
        self.leader_path, self.coordinator_path = f"{base}/leader", f"{base}/coordinator"
        self._record, self._members = f"{base}/record", f"{base}/members"
        self._controller, self._coordinators = f"{base}/controller", f"{base}/coordinators"

    @staticmethod
    def at(root: Path) -> Unit:
        """The unit that was started on a state directory."""
        root = root.resolve()
        launch = read_launch(root)
        if launch is None:
            raise UserError(
                "NO_UNIT",
                f"no HA unit was started on {root}",
                hint="Start one with `penstock run APP --ha --state DIR`.",
            )
        return Unit(root, launch, open_store(launch.coordination))

    @staticmethod
    def create(root: Path, launch: Launch) -> Unit:
        """A unit on a state directory, started with this from now on. Whether it may be is for `ha.claim` to say."""
        root = root.resolve()
        write_launch(root, launch)
        return Unit(root, launch, open_store(launch.coordination))

    def replica(self, member: str) -> Path:
        """Where an engine that follows has its state."""
        return self.shared / REPLICAS / member

    def log(self, member: str) -> Path:
        """Where what an engine prints goes."""
        return self.shared / "logs" / f"{member}.log"

    # -- the record ------------------------------------------------------------------------------

    def record(self) -> UnitRecord:
        """The record in force."""
        found = self.store.get(self._record)
        if found is None:
            raise ExternalError(
                "NO_UNIT_RECORD",
                f"the coordination store {self.store.describe()} knows no unit {self.launch.unit}",
                hint="Start it with `penstock run APP --ha`; with another store it would be another unit.",
            )
        return UnitRecord.from_bytes(found.value)

    def create_record(self, first: UnitRecord) -> UnitRecord:
        """The record in force; this one if there is none."""
        self.store.create(self._record, first.to_bytes())
        return self.record()

    def change(self, changed: Callable[[UnitRecord], UnitRecord]) -> UnitRecord:
        """Change the record; the function may be asked several times."""
        while True:
            found = self.store.get(self._record)
            if found is None:
                return self.record()  # raises
            before = UnitRecord.from_bytes(found.value)
            after = changed(before)
            if (
                after == before
                or self.store.replace(self._record, after.to_bytes(), found.version) is not None
            ):
                return after

    def forget(self) -> None:
        """Remove the record, for a unit that begins anew; refused while engines are up."""
        self.require_down()
        found = self.store.get(self._record)
        if found is not None:
            self.store.delete(self._record, found.version)

    def switch_scheme(
        self, scheme: Scheme, *, controlled: bool | None = None, checkpoint_every: int | None = None
    ) -> UnitRecord:
        """Ask for another scheme; and for another checkpoint interval, and whether the controller may change both."""

        def switched(record: UnitRecord) -> UnitRecord:
            after = replace(
                record,
                controlled=record.controlled if controlled is None else controlled,
                checkpoint_every=checkpoint_every or record.checkpoint_every,
            )
            if record.scheme is scheme:
                return after
            change = (time.time(), str(record.scheme), str(scheme))
            return replace(after, scheme=scheme, switches=(*record.switches[1 - KEPT :], change))

        return self.change(switched)

    def controller(self) -> dict[str, Any]:
        """What the controller has kept; nothing before its first turn."""
        found = self.store.get(self._controller)
        return {} if found is None else dict(json.loads(found.value))

    def save_controller(self, said: Mapping[str, Any]) -> None:
        """Keep what the controller knows; only the coordinator at work does."""
        content = json.dumps(said).encode()
        found = self.store.get(self._controller)
        if found is None:
            self.store.create(self._controller, content)
        else:
            self.store.replace(self._controller, content, found.version)

    def find_committed(self) -> int:
        """The last epoch that whoever leads is known to have committed, and so delivered; -1 before the first."""
        record = self.record()
        leads = self.members().get(record.leader or "")
        said = leads.epoch if leads is not None and leads.phase == "primary" else -1
        kept, recorded = StateDirectory(Path(record.directory)).epochs(), self.shared_records.epochs()
        # whoever records an epoch has committed the one before
        return max(*kept[-1:], *(epoch - 1 for epoch in recorded[-1:]), said, -1)

    def is_followable(self) -> bool:
        """Whether somebody has led, and committed an epoch that is in the unit's book."""
        epochs = self.shared_records.epochs()
        return bool(epochs) and self.record().leader is not None and self.find_committed() >= epochs[0]

    # -- members ---------------------------------------------------------------------------------

    def members(self) -> dict[str, Member]:
        """The engines whose sessions live."""
        return {name: Member.from_bytes(said) for name, said in self.store.members(self._members).items()}

    def join(self, session: Session, name: str, member: Member) -> bool:
        """Be a member, or say something else of oneself."""
        return session.join(self._members, name, member.to_bytes())

    def primary(self, other: str) -> Member | None:
        """The engine that leads, if it is up and another than this one."""
        leads = self.record().leader
        found = self.members().get(leads or "")
        return found if leads != other and found is not None and found.seems_up else None

    def register_coordinator(self, session: Session) -> None:
        """Be known as a coordinator of the unit as long as a session lives."""
        me = {"pid": os.getpid(), "host": socket.gethostname()}
        session.join(self._coordinators, session.id, json.dumps(me).encode())

    def list_up(self) -> list[str]:
        """The engines that are up, and the coordinators."""
        engines = [name for name, member in self.members().items() if member.seems_up]
        others = [json.loads(said) for said in self.store.members(self._coordinators).values()]
        return engines + [f"coordinator {one['pid']}" for one in others if seems_up(one["pid"], one["host"])]

    def require_down(self) -> None:
        """Raise UNIT_RUNNING while engines or coordinators are up."""
        if up := self.list_up():
            raise ExternalError(
                "UNIT_RUNNING",
                f"of the unit on {self.root} there are up: {', '.join(up)}",
                hint="Stop it first: `penstock ha stop --state DIR`.",
            )

    def lease(self, session: Session, own: Sequence[Path], seconds: float) -> Lease | None:
        """The lease of whoever leads, if it is free within so many seconds. Its generation is above all that have
        written to the unit's state, or to directories of one's own."""

        def above() -> int:
            places = [Path(self.record().directory), *own]
            newest = [StateDirectory(place).newest_generation for place in places]
            return max(self.shared_records.newest_generation, *newest)

        return acquire(self.store, self.leader_path, session, above=above, seconds=seconds)

    def close(self) -> None:
        self.store.close()


def unit_name(app: str, root: Path) -> str:
    """The name of the unit of an app on a state directory: the same wherever it is asked for."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", app).strip(".-")[:80] or "app"
    return f"{readable}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:8]}"

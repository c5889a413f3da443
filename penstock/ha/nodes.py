"""Nodes: hosts on which engines of units are started, so that the work of one that is lost is spread over several.

Receives what the coordinators of units ask for; hands engines, each a process of its own on the node's host. All lies
in the coordination store, which units that share nodes share, as they share the file system with their states.

    nodes/up/NODE                  the nodes that are up
    nodes/asked/NODE/UNIT:ENGINE   engines that a node is to start
    nodes/places/UNIT              the nodes of a unit's engines, as of when one was placed last

Invariants:
- What is asked of a node is done once: who removes the request does it.
- A secondary is not put on its primary's node while there is another node, and no engine on that of one just lost
  while there is another that suits.
- Nothing stays asked of a node that is down while the unit's coordinator is at work.
- A request that cannot be met is told, and ends nobody but itself.
Does not guarantee that an engine which was asked for comes up: its coordinator asks again when it has not joined.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.coordination.contract import Store
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ha.coordinator import Launched, started
from penstock.ha.placement import choose_node
from penstock.ha.unit import Kind, Unit, UnitRecord

_UP, _ASKED, _PLACES = "nodes/up", "nodes/asked", "nodes/places"
#: how often a node looks for what is asked of it, in seconds
LOOK_SECONDS = 0.2


def start_on_node(
    unit: Unit, name: str, kind: Kind, local: Launched = started
) -> subprocess.Popen[bytes] | None:
    """Have an engine started on the node where it belongs; by ourselves where there are no nodes."""
    up = sorted(unit.store.members(_UP))
    if not up:
        return local(unit, name, kind)
    mine = unit.launch.unit
    seen = _Location.of(unit.store, mine, unit.record())
    node = _choose(seen, [_Location.of(unit.store, *one) for one in _others(unit.store, mine)], up)
    _withdraw(unit.store, mine, seen.lost)
    _save_places(unit.store, mine, {**seen.there, name: node})
    said = json.dumps({"state": str(unit.root), "engine": name, "kind": kind}).encode()
    unit.store.create(f"{_ASKED}/{node}/{mine}:{name}", said)
    return None


def cancel_requests(unit: Unit, record: UnitRecord) -> set[str]:
    """The engines that were asked of nodes which are not up any more; of a unit that has ended, all. What was asked is
    taken back. To be called at every look: only who keeps watching the nodes sees that one has died."""
    up, runs = unit.store.members(_UP), record.phase == "running"
    if runs and not record.pending and not record.leaving:
        return set()
    mine = unit.launch.unit
    places = _places(unit.store, mine)
    never = {
        name: node for name, node in places.items() if not runs or (name in record.pending and node not in up)
    }
    _withdraw(unit.store, mine, never)
    # whoever is let go is not lost: its node is as good as before
    kept = {name: node for name, node in places.items() if runs and name not in record.leaving}
    if kept != places:
        _save_places(unit.store, mine, kept)
    return {*never}


@dataclass(frozen=True)
class _Location:
    """Where the engines of a unit are."""

    #: the node of each engine that has joined or is about to; "" where its coordinator has started it
    there: Mapping[str, str]
    #: the engine that leads, or will if nothing goes wrong
    first: str | None
    #: whether it leads
    leads: bool
    #: the node of each engine that was lost since one was placed last
    lost: Mapping[str, str]

    @staticmethod
    def of(store: Store, unit: str, record: UnitRecord) -> _Location:
        said = {name: json.loads(one) for name, one in store.members(f"units/{unit}/members").items()}
        places = _places(store, unit)
        there = {name: str(one["node"]) for name, one in said.items()}
        there |= {name: places[name] for name in record.pending if name in places and name not in there}
        first = record.leader if record.leader in there else next(iter(there), None)
        leads = first in said and first == record.leader and said[first]["phase"] == "primary"
        lost = {name: node for name, node in places.items() if name not in there}
        return _Location(there, first, leads, lost)

    @property
    def home(self) -> str:
        return self.there.get(self.first or "", "")

    @property
    def secondaries(self) -> list[tuple[str, str]]:
        """The primary's node and its own, of each."""
        return [(self.home, node) for name, node in self.there.items() if name != self.first]


def _choose(mine: _Location, others: Sequence[_Location], up: Sequence[str]) -> str:
    """The first engine goes where the fewest primaries are, a secondary by interleaving."""
    avoided = {*mine.lost.values()}
    if mine.leads:
        there = [one for other in others for one in other.secondaries]
        return choose_node(mine.home, there, up, avoided)
    load = Counter(other.home for other in others)
    return min(up, key=lambda node: (node in avoided, load[node], node))


def _others(store: Store, mine: str) -> Iterator[tuple[str, UnitRecord]]:
    """The other units that run."""
    for unit in store.children(_PLACES):
        found = store.get(f"units/{unit}/record") if unit != mine else None
        if found is not None and (record := UnitRecord.from_bytes(found.value)).phase == "running":
            yield unit, record


def _places(store: Store, unit: str) -> dict[str, str]:
    found = store.get(f"{_PLACES}/{unit}")
    return {} if found is None else dict(json.loads(found.value))


def _save_places(store: Store, unit: str, places: Mapping[str, str]) -> None:
    path = f"{_PLACES}/{unit}"
    content = json.dumps({name: node for name, node in places.items() if node}).encode()
    before = store.get(path)
    if before is None:
        store.create(path, content)
    else:
        store.replace(path, content, before.version)


def _withdraw(store: Store, unit: str, asked: Mapping[str, str]) -> None:
    for name, node in asked.items():
        path = f"{_ASKED}/{node}/{unit}:{name}"
        if (found := store.get(path)) is not None:
            store.delete(path, found.version)


class Node:
    """One node. `run` returns when it is stopped; the engines it has started go on."""

    def __init__(
        self, store: Store, name: str, start: Launched = started, tell: Callable[[str], None] = print
    ) -> None:
        self._store, self.name, self._start, self._tell = store, name, start, tell
        self._engines: dict[str, tuple[Unit, str, subprocess.Popen[bytes]]] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """Start no engine any more. May be called from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Start what is asked for until stopped; raises LEASE_LOST when others have seen us end."""
        session = self._store.start_session()
        try:
            if not session.join(_UP, self.name, b"{}"):
                raise UserError(
                    "NODE_TAKEN", f"a node {self.name} is up already", hint="Give each a --name of its own."
                )
            while not self._stop.wait(LOOK_SECONDS):
                if not session.is_held():
                    raise ExternalError("LEASE_LOST", f"the node {self.name} was taken for dead")
                try:
                    self.look()
                except ExternalError as away:
                    if away.condition != "STORE_UNAVAILABLE":
                        raise
        finally:
            session.close()
            for unit, _, _ in self._engines.values():
                unit.close()

    def look(self) -> None:
        """Start what is asked for, and make known which engines have ended: nobody has to wait for their leases."""
        for asked in self._store.children(f"{_ASKED}/{self.name}"):
            path = f"{_ASKED}/{self.name}/{asked}"
            found = self._store.get(path)
            if found is not None and self._store.delete(path, found.version):
                self._begin(asked, found.value)
        for asked, (unit, engine, child) in list(self._engines.items()):
            if child.poll() is not None:
                if (member := unit.members().get(engine)) is not None:
                    self._store.end_session(member.session)
                del self._engines[asked]
                unit.close()

    def _begin(self, asked: str, content: bytes) -> None:
        """Start an engine. Where that cannot be done here, its coordinator sees that nobody joins."""
        unit: Unit | None = None
        try:
            said = json.loads(content)
            unit = Unit.at(Path(said["state"]))
            kind: Kind = "active" if said["kind"] == "active" else "passive"
            child = self._start(unit, said["engine"], kind, self.name)
            self._engines[asked] = unit, said["engine"], child
        except (PenstockError, OSError, KeyError, TypeError, ValueError) as failure:
            self._tell(f"{asked} cannot be started here: {failure!r}")
            if unit is not None:
                unit.close()

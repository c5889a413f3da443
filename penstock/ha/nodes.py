"""Starts engines of HA units on several hosts (nodes), so that the work of a lost host is spread over the others.

Coordinators request engines through the coordination store; nodes start them, each as a process of its own. Units that
share nodes share the store and the file system with their state directories.

    nodes/up/NODE                  the nodes that are up
    nodes/asked/NODE/UNIT:ENGINE   engines that a node has to start
    nodes/places/UNIT              the nodes of a unit's engines when one was last placed

Invariants:
- A request is executed once: by the node that removes it.
- A follower is not placed on its leader's node if there is another node, and no engine on the node of one just lost if
  another node is suitable.
- No request remains for a node that is down while the unit's coordinator is active.
- A request that fails is reported and affects no other.
Does not guarantee that a requested engine starts: its coordinator requests another if it does not join.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.coordination.contract import Store
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ha.coordinator import LocalStarter, start_engine
from penstock.ha.unit import Kind, Unit, UnitRecord

_UP, _REQUESTS, _PLACES = "nodes/up", "nodes/asked", "nodes/places"
#: how often a node checks for requests
LOOK_SECONDS = 0.2


def choose_node(
    home: str, secondaries: Iterable[tuple[str, str]], nodes: Collection[str], avoided: Collection[str] = ()
) -> str:
    """The node of the next follower of a leader at `home`. `secondaries`: for each existing follower, the node of its
    leader and its own; `avoided`: nodes that are chosen only if there is no other besides `home`.

    In whatever order units are placed, while the nodes stay the same, the followers of one node's leaders are spread
    evenly over the other nodes, give or take one.
    """
    placed = list(secondaries)
    load = Counter(node for _, node in placed)
    from_home = Counter(node for primary, node in placed if primary == home)
    others = [node for node in nodes if node != home] or list(nodes)
    suiting = [node for node in others if node not in avoided] or others
    return min(suiting, key=lambda node: (from_home[node], load[node], node))


def start_on_node(
    unit: Unit, name: str, kind: Kind, local: LocalStarter = start_engine
) -> subprocess.Popen[bytes] | None:
    """Request an engine of the node where it belongs; start it here if there are no nodes."""
    up = sorted(unit.store.members(_UP))
    if not up:
        return local(unit, name, kind)
    mine = unit.launch.unit
    location = _Location.of(unit.store, mine, unit.record())
    node = _choose(location, [_Location.of(unit.store, *one) for one in _others(unit.store, mine)], up)
    _withdraw(unit.store, mine, location.lost)
    _save_places(unit.store, mine, {**location.nodes, name: node})
    request = json.dumps({"state": str(unit.root), "engine": name, "kind": kind}).encode()
    unit.store.create(f"{_REQUESTS}/{node}/{mine}:{name}", request)
    return None


def cancel_requests(unit: Unit, record: UnitRecord) -> set[str]:
    """Cancel the requests to nodes that are down, or all if the unit has ended; returns the names of the engines. Must
    be called at every check, because only then a lost node is noticed."""
    up, runs = unit.store.members(_UP), record.phase == "running"
    if runs and not record.pending and not record.leaving:
        return set()
    mine = unit.launch.unit
    places = _places(unit.store, mine)
    never = {
        name: node for name, node in places.items() if not runs or (name in record.pending and node not in up)
    }
    _withdraw(unit.store, mine, never)
    # an engine that leaves is not lost: its node remains suitable
    remaining = {name: node for name, node in places.items() if runs and name not in record.leaving}
    if remaining != places:
        _save_places(unit.store, mine, remaining)
    return {*never}


@dataclass(frozen=True)
class _Location:
    """Where the engines of a unit are."""

    #: the node of each engine that has joined or is about to; "" if its coordinator has started it
    nodes: Mapping[str, str]
    #: the leader, or the engine expected to lead
    first: str | None
    #: whether it leads
    leads: bool
    #: the node of each engine that was lost since one was last placed
    lost: Mapping[str, str]

    @staticmethod
    def of(store: Store, unit: str, record: UnitRecord) -> _Location:
        engines = {name: json.loads(one) for name, one in store.members(f"units/{unit}/members").items()}
        places = _places(store, unit)
        nodes = {name: str(one["node"]) for name, one in engines.items()}
        nodes |= {name: places[name] for name in record.pending if name in places and name not in nodes}
        first = record.leader if record.leader in nodes else next(iter(nodes), None)
        leads = first in engines and first == record.leader and engines[first]["phase"] == "primary"
        lost = {name: node for name, node in places.items() if name not in nodes}
        return _Location(nodes, first, leads, lost)

    @property
    def home(self) -> str:
        return self.nodes.get(self.first or "", "")

    @property
    def secondaries(self) -> list[tuple[str, str]]:
        """The leader's node and its own, of each follower."""
        return [(self.home, node) for name, node in self.nodes.items() if name != self.first]


def _choose(mine: _Location, others: Sequence[_Location], up: Sequence[str]) -> str:
    """The first engine goes to the node with the fewest leaders, a follower by interleaved placement."""
    avoided = {*mine.lost.values()}
    if mine.leads:
        secondaries = [one for other in others for one in other.secondaries]
        return choose_node(mine.home, secondaries, up, avoided)
    load = Counter(other.home for other in others)
    return min(up, key=lambda node: (node in avoided, load[node], node))


def _others(store: Store, mine: str) -> Iterator[tuple[str, UnitRecord]]:
    """The other running units."""
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


def _withdraw(store: Store, unit: str, requests: Mapping[str, str]) -> None:
    for name, node in requests.items():
        path = f"{_REQUESTS}/{node}/{unit}:{name}"
        if (found := store.get(path)) is not None:
            store.delete(path, found.version)


class Node:
    """One node. `run` returns when it is stopped; the engines it has started keep running."""

    def __init__(
        self,
        store: Store,
        name: str,
        start: LocalStarter = start_engine,
        report: Callable[[str], None] = print,
    ) -> None:
        self._store, self.name, self._start, self._report = store, name, start, report
        self._engines: dict[str, tuple[Unit, str, subprocess.Popen[bytes]]] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """Start no more engines. May be called from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Execute requests until stopped; raises LEASE_LOST if this node's session has ended."""
        session = self._store.start_session()
        try:
            if not session.join(_UP, self.name, b"{}"):
                raise UserError(
                    "NODE_TAKEN", f"a node {self.name} is up already", hint="Give each node its own --name."
                )
            while not self._stop.wait(LOOK_SECONDS):
                if not session.is_held():
                    raise ExternalError("LEASE_LOST", f"the session of node {self.name} has ended")
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
        """Execute new requests, and end the sessions of engines that have ended: nobody waits for their leases then."""
        for request in self._store.children(f"{_REQUESTS}/{self.name}"):
            path = f"{_REQUESTS}/{self.name}/{request}"
            found = self._store.get(path)
            if found is not None and self._store.delete(path, found.version):
                self._start_requested(request, found.value)
        for request, (unit, engine, child) in list(self._engines.items()):
            if child.poll() is not None:
                if (ended := unit.engines().get(engine)) is not None:
                    self._store.end_session(ended.session)
                del self._engines[request]
                unit.close()

    def _start_requested(self, request: str, content: bytes) -> None:
        """Start an engine. If that fails, its coordinator notices that it does not join."""
        unit: Unit | None = None
        try:
            plain = json.loads(content)
            unit = Unit.at(Path(plain["state"]))
            kind: Kind = "active" if plain["kind"] == "active" else "passive"
            child = self._start(unit, plain["engine"], kind, self.name)
            self._engines[request] = unit, plain["engine"], child
        except (PenstockError, OSError, KeyError, TypeError, ValueError) as failure:
            self._report(f"{request} cannot be started here: {failure!r}")
            if unit is not None:
                unit.close()

"""Nodes: hosts on which engines of units are started, so that the work of one that is lost is spread over several.

Receives what the coordinators of units ask for; hands engines, each a process of its own on the node's host. All lies
in the coordination store, which units that share nodes share, as they share the file system with their states.

    nodes/up/NODE                  the nodes that are up
    nodes/asked/NODE/UNIT:ENGINE   engines that a node is to start
    nodes/homes/UNIT               the node of a unit's primary

Invariants:
- What is asked of a node is done once: who removes the request does it.
- A secondary is not on its primary's node while there is another node.
Does not guarantee that an engine which was asked for comes up: its coordinator asks again when it has not joined.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from pathlib import Path

from penstock.coordination.contract import Store
from penstock.ha.coordinator import Launched, started
from penstock.ha.placement import interleaved
from penstock.ha.unit import Kind, Unit, UnitRecord
from penstock.words.errors import ExternalError, PenstockError, UserError

_UP, _ASKED, _HOMES = "nodes/up", "nodes/asked", "nodes/homes"
#: how often a node looks for what is asked of it, in seconds
LOOK_SECONDS = 0.2


def on_nodes(unit: Unit, name: str, kind: Kind, local: Launched = started) -> subprocess.Popen[bytes] | None:
    """Have an engine started on the node where it belongs; by ourselves where there are no nodes."""
    node = placed(unit)
    if node is None:
        return local(unit, name, kind)
    said = json.dumps({"state": str(unit.root), "engine": name, "kind": kind}).encode()
    unit.store.create(f"{_ASKED}/{node}/{unit.launch.unit}:{name}", said)
    return None


def placed(unit: Unit) -> str | None:
    """The node of the next engine of a unit; None where no node is up.

    The first goes where the fewest primaries are, a secondary by interleaving.
    """
    up = sorted(unit.store.members(_UP))
    if not up:
        return None
    mine, others = unit.launch.unit, _homes(unit.store)
    others.pop(mine, None)
    primary = unit.members().get(unit.record().leader or "")
    if primary is not None and primary.phase == "primary":
        home = primary.node
        chosen = interleaved({**others, mine: home}, up).get(mine, home)
    else:
        carried = Counter(others.values())
        home = chosen = min(up, key=lambda node: (carried[node], node))
    _keep_home(unit.store, mine, home)
    return chosen


def _homes(store: Store) -> dict[str, str]:
    """The nodes of the primaries of units that run."""
    found = {}
    for unit in store.children(_HOMES):
        home, record = store.get(f"{_HOMES}/{unit}"), store.get(f"units/{unit}/record")
        if home is not None and record is not None and UnitRecord.from_bytes(record.value).phase == "running":
            found[unit] = home.value.decode()
    return found


def _keep_home(store: Store, unit: str, node: str) -> None:
    path = f"{_HOMES}/{unit}"
    before = store.get(path)
    if before is None:
        store.create(path, node.encode())
    elif before.value != node.encode():
        store.replace(path, node.encode(), before.version)


class Node:
    """One node. `run` returns when it is stopped; the engines it has started go on."""

    def __init__(self, store: Store, name: str, start: Launched = started) -> None:
        self._store, self.name, self._start = store, name, start
        self._engines: dict[str, tuple[Unit, str, subprocess.Popen[bytes]]] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """Start no engine any more. May be called from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Start what is asked for until stopped; raises LEASE_LOST when others have seen us end."""
        session = self._store.session()
        try:
            if not session.join(_UP, self.name, b"{}"):
                raise UserError(
                    "NODE_TAKEN", f"a node {self.name} is up already", hint="Give each a --name of its own."
                )
            while not self._stop.wait(LOOK_SECONDS):
                if not session.held():
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
                self._begin(asked, json.loads(found.value))
        for asked, (unit, engine, child) in list(self._engines.items()):
            if child.poll() is not None:
                if (member := unit.members().get(engine)) is not None:
                    self._store.end(member.session)
                del self._engines[asked]
                unit.close()

    def _begin(self, asked: str, said: dict[str, str]) -> None:
        try:
            unit = Unit.at(Path(said["state"]))
        except PenstockError:
            return  # its state is not here: the coordinator sees that nobody joins
        kind: Kind = "active" if said["kind"] == "active" else "passive"
        child = self._start(unit, said["engine"], kind, self.name)
        self._engines[asked] = unit, said["engine"], child

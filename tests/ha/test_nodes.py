"""Nodes: engines are started where they belong, once, and a lost node's work is spread over the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import pytest

from penstock.coordination.address import store_at
from penstock.coordination.contract import Session
from penstock.ha.nodes import Node, on_nodes, placed
from penstock.ha.placement import after_loss
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Launch, Member, Unit, UnitRecord
from penstock.words.errors import UserError
from tests.ha.unit_kit import Kit

NAMES = ("n0", "n1", "n2")


class Engines:
    """Engines on paper: members of their units, and no processes. The first of a unit leads."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.sessions: dict[tuple[str, str], Session] = {}
        self.ended: set[tuple[str, str]] = set()

    def __call__(self, unit: Unit, name: str, kind: Kind, node: str = "") -> Popen[bytes]:
        me = unit.launch.unit, name
        self.started.append(me)
        session = self.sessions[me] = unit.store.session(30.0)
        first = unit.record().leader is None
        phase = "primary" if first else "ready"
        assert unit.join(session, name, Member(1, "h", kind, session.id, phase=phase, node=node))
        if first:
            unit.change(lambda now: replace(now, leader=name))
        poll = lambda: 0 if me in self.ended else None  # noqa: E731
        return cast("Popen[bytes]", type("Paper", (), {"poll": staticmethod(poll)}))


class World:
    """A store, nodes that run in threads, and units. To be closed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engines = folder, Engines()
        self.nodes: dict[str, tuple[Node, threading.Thread]] = {}
        self.units: list[Unit] = []
        self._stores: list[Any] = []

    def node(self, name: str) -> Node:
        store = store_at(str(self.folder / "store"))
        self._stores.append(store)
        node = Node(store, name, self.engines)
        thread = threading.Thread(target=node.run, daemon=True)
        thread.start()
        self.nodes[name] = node, thread
        until(lambda: name in store.members("nodes/up"))
        return node

    def lost(self, name: str) -> None:
        node, thread = self.nodes.pop(name)
        node.stop()
        thread.join()

    def unit(self, name: str) -> Unit:
        launch = Launch(name, str(self.folder / "store"), "app.py", str(self.folder))
        unit = Unit.made(self.folder / name, launch)
        unit.begun(UnitRecord(Scheme.passive_hot, str(unit.root)))
        self.units.append(unit)
        return unit

    def start(self, unit: Unit, engine: str) -> str:
        """Have an engine started; the node it is on."""
        assert on_nodes(unit, engine, "passive") is None
        until(lambda: engine in unit.members())
        return unit.members()[engine].node

    def close(self) -> None:
        for name in list(self.nodes):
            self.lost(name)
        for session in self.engines.sessions.values():
            session.close()
        for one in (*self.units, *self._stores):
            one.close()


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_lost_nodes_work_is_spread_over_the_others(world: World) -> None:
    for name in NAMES:
        world.node(name)
    units = [world.unit(f"u{number}") for number in range(6)]
    primaries = {unit.launch.unit: world.start(unit, "e1") for unit in units}
    assert Counter(primaries.values()) == dict.fromkeys(NAMES, 2)
    secondaries = {unit.launch.unit: world.start(unit, "e2") for unit in units}
    for lost in NAMES:
        taken_over = after_loss(primaries, secondaries, lost)
        assert taken_over == {name: 1 for name in NAMES if name != lost}
    # a node is lost: where its engines are needed again, they go to those that are left
    world.lost("n0")
    until(lambda: "n0" not in units[0].store.members("nodes/up"))
    moved = next(unit for unit in units if secondaries[unit.launch.unit] == "n0")
    assert world.start(moved, "e3") not in ("n0", primaries[moved.launch.unit])


def test_what_is_asked_for_is_started_once_and_its_end_made_known(world: World) -> None:
    node = world.node("n0")
    unit = world.unit("u")
    assert world.start(unit, "e1") == "n0"
    node.look()
    assert world.engines.started == [("u", "e1")]
    world.engines.ended.add(("u", "e1"))
    until(lambda: "e1" not in unit.members(), 20.0)
    with pytest.raises(UserError, match="NODE_TAKEN"):
        Node(unit.store, "n0", world.engines).run()


def test_with_one_node_both_are_there_and_without_any_the_coordinator_starts_them(world: World) -> None:
    unit = world.unit("u")
    assert placed(unit) is None
    assert on_nodes(unit, "e1", "passive", world.engines) is not None
    assert unit.members()["e1"].node == ""
    world.node("n0")
    assert world.start(unit, "e2") == "n0"


def test_a_unit_that_has_ended_counts_no_more(world: World) -> None:
    for name in ("n0", "n1"):
        world.node(name)
    first, second, third = (world.unit(name) for name in ("a", "b", "c"))
    assert [world.start(first, "e1"), world.start(second, "e1")] == ["n0", "n1"]
    second.change(lambda now: replace(now, phase="done"))
    assert world.start(third, "e1") == "n1"


@pytest.mark.kill
@pytest.mark.timeout(240)
def test_a_unit_on_two_nodes_survives_its_primary(tmp_path: Path) -> None:
    address = str(tmp_path / "store")
    stores = [store_at(address) for _ in range(2)]
    nodes = [Node(store, name) for store, name in zip(stores, NAMES, strict=False)]
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    until(lambda: len(stores[0].members("nodes/up")) == 2)
    kit = Kit(tmp_path / "unit", Scheme.active_standby, coordination=address)
    try:
        kit.feeder.go()
        kit.until("another follows", lambda: kit.secondary("following"))
        kit.flowing()
        first = kit.leader()
        assert first is not None
        assert sorted(member.node for member in kit.members().values()) == ["n0", "n1"]
        kit.kill(first)
        kit.until("another leads", lambda: kit.leader() not in (None, first))
        kit.until("there is a secondary again", lambda: kit.secondary("following"))
        assert sorted(member.node for member in kit.members().values()) == ["n0", "n1"]
        kit.finish()
    finally:
        kit.close()
        for node, thread, store in zip(nodes, threads, stores, strict=True):
            node.stop()
            thread.join()
            store.close()

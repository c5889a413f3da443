"""Nodes: each engine is started once, where placement puts it; a lost node's load is spread over the others."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import pytest

from penstock.coordination.address import open_store
from penstock.coordination.contract import Session
from penstock.errors import UserError
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.nodes import Node, cancel_requests, start_on_node
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Unit, UnitEngine, UnitRecord
from tests.ha.unit_kit import Kit
from tests.ha.waiting import wait_until

NAMES = ("n0", "n1", "n2")


class Engines:
    """Simulated engines of units, without processes. The first one of a unit leads."""

    def __init__(self) -> None:
        #: how long their sessions live without a heartbeat
        self.seconds = 30.0
        self.started: list[tuple[str, str]] = []
        self.sessions: dict[tuple[str, str], Session] = {}
        self.ended: set[tuple[str, str]] = set()

    def __call__(self, unit: Unit, name: str, kind: Kind, node: str = "") -> Popen[bytes]:
        me = unit.launch.unit, name
        self.started.append(me)
        session = self.sessions[me] = unit.store.start_session(self.seconds)
        first = unit.record().leader not in unit.engines()
        phase = "primary" if first else "ready"
        if first:
            unit.change(lambda now: replace(now, leader=name))
        assert unit.join(session, name, UnitEngine(1, "h", kind, session.id, phase=phase, node=node))
        poll = lambda: 0 if me in self.ended else None  # noqa: E731
        return cast("Popen[bytes]", type("SimulatedProcess", (), {"poll": staticmethod(poll)}))


class World:
    """A store, nodes that run in threads, and units; call `close` at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engines = folder, Engines()
        self.nodes: dict[str, tuple[Node, threading.Thread]] = {}
        self.units: list[Unit] = []
        self._stores: list[Any] = []
        self._coordinators: list[tuple[Coordinator, threading.Thread]] = []

    def start_node(self, name: str) -> Node:
        store = open_store(str(self.folder / "store"))
        self._stores.append(store)
        node = Node(store, name, self.engines)
        thread = threading.Thread(target=node.run, daemon=True)
        thread.start()
        self.nodes[name] = node, thread
        wait_until("the node is registered", lambda: name in store.members("nodes/up"))
        return node

    def stop_node(self, name: str) -> None:
        node, thread = self.nodes.pop(name)
        node.stop()
        thread.join()

    def start_coordinator(self, unit: Unit) -> None:
        coordinator = Coordinator(unit, start_on_node, lambda _: None, cancel_requests)
        thread = threading.Thread(target=coordinator.run, daemon=True)
        thread.start()
        self._coordinators.append((coordinator, thread))

    def create_unit(self, name: str, scheme: Scheme = Scheme.passive_hot) -> Unit:
        launch = Launch(name, str(self.folder / "store"), "app.py", str(self.folder))
        unit = Unit.create(self.folder / name, launch)
        unit.create_record(UnitRecord(scheme, str(unit.root)))
        self.units.append(unit)
        return unit

    def start_engine(self, unit: Unit, engine: str) -> str:
        """Request an engine; return the node that starts it."""
        assert start_on_node(unit, engine, "passive") is None
        wait_until("the engine is registered", lambda: engine in unit.engines())
        return unit.engines()[engine].node

    def close(self) -> None:
        for coordinator, _ in self._coordinators:
            coordinator.stop()
        for name in list(self.nodes):
            self.stop_node(name)
        for session in self.engines.sessions.values():
            session.close()
        for _, thread in self._coordinators:
            thread.join(60)
        for one in (*self.units, *self._stores):
            one.close()


def stop_heartbeats(session: Session) -> None:
    """End a session's heartbeats without closing it, as when its host dies."""
    session._closing.set()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_lost_nodes_load_is_spread_over_the_others(world: World) -> None:
    for name in NAMES:
        world.start_node(name)
    units = [world.create_unit(f"u{number}") for number in range(6)]
    leaders = {unit.launch.unit: world.start_engine(unit, "e1") for unit in units}
    assert Counter(leaders.values()) == dict.fromkeys(NAMES, 2)
    followers = {unit.launch.unit: world.start_engine(unit, "e2") for unit in units}
    for lost in NAMES:
        taken_over = Counter(node for unit, node in followers.items() if leaders[unit] == lost)
        assert taken_over == {name: 1 for name in NAMES if name != lost}
    # engines of a lost node are started again on those that are left
    world.stop_node("n0")
    wait_until("the node is gone", lambda: "n0" not in units[0].store.members("nodes/up"))
    moved = next(unit for unit in units if followers[unit.launch.unit] == "n0")
    assert world.start_engine(moved, "e3") not in ("n0", leaders[moved.launch.unit])


@pytest.mark.slow
def test_followers_are_interleaved_when_units_come_one_after_the_other(world: World) -> None:
    for name in NAMES:
        world.start_node(name)
    homes, followers = {}, {}
    for name in "zyxwv":
        unit = world.create_unit(name)
        homes[name], followers[name] = world.start_engine(unit, "e1"), world.start_engine(unit, "e2")
    assert homes == {"z": "n0", "y": "n1", "x": "n2", "w": "n0", "v": "n1"}
    for lost in ("n0", "n1"):
        taken_over = Counter(node for unit, node in followers.items() if homes[unit] == lost)
        assert taken_over == {name: 1 for name in NAMES if name != lost}


def test_a_requested_engine_is_started_once_and_leaves_when_its_process_ends(world: World) -> None:
    node = world.start_node("n0")
    unit = world.create_unit("u")
    assert world.start_engine(unit, "e1") == "n0"
    node.look()
    assert world.engines.started == [("u", "e1")]
    world.engines.ended.add(("u", "e1"))
    wait_until("the engine has left", lambda: "e1" not in unit.engines(), 20.0)
    with pytest.raises(UserError, match="NODE_TAKEN"):
        Node(unit.store, "n0", world.engines).run()


@pytest.mark.slow
def test_a_request_to_a_node_that_dies_is_withdrawn_and_made_to_another(world: World) -> None:
    unit = world.create_unit("u", Scheme.passive_replication)
    dead_node = unit.store.start_session(5.0)
    assert dead_node.join("nodes/up", "n0", b"{}")
    world.start_node("n1")
    world.start_coordinator(unit)
    wait_until("an engine is requested", lambda: unit.store.children("nodes/asked/n0") == ["u:e1"])
    stop_heartbeats(dead_node)
    wait_until("another engine is registered", lambda: "e2" in unit.engines(), 60.0)
    assert unit.engines()["e2"].node == "n1"
    assert unit.store.children("nodes/asked/n0") == []
    assert "e1" not in unit.record().pending


@pytest.mark.slow
def test_the_host_of_a_leader_that_just_died_is_not_asked_for_its_successor(world: World) -> None:
    world.start_node("n1")
    assert world.start_engine(world.create_unit("v"), "e1") == "n1"
    unit = world.create_unit("u", Scheme.passive_replication)
    host = unit.store.start_session(12.0)  # seen to be gone well after its engine
    assert host.join("nodes/up", "n0", b"{}")
    world.engines.seconds = 5.0
    world.start_coordinator(unit)
    wait_until("an engine is requested", lambda: unit.store.children("nodes/asked/n0") == ["u:e1"])
    Node(unit.store, "n0", world.engines).look()
    wait_until("nothing is pending", lambda: unit.record().pending == {})
    stop_heartbeats(host)
    stop_heartbeats(world.engines.sessions["u", "e1"])
    wait_until("another engine is registered", lambda: "e2" in unit.engines(), 60.0)
    assert unit.engines()["e2"].node == "n1"
    assert world.engines.started == [("v", "e1"), ("u", "e1"), ("u", "e2")]


def test_the_node_of_an_engine_that_left_or_of_a_finished_unit_is_used_again(world: World) -> None:
    for name in NAMES:
        world.start_node(name)
    unit = world.create_unit("u")
    assert [world.start_engine(unit, "e1"), world.start_engine(unit, "e2")] == ["n0", "n1"]
    cancel_requests(unit, unit.change(lambda now: replace(now, leaving=("e2",))))
    world.engines.sessions["u", "e2"].close()
    assert world.start_engine(unit, "e3") == "n1"
    world.engines.sessions["u", "e3"].close()
    assert world.start_engine(unit, "e4") == "n2"
    for name in ("e1", "e4"):
        world.engines.sessions["u", name].close()
    assert cancel_requests(unit, replace(unit.record(), phase="done")) == {"e1", "e4"}
    assert world.start_engine(unit, "e5") == "n0"


@pytest.mark.process
def test_a_request_that_fails_does_not_end_the_node(world: World) -> None:
    unit = world.create_unit("u")
    nowhere = Unit.create(
        world.folder / "v", Launch("v", str(world.folder / "store"), "app.py", str(world.folder / "gone"))
    )
    world.units.append(nowhere)
    reports: list[str] = []
    node = Node(unit.store, "n0", report=reports.append)
    requests = {
        "v:e1": json.dumps({"state": str(nowhere.root), "engine": "e1", "kind": "passive"}),  # no such folder
        "v:e2": json.dumps({"state": str(world.folder / "none"), "engine": "e2", "kind": "passive"}),
        "v:e3": json.dumps({"state": str(nowhere.root)}),
        "v:e4": json.dumps(["state"]),
        "v:e5": "{",
    }
    for key, request in requests.items():
        assert unit.store.create(f"nodes/asked/n0/{key}", request.encode())
    node.look()
    assert [line.split()[0] for line in reports] == sorted(requests)
    assert unit.store.children("nodes/asked/n0") == []
    world.start_node("n0")
    assert world.start_engine(unit, "e1") == "n0"


def test_one_node_gets_both_engines_and_without_nodes_the_coordinator_starts_them(world: World) -> None:
    unit = world.create_unit("u")
    assert start_on_node(unit, "e1", "passive", world.engines) is not None
    assert unit.engines()["e1"].node == ""
    world.start_node("n0")
    assert world.start_engine(unit, "e2") == "n0"


def test_a_finished_unit_does_not_count_for_placement(world: World) -> None:
    for name in ("n0", "n1"):
        world.start_node(name)
    first, second, third = (world.create_unit(name) for name in ("a", "b", "c"))
    assert [world.start_engine(first, "e1"), world.start_engine(second, "e1")] == ["n0", "n1"]
    second.change(lambda now: replace(now, phase="done"))
    assert world.start_engine(third, "e1") == "n1"


@pytest.mark.kill
@pytest.mark.timeout(240)
def test_a_unit_on_two_nodes_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    address = str(tmp_path / "store")
    stores = [open_store(address) for _ in range(2)]
    nodes = [Node(store, name) for store, name in zip(stores, NAMES, strict=False)]
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    wait_until("both nodes are registered", lambda: len(stores[0].members("nodes/up")) == 2)
    kit = Kit(tmp_path / "unit", Scheme.active_standby, coordination=address)
    try:
        kit.feeder.start()
        kit.wait_until("another follows", lambda: kit.follower("following"))
        kit.wait_for_epochs()
        first = kit.leader()
        assert first is not None
        assert sorted(engine.node for engine in kit.engines().values()) == ["n0", "n1"]
        kit.kill(first)
        kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
        kit.wait_until("there is a follower again", lambda: kit.follower("following"))
        assert sorted(engine.node for engine in kit.engines().values()) == ["n0", "n1"]
        kit.finish()
    finally:
        kit.close()
        for node, thread, store in zip(nodes, threads, stores, strict=True):
            node.stop()
            thread.join()
            store.close()

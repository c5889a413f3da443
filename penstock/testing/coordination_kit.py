"""Fixtures for the tests of a coordination store, and child processes that the tests watch, kill and pause.

Each function of a connection and a store is the work of a child.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from penstock.coordination.contract import Session, Store
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError
from penstock.moved import former_overrides

OpenStore = Callable[[str], Store]
DEADLINE_SECONDS = 60.0
#: long enough for a busy machine, short enough to wait for
SESSION_SECONDS = 5.0
#: a session that ends only when it is closed
LONG_SECONDS = 30.0


class Child:
    """A process that works with the store and answers questions."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._here, there = _child_context().Pipe()
        self._process: BaseProcess = _child_context().Process(
            target=work, args=(there, *arguments), daemon=True
        )
        self._process.start()
        there.close()

    def receive(self) -> Any:
        assert self._here.poll(DEADLINE_SECONDS), "the child process does not answer"
        return self._here.recv()

    def send(self, question: str) -> None:
        self._here.send(question)

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@cache
def _child_context() -> ForkServerContext:
    """The context that forks children in milliseconds, from a process that has loaded their modules."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["penstock.testing.coordination_contract", "penstock.coordination.zookeeper"]
    )
    return context


def count_forever(_: Connection, open_store: OpenStore, address: str, path: str) -> None:
    store = open_store(address)
    while True:
        found = store.get(path)
        if found is None:
            store.create(path, b"1")
        else:
            store.replace(path, b"%d" % (int(found.value) + 1), found.version)


def join_as_member(there: Connection, open_store: OpenStore, address: str, path: str) -> None:
    session = open_store(address).start_session(SESSION_SECONDS)
    assert session.join(path, "child", b"here")
    there.send(session.id)
    there.recv()


def hold_lease(there: Connection, open_store: OpenStore, address: str, path: str, ahead: float = 0.0) -> None:
    real = time.time
    time.time = lambda: real() + ahead
    store = open_store(address)
    session: Session = store.start_session(SESSION_SECONDS)
    lease: Lease | None = acquire(store, path, session, seconds=DEADLINE_SECONDS)
    assert lease is not None
    there.send(lease.generation)
    while True:
        there.recv()
        try:
            lease.check()
            there.send("held")
        except ExternalError as lost:
            there.send(lost.condition)


def observe(there: Connection, open_store: OpenStore, address: str, session: str) -> None:
    store = open_store(address)
    while True:
        there.send(store.is_alive(session))
        there.recv()


def read_count(store: Store, path: str) -> int:
    found = store.get(path)
    return 0 if found is None else int(found.value)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


@former_overrides(opened="open_store")
class StoreFixtures:
    """Fixtures. A subclass defines `open_store` and the fixture `address`.

    They are the store, the same store as another process opens it, a path that nobody uses, and child processes.
    """

    @staticmethod
    def open_store(address: str) -> Store:
        """A new store object; static, so that it can be sent to a child process."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, address: str) -> Iterator[Store]:
        store = self.open_store(address)
        yield store
        store.close()

    @pytest.fixture
    def other(self, address: str) -> Iterator[Store]:
        """The same store, as another process opens it."""
        store = self.open_store(address)
        yield store
        store.close()

    @pytest.fixture
    def path(self) -> str:
        """A path nobody else uses."""
        return f"test/{uuid.uuid4().hex}"

    @pytest.fixture
    def child(self, address: str) -> Iterator[Callable[..., Child]]:
        """Starts processes that work with the store; they are killed at the end."""
        started: list[Child] = []

        def start(work: Callable[..., None], *arguments: object) -> Child:
            started.append(Child(work, self.open_store, address, *arguments))
            return started[-1]

        yield start
        for process in started:
            process.kill()

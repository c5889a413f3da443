"""Processes that use a coordination store while the contract's tests watch, kill and pause them.

Receives how a store is opened; hands a `Child` that answers. Each function below is what a child does.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.coordination.contract import Session, Store
from penstock.coordination.lease import Lease, acquire
from penstock.errors import ExternalError

Opened = Callable[[str], Store]
DEADLINE_SECONDS = 60.0
#: long enough for a busy machine, short enough to wait for
SESSION_SECONDS = 5.0


class Child:
    """A process that does something with the store, and answers."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._here, there = _starting().Pipe()
        self._process: BaseProcess = _starting().Process(target=work, args=(there, *arguments), daemon=True)
        self._process.start()
        there.close()

    def says(self) -> Any:
        assert self._here.poll(DEADLINE_SECONDS), "no word from the other process"
        return self._here.recv()

    def asks(self, question: str) -> None:
        self._here.send(question)

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@cache
def _starting() -> ForkServerContext:
    """Children are forked from a process that has loaded what they need, and run nothing yet: in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["penstock.testing.coordination_contract", "penstock.coordination.zookeeper"]
    )
    return context


def count_on(_: Connection, opened: Opened, address: str, path: str) -> None:
    store = opened(address)
    while True:
        found = store.get(path)
        if found is None:
            store.create(path, b"1")
        else:
            store.replace(path, b"%d" % (int(found.value) + 1), found.version)


def be_member(there: Connection, opened: Opened, address: str, path: str) -> None:
    session = opened(address).start_session(SESSION_SECONDS)
    assert session.join(path, "child", b"here")
    there.send(session.id)
    there.recv()


def hold(there: Connection, opened: Opened, address: str, path: str, ahead: float = 0.0) -> None:
    real = time.time
    time.time = lambda: real() + ahead
    store = opened(address)
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


def observe(there: Connection, opened: Opened, address: str, session: str) -> None:
    store = opened(address)
    while True:
        there.send(store.is_alive(session))
        there.recv()


def counted(store: Store, path: str) -> int:
    found = store.get(path)
    return 0 if found is None else int(found.value)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)

"""The coordination store on ZooKeeper, for several machines.

    ROOT/records/a/b        the record a/b: "+" and its value; a node without "+" only has others below it
    ROOT/sessions/ID        a session: an ephemeral node
    ROOT/members/GROUP/NAME a member: an ephemeral node

Receives `host:port,host:port/root`; needs the package `kazoo` (`pip install penstock[zookeeper]`).

Guarantees: as the contract. ZooKeeper ends a session some time after the last word it heard from it; a session here
counts its time from before it last asked for its own node and got it, and so ends first. A session that ZooKeeper has
ended does not go on in another one, though the connection does.
Does not guarantee that a session ends in time when the server's `maxSessionTimeout` is below the timeout asked for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from penstock.coordination.contract import (
    TIMEOUT_SECONDS,
    Record,
    Session,
    Store,
    checked,
    clock,
    unavailable,
)

#: how long an answer is waited for
_ANSWER_SECONDS = 10.0
#: what matters of what it says we say ourselves; the rest is several lines a second while a server is away
_KAZOO = logging.getLogger("kazoo")
#: how a broken connection is tried again: kazoo's own way soon waits longer than a session lives
_AGAIN = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}


class ZooKeeperStore(Store):
    """A store below a root node of a ZooKeeper."""

    def __init__(self, hosts: str, *, answer_seconds: float = _ANSWER_SECONDS) -> None:
        servers, _, root = hosts.partition("/")
        self._hosts, self._root = servers, "/" + "/".join(checked(root or "penstock"))
        self._answer_seconds = answer_seconds
        if _KAZOO.level == logging.NOTSET:
            _KAZOO.setLevel(logging.CRITICAL)
        self._news = threading.Condition()
        self._changes = 0
        with self._reporting():
            self._client = self._connected(TIMEOUT_SECONDS * 5)

    # -- records ---------------------------------------------------------------------------------

    def get(self, path: str) -> Record | None:
        with self._reporting():
            return self._get(self._node(path))

    def create(self, path: str, value: bytes) -> int | None:
        node, content = self._node(path), b"+" + value
        with self._reporting():
            while True:
                try:
                    self._said(self._client.create_async(node, content, makepath=True))
                    return 0
                except NodeExistsError:
                    pass
                try:
                    found, stat = self._asked("get", node)
                    if found[:1] == b"+":
                        return None
                    return int(self._said(self._client.set_async(node, content, stat.version)).version)
                except NoNodeError:
                    continue
                except BadVersionError:
                    return None

    def replace(self, path: str, value: bytes, version: int) -> int | None:
        with self._reporting():
            try:
                change = self._client.set_async(self._node(path), b"+" + value, version)
                return int(self._said(change).version)
            except (BadVersionError, NoNodeError):
                return None

    def delete(self, path: str, version: int) -> bool:
        node = self._node(path)
        with self._reporting():
            try:
                try:
                    self._said(self._client.delete_async(node, version))
                except NotEmptyError:
                    self._said(self._client.set_async(node, b"", version))
            except (BadVersionError, NoNodeError):
                return False
        return True

    def children(self, path: str) -> list[str]:
        node = self._node(path)
        with self._reporting():
            return sorted(name for name in self._below(node) if self._has_record(f"{node}/{name}"))

    def wait(self, path: str, seen: int | None, seconds: float) -> Record | None:
        node, deadline = self._node(path), clock() + seconds
        while True:
            with self._news:
                changes = self._changes
            with self._reporting():
                found = self._get(node, watch=self._changed)
            if (None if found is None else found.version) != seen or clock() >= deadline:
                return found
            with self._news:
                self._news.wait_for(lambda: self._changes != changes, max(0.0, deadline - clock()))  # noqa: B023

    def _changed(self, _: Any) -> None:
        with self._news:
            self._changes += 1
            self._news.notify_all()

    def _get(self, node: str, watch: Any = None) -> Record | None:
        while True:
            try:
                value, stat = self._asked("get", node, watch)
            except NoNodeError:
                if watch is None or self._asked("exists", node, watch) is None:
                    return None
                continue
            return Record(value[1:], int(stat.version)) if value[:1] == b"+" else None

    def _below(self, node: str) -> list[str]:
        try:
            names: list[str] = self._asked("get_children", node)
        except NoNodeError:
            return []
        return names

    def _has_record(self, node: str) -> bool:
        if self._get(node) is not None:
            return True
        return any(self._has_record(f"{node}/{name}") for name in self._below(node))

    # -- sessions and members --------------------------------------------------------------------

    def session(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Session:
        with self._reporting():
            return ZooKeeperSession(self, timeout_seconds)

    def alive(self, session: str) -> bool:
        with self._reporting():
            return self._asked("exists", self._session_node(session)) is not None

    def end(self, session: str) -> None:
        with self._reporting(), contextlib.suppress(NoNodeError):
            self._said(self._client.delete_async(self._session_node(session)))

    def members(self, group: str) -> Mapping[str, bytes]:
        folder, found = self._group(group), {}
        with self._reporting():
            for name in sorted(self._below(folder)):
                with contextlib.suppress(NoNodeError):
                    found[name] = bytes(self._asked("get", f"{folder}/{name}")[0])
        return found

    def describe(self) -> str:
        return f"zk://{self._hosts}{self._root}"

    def close(self) -> None:
        _closed(self._client)

    def _node(self, path: str) -> str:
        return "/".join((self._root, "records", *checked(path)))

    def _session_node(self, session: str) -> str:
        return "/".join((self._root, "sessions", *checked(session)))

    def _group(self, group: str) -> str:
        return f"{self._root}/members/{'@'.join(checked(group))}"

    def _connected(self, timeout_seconds: float) -> KazooClient:
        client = KazooClient(self._hosts, timeout=timeout_seconds, connection_retry=dict(_AGAIN))
        try:
            client.start(timeout=self._answer_seconds)
        except BaseException:
            _closed(client)
            raise
        return client

    def _said(self, answer: Any, seconds: float | None = None) -> Any:
        return answer.get(timeout=self._answer_seconds if seconds is None else seconds)

    def _asked(self, question: str, node: str, *more: Any) -> Any:
        """What a question is answered with; it is put again when the connection breaks, which a change cannot be."""
        deadline = clock() + self._answer_seconds
        while True:
            left = max(0.01, deadline - clock())
            try:
                return self._said(getattr(self._client, f"{question}_async")(node, *more), left)
            except (ConnectionLoss, SessionExpiredError):
                if clock() >= deadline:
                    raise

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (KazooException, KazooTimeoutError) as failure:
            raise unavailable(self.describe(), failure) from failure


class ZooKeeperSession(Session):
    """A session of ZooKeeper's, on a connection of its own."""

    def __init__(self, store: ZooKeeperStore, timeout_seconds: float) -> None:
        self._store = store
        self._client = store._connected(timeout_seconds)
        super().__init__(uuid.uuid4().hex, timeout_seconds)
        self._owner = self._client.client_id[0]
        self._node = store._session_node(self.id)
        self._client.add_listener(self._heard)
        try:
            store._said(self._client.create_async(self._node, b"", ephemeral=True, makepath=True))
        except BaseException:
            _closed(self._client)
            raise
        self._thread.start()

    def join(self, group: str, name: str, value: bytes) -> bool:
        (name,) = checked(name)
        node = f"{self._store._group(group)}/{name}"
        with self._store._reporting():
            while self.held():
                try:
                    self._store._said(self._client.create_async(node, value, ephemeral=True, makepath=True))
                    return True
                except NodeExistsError:
                    pass
                with contextlib.suppress(NoNodeError):
                    stat = self._store._said(self._client.get_async(node))[1]
                    if stat.ephemeralOwner != self._owner:
                        return False
                    self._store._said(self._client.set_async(node, value))
                    return True
        return False

    def leave(self, group: str, name: str) -> None:
        node = f"{self._store._group(group)}/{name}"
        with self._store._reporting(), contextlib.suppress(NoNodeError):
            stat = self._store._said(self._client.get_async(node))[1]
            if stat.ephemeralOwner == self._owner:
                self._store._said(self._client.delete_async(node))

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            self.ended.set()

    def _beat(self) -> bool:
        with self._store._reporting():
            try:
                found = self._store._said(self._client.get_async(self._node), self.timeout_seconds)
            except NoNodeError:
                return False
            return bool(found[1].ephemeralOwner == self._owner)

    def _end(self) -> None:
        _closed(self._client)


def _closed(client: KazooClient) -> None:
    with contextlib.suppress(Exception):
        client.stop()
        client.close()

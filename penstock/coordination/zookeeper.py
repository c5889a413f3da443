"""Keeps the coordination store in ZooKeeper, for several hosts.

    ROOT/records/a/b        the record a/b: "+" and its value; a node without "+" only has others below it
    ROOT/sessions/ID        a session: an ephemeral node
    ROOT/members/GROUP/NAME a member: an ephemeral node

Receives `host:port,host:port/root`, and options to authenticate and to encrypt (`zookeeper_options`). Needs the package
`kazoo` (`pip install penstock[zookeeper]`).

Guarantees: those of the contract. ZooKeeper ends a session some time after its last message; a session here counts its
time from before its last successful read of its own node, and so ends first. A session that ZooKeeper has ended is not
continued by another one, though the connection is. A client that authenticates creates every node for its user alone,
and refuses a root that others can use.
Does not guarantee that a session ends in time when the server's `maxSessionTimeout` is below the requested timeout.
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
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
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
    clock,
    split_path,
    store_unavailable,
)
from penstock.coordination.zookeeper_options import VARIABLE, ZooKeeperOptions
from penstock.errors import ExternalError, UserError

#: how long to wait for a response
_RESPONSE_SECONDS = 10.0
#: errors are reported as ours; kazoo would log several lines a second while a server is away
_KAZOO_LOGGER = logging.getLogger("kazoo")
#: how a broken connection is retried: kazoo's default soon waits longer than a session lives
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
#: how often a host is named to kazoo: a server that is starting may accept a connection and never respond on it, and
#: kazoo waits for that response as long as a session lasts, divided by the number of hosts
_TIMES_NAMED = 3


class ZooKeeperStore(Store):
    """A store below a root node of a ZooKeeper."""

    def __init__(
        self,
        hosts: str,
        *,
        answer_seconds: float = _RESPONSE_SECONDS,
        options: ZooKeeperOptions | None = None,
    ) -> None:
        servers, _, root = hosts.partition("/")
        self._hosts, self._root = servers, "/" + "/".join(split_path(root or "penstock"))
        self._response_seconds, self._options = answer_seconds, options or ZooKeeperOptions()
        if _KAZOO_LOGGER.level == logging.NOTSET:
            _KAZOO_LOGGER.setLevel(logging.CRITICAL)
        self._condition = threading.Condition()
        self._change_count = 0
        with self._translate_errors():
            self._client = self._connect(TIMEOUT_SECONDS * 5)
            try:
                self._check_root()
            except BaseException:
                self.close()
                raise

    # -- records ---------------------------------------------------------------------------------

    def get(self, path: str) -> Record | None:
        with self._translate_errors():
            return self._get(self._node(path))

    def create(self, path: str, value: bytes) -> int | None:
        node, content = self._node(path), b"+" + value
        with self._translate_errors():
            while True:
                try:
                    self._get_result(self._client.create_async(node, content, makepath=True))
                    return 0
                except NodeExistsError:
                    pass
                try:
                    found, stat = self._read("get", node)
                    if found[:1] == b"+":
                        return None
                    return int(self._get_result(self._client.set_async(node, content, stat.version)).version)
                except NoNodeError:
                    continue
                except BadVersionError:
                    return None

    def replace(self, path: str, value: bytes, version: int) -> int | None:
        with self._translate_errors():
            try:
                change = self._client.set_async(self._node(path), b"+" + value, version)
                return int(self._get_result(change).version)
            except (BadVersionError, NoNodeError):
                return None

    def delete(self, path: str, version: int) -> bool:
        node = self._node(path)
        with self._translate_errors():
            try:
                try:
                    self._get_result(self._client.delete_async(node, version))
                except NotEmptyError:
                    self._get_result(self._client.set_async(node, b"", version))
            except (BadVersionError, NoNodeError):
                return False
        return True

    def children(self, path: str) -> list[str]:
        node = self._node(path)
        with self._translate_errors():
            return sorted(name for name in self._below(node) if self._has_record(f"{node}/{name}"))

    def wait(self, path: str, seen: int | None, seconds: float) -> Record | None:
        node, deadline = self._node(path), clock() + seconds
        while True:
            with self._condition:
                changes = self._change_count
            with self._translate_errors():
                found = self._get(node, watch=self._notify)
            if (None if found is None else found.version) != seen or clock() >= deadline:
                return found
            with self._condition:
                self._condition.wait_for(lambda: self._change_count != changes, max(0.0, deadline - clock()))  # noqa: B023

    def _notify(self, _: Any) -> None:
        with self._condition:
            self._change_count += 1
            self._condition.notify_all()

    def _get(self, node: str, watch: Any = None) -> Record | None:
        while True:
            try:
                value, stat = self._read("get", node, watch)
            except NoNodeError:
                if watch is None or self._read("exists", node, watch) is None:
                    return None
                continue
            return Record(value[1:], int(stat.version)) if value[:1] == b"+" else None

    def _below(self, node: str) -> list[str]:
        try:
            names: list[str] = self._read("get_children", node)
        except NoNodeError:
            return []
        return names

    def _has_record(self, node: str) -> bool:
        if self._get(node) is not None:
            return True
        return any(self._has_record(f"{node}/{name}") for name in self._below(node))

    # -- sessions and members --------------------------------------------------------------------

    def start_session(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Session:
        with self._translate_errors():
            return ZooKeeperSession(self, timeout_seconds)

    def is_alive(self, session: str) -> bool:
        with self._translate_errors():
            return self._read("exists", self._session_node(session)) is not None

    def end_session(self, session: str) -> None:
        with self._translate_errors(), contextlib.suppress(NoNodeError):
            self._get_result(self._client.delete_async(self._session_node(session)))

    def members(self, group: str) -> Mapping[str, bytes]:
        folder, found = self._group(group), {}
        with self._translate_errors():
            for name in sorted(self._below(folder)):
                with contextlib.suppress(NoNodeError):
                    found[name] = bytes(self._read("get", f"{folder}/{name}")[0])
        return found

    def describe(self) -> str:
        return f"zk://{self._hosts}{self._root}"

    def close(self) -> None:
        _close_client(self._client)

    def _node(self, path: str) -> str:
        return "/".join((self._root, "records", *split_path(path)))

    def _session_node(self, session: str) -> str:
        return "/".join((self._root, "sessions", *split_path(session)))

    def _group(self, group: str) -> str:
        return f"{self._root}/members/{'@'.join(split_path(group))}"

    def _connect(self, timeout_seconds: float) -> KazooClient:
        hosts = ",".join([self._hosts] * _TIMES_NAMED)
        client = KazooClient(
            hosts, timeout=timeout_seconds, connection_retry=dict(_RETRY), **self._options.arguments()
        )
        try:
            client.start(timeout=self._response_seconds)
        except BaseException:
            _close_client(client)
            raise
        return client

    def _check_root(self) -> None:
        """Create the root for our user alone; raise if it is there and open to everybody."""
        if not self._options.authenticates:
            return
        self._get_result(self._client.ensure_path_async(self._root))
        permissions, _ = self._read("get_acls", self._root)
        if any(one.id.scheme == "world" for one in permissions):
            raise UserError(
                "STORE_OPEN",
                f"everybody can use the coordination store {self.describe()}, although this client authenticates",
                detail=f"The node {self._root} was created without authentication.",
                hint=f"In ZooKeeper's zkCli.sh: addauth, then setAcl -R {self._root} auth::cdrwa. Or name another "
                "root.",
            )

    def _get_result(self, result: Any, seconds: float | None = None) -> Any:
        return result.get(timeout=self._response_seconds if seconds is None else seconds)

    def _read(self, command: str, node: str, *more: Any) -> Any:
        """Execute a read; it is repeated when the connection breaks, which a change cannot be."""
        deadline = clock() + self._response_seconds
        while True:
            left = max(0.01, deadline - clock())
            try:
                return self._get_result(getattr(self._client, f"{command}_async")(node, *more), left)
            except (ConnectionLoss, SessionExpiredError):
                if clock() >= deadline:
                    raise

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (NoAuthError, AuthFailedError) as failure:
            raise ExternalError(
                "STORE_REFUSED",
                f"the coordination store {self.describe()} refuses this client",
                detail=f"{type(failure).__name__}: {failure}.",
                hint=f"Check user and password in the file that {VARIABLE} names; all engines and coordinators of the "
                "store need the same ones.",
            ) from failure
        except (KazooException, KazooTimeoutError) as failure:
            raise store_unavailable(self.describe(), failure) from failure


class ZooKeeperSession(Session):
    """A ZooKeeper session, on a connection of its own."""

    def __init__(self, store: ZooKeeperStore, timeout_seconds: float) -> None:
        self._store = store
        self._client = store._connect(timeout_seconds)
        super().__init__(uuid.uuid4().hex, timeout_seconds)
        self._owner = self._client.client_id[0]
        self._node = store._session_node(self.id)
        self._client.add_listener(self._handle_state)
        try:
            store._get_result(self._client.create_async(self._node, b"", ephemeral=True, makepath=True))
        except BaseException:
            _close_client(self._client)
            raise
        self._thread.start()

    def join(self, group: str, name: str, value: bytes) -> bool:
        (name,) = split_path(name)
        node = f"{self._store._group(group)}/{name}"
        with self._store._translate_errors():
            while self.is_held():
                try:
                    self._store._get_result(
                        self._client.create_async(node, value, ephemeral=True, makepath=True)
                    )
                    return True
                except NodeExistsError:
                    pass
                with contextlib.suppress(NoNodeError):
                    stat = self._store._get_result(self._client.get_async(node))[1]
                    if stat.ephemeralOwner != self._owner:
                        return False
                    self._store._get_result(self._client.set_async(node, value))
                    return True
        return False

    def leave(self, group: str, name: str) -> None:
        node = f"{self._store._group(group)}/{name}"
        with self._store._translate_errors(), contextlib.suppress(NoNodeError):
            stat = self._store._get_result(self._client.get_async(node))[1]
            if stat.ephemeralOwner == self._owner:
                self._store._get_result(self._client.delete_async(node))

    def _handle_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.ended.set()

    def _send_heartbeat(self) -> bool:
        with self._store._translate_errors():
            try:
                found = self._store._get_result(self._client.get_async(self._node), self.timeout_seconds)
            except NoNodeError:
                return False
            return bool(found[1].ephemeralOwner == self._owner)

    def _end(self) -> None:
        _close_client(self._client)


def _close_client(client: KazooClient) -> None:
    with contextlib.suppress(Exception):
        client.stop()
        client.close()

"""Bounds the connections of the HTTP server: how many are open, and how long each may take for what it sends and reads.

A connection counts from the moment at which it is accepted, so also during the TLS handshake. It is in one of the
phases of `Phase`, each of which has a deadline, except that of a response.

Guarantees: a connection without a request under way keeps nobody out: if there is no room, the one that has waited for
longest is closed, of the same address if that has too many. If the process has no descriptors left, connections are
refused and nothing else fails. Descriptors below `_FIRST_DESCRIPTOR` are left to the engine if the process may have
more: some libraries watch theirs with `select`, which takes no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import time
from collections import Counter, OrderedDict
from enum import Enum
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.descriptors import raise_descriptor_limit
from penstock.server.limits import Limits

_FIRST_DESCRIPTOR = 1_024
#: descriptors that connections leave to the engine; in a process of few, half of them
_RESERVED_DESCRIPTORS = 512
_SWEEP_SECONDS = 0.25
#: how many connections are accepted, and closed, before requests have their turn again
_ACCEPTED_AT_ONCE, _ENDED_AT_ONCE = 16, 64
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Phase(Enum):
    """What a connection waits for."""

    #: its first request, and before that the TLS handshake
    FIRST_REQUEST = "first_request"
    #: its next request
    REQUEST = "idle"
    #: the rest of a body
    BODY = "body"
    #: the response, or the service has no connection but a WebSocket
    RESPONSE = "response"
    #: that the client reads
    STALLED = "stalled"


_WAITING = (Phase.FIRST_REQUEST, Phase.REQUEST)


class Connection(socket.socket):
    """An accepted connection."""

    def __init__(self, accepted: socket.socket, descriptor: int, address: str, table: Connections) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=descriptor)
        self.number, self.address, self._table = descriptor, address, table
        self.phase, self.deadline = Phase.RESPONSE, float("inf")
        #: once there is one; with TLS that is after the handshake
        self.transport: asyncio.Transport | None = None

    def close(self) -> None:
        """Close it; it no longer counts."""
        self._table.remove(self)
        super().close()

    def abort(self) -> None:
        """End it, whatever it is doing."""
        if self.transport is not None:
            self.transport.abort()
        else:
            with contextlib.suppress(OSError):
                self.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of a server. Not safe for two threads."""

    def __init__(self, limits: Limits, descriptors: int) -> None:
        self._limits = limits
        self._most = min(limits.connections, descriptors - min(_RESERVED_DESCRIPTORS, descriptors // 2))
        #: from where the descriptors of connections are taken
        self.first_descriptor = _FIRST_DESCRIPTOR if descriptors >= 2 * _FIRST_DESCRIPTOR else 0
        self._open: dict[int, Connection] = {}
        self._by_address: Counter[str] = Counter()
        #: those without a request under way, by address and in total; the first has waited for longest
        self._waiting: dict[str | None, OrderedDict[Connection, None]] = {None: OrderedDict()}
        self._sweeping: asyncio.TimerHandle | None = None
        #: how many the service closed or refused, by reason
        self.ended: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, number: int) -> Connection:
        """The connection with a descriptor."""
        return self._open[number]

    def make_room(self, address: str) -> bool:
        """Close a connection that waits if there are too many; return whether there is room for one more."""
        if self._by_address[address] >= self._limits.connections_per_address:
            return self._end_oldest(address)
        return len(self._open) < self._most or self._end_oldest(None)

    def add(self, connection: Connection) -> None:
        """Count a connection."""
        self._open[connection.number] = connection
        self._by_address[connection.address] += 1
        self.enter(connection, Phase.FIRST_REQUEST)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def remove(self, connection: Connection) -> None:
        """Count a connection no longer."""
        if self._open.get(connection.number) is not connection:
            return
        del self._open[connection.number]
        self._wait_no_longer(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Note what a connection waits for; its deadline starts when the phase changes."""
        if phase is connection.phase or (phase is Phase.REQUEST and connection.phase is Phase.FIRST_REQUEST):
            return
        if connection.phase in _WAITING:
            self._wait_no_longer(connection)
        connection.phase, limits = phase, self._limits
        connection.deadline = (
            time.monotonic()
            + {
                Phase.FIRST_REQUEST: limits.first_request_seconds,
                Phase.REQUEST: limits.idle_seconds,
                Phase.BODY: limits.body_seconds,
                Phase.RESPONSE: float("inf"),
                Phase.STALLED: limits.stalled_seconds,
            }[phase]
        )
        if phase in _WAITING and connection.number in self._open:
            self._waiting[None][connection] = None
            self._waiting.setdefault(connection.address, OrderedDict())[connection] = None

    def end_oldest(self) -> None:
        """Close the connection that has waited for longest."""
        self._end_oldest(None)

    def end_stalled(self) -> bool:
        """Close the connection that has read nothing of its response for longest; return whether there is one."""
        stalled = [one for one in self._open.values() if one.phase is Phase.STALLED]
        if stalled:
            self._end(min(stalled, key=lambda one: one.deadline), "unread")
        return bool(stalled)

    def _end_oldest(self, address: str | None) -> bool:
        waiting = self._waiting.get(address)
        if not waiting:
            self.ended["refused"] += 1
            return False
        self._end(next(iter(waiting)), "no_room")
        return True

    def _end(self, connection: Connection, reason: str) -> None:
        self.ended[reason] += 1
        self.remove(connection)  # now, not when the event loop gets to it
        connection.abort()

    def _wait_no_longer(self, connection: Connection) -> None:
        self._waiting[None].pop(connection, None)
        if (waiting := self._waiting.get(connection.address)) is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.address]

    def _sweep(self) -> None:
        """Close the connections whose deadline is over."""
        now = time.monotonic()
        late = [one for one in self._open.values() if one.deadline < now]
        for connection in late[:_ENDED_AT_ONCE]:
            self._end(connection, connection.phase.value)
        self._sweeping = None
        if self._open:
            pause = _SWEEP_SECONDS if len(late) <= _ENDED_AT_ONCE else 0.01
            self._sweeping = asyncio.get_running_loop().call_later(pause, self._sweep)


class Listener(socket.socket):
    """A socket that listens, and accepts as many connections as there may be."""

    def __init__(self, family: int, limits: Limits) -> None:
        # named as TCP, or asyncio leaves Nagle's algorithm on: a body then waits until its head is acknowledged, 40 ms
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.connections = Connections(limits, raise_descriptor_limit())
        self._accepted = 0
        #: given up to refuse a connection when there are no others
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. `ConnectionAbortedError` if it is refused, or if it is others' turn: asyncio then tries
        again in its next turn."""
        self._accepted += 1
        if self._accepted % _ACCEPTED_AT_ONCE == 0:
            raise ConnectionAbortedError
        try:
            accepted, peer = super().accept()
        except OSError as failure:
            if failure.errno not in _NO_DESCRIPTORS:
                raise
            self._refuse()
            raise ConnectionAbortedError from failure
        address = limited_address(str(peer[0]))
        if not self.connections.make_room(address):
            accepted.close()
            raise ConnectionAbortedError
        connection = Connection(accepted, self._move(accepted), address, self.connections)
        self.connections.add(connection)
        return connection, peer

    def close(self) -> None:
        """Stop to listen."""
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _move(self, accepted: socket.socket) -> int:
        """Return the descriptor of an accepted connection, moved out of the engine's way if there are others."""
        low = accepted.detach()
        if not self.connections.first_descriptor:
            return low
        try:
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, self.connections.first_descriptor)
        except OSError:
            return low
        os.close(low)
        return high

    def _refuse(self) -> None:
        """Refuse the next connection though there are no descriptors, and make room for others."""
        self.connections.end_oldest()
        if self._spare >= 0:
            os.close(self._spare)
        self._spare = -1
        with contextlib.suppress(OSError):
            super().accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # raises: asyncio waits for a second


class HttpProtocol(H11Protocol):
    """Notes the phase of its connection."""

    def __init__(self, connections: Connections, **parts: Any) -> None:
        super().__init__(**parts)
        self._connections = connections
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        with contextlib.suppress(KeyError):  # ended during the handshake
            self._connection = self._connections.find(transport.get_extra_info("socket").fileno())
            self._connection.transport = transport

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note_phase()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note_phase()

    def _note_phase(self) -> None:
        if self._connection is not None:
            phase = {h11.IDLE: Phase.REQUEST, h11.SEND_BODY: Phase.BODY}.get(self.conn.their_state)
            is_stalled = self.flow.write_paused or self.transport.is_closing()
            self._connections.enter(
                self._connection, Phase.STALLED if is_stalled else phase or Phase.RESPONSE
            )


def limited_address(text: str) -> str:
    """The address that a limit is for: of IPv6 the network, of which one machine may have all addresses."""
    if ":" not in text:
        return text
    address = ipaddress.IPv6Address(text.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))

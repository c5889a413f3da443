"""Accepts the connections of a gateway, for agents and for HTTP alike, and lets each prove within a time who it is.

Every connection has its place (`admission`) from the moment it is accepted, also during its TLS handshake, which no
other waits for. The deadline counts from there and covers handshake and hello: bytes that trickle in do not extend it.

On failure: a connection that is closed by its peer, by its deadline or by `admission` only ends itself. Without a free
descriptor, the connection that has waited longest is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import ExternalError, PenstockError
from penstock.ingest.admission import Admission, Place, name_address
from penstock.ingest.event_log import log_event

if TYPE_CHECKING:
    import ssl

_BACKLOG = 1024
#: how long accepting rests when no descriptor is free
_REST_SECONDS = 0.1
#: a peer that is gone without a word is noticed after a minute: seconds until the first probe, between them, how many
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
_REPORT_SECONDS = 10.0
#: how long a peer may take to end TLS
_SHUTDOWN_SECONDS = 5.0


class Guest:
    """A connection that was accepted: its place, its deadline, and what may still happen to it."""

    def __init__(self, admission: Admission, accepted: socket.socket, peer: tuple[str, int]) -> None:
        self._admission, self._accepted = admission, accepted
        self.peer = f"{peer[0]}:{peer[1]}"
        self.place = Place(name_address(peer[0]), self._abort)
        self._transport: asyncio.BaseTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        #: what is called when the deadline passes; without it the connection is closed
        self.on_late: Callable[[PenstockError], None] | None = None

    def check_room(self) -> None:
        """Raise if it could not be established anyway."""
        self._admission.check_room(self.place.address)

    def start_deadline(self, seconds: float) -> None:
        """Give it some time to prove who it is."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire)

    def connect(self, transport: asyncio.BaseTransport) -> None:
        """It can be spoken to: the handshake is over."""
        self._transport = transport

    def establish(self) -> None:
        """It has said who it is; raise if there are too many."""
        self._admission.establish(self.place)

    def leave(self) -> None:
        """It is closed."""
        self.stop_deadline()
        self._admission.leave(self.place)

    def stop_deadline(self) -> None:
        """It has proved who it is."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _expire(self) -> None:
        if self.on_late is not None and self._transport is not None:
            self.on_late(ExternalError("TOO_SLOW", "it did not say who it is in time"))
        else:
            self._abort()

    def _abort(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        else:  # asyncio has the socket: it sees the end of the handshake, and closes it
            with contextlib.suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)


class Listener:
    """One address on which a gateway listens."""

    def __init__(
        self,
        address: tuple[str, int],
        admission: Admission,
        make_protocol: Callable[[Guest], asyncio.BaseProtocol],
        *,
        hello_seconds: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._admission, self._make_protocol = admission, make_protocol
        self._hello_seconds, self._tls = hello_seconds, tls
        self._sockets = [_listen(*found) for found in _resolve(*address)]
        self._connecting: set[asyncio.Task[None]] = set()
        self._reported_at = 0.0

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    async def run(self) -> None:
        """Accept connections, for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self._sockets:
                    tasks.create_task(self._accept(one))
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        for one in self._sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                self._report("cannot accept", reason=str(error))
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._admission.displace_oldest()
                await asyncio.sleep(_REST_SECONDS)
                continue
            self._welcome(accepted, peer)
            if self._admission.displaced:
                self._report("silent connections closed", so_far=self._admission.displaced)

    def _welcome(self, accepted: socket.socket, peer: tuple[str, int]) -> None:
        try:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                accepted.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:  # the peer is gone
            accepted.close()
            return
        guest = Guest(self._admission, accepted, peer)
        if not self._admission.admit(guest.place):
            accepted.close()
            return
        task = asyncio.create_task(self._connect(accepted, guest))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        guest.start_deadline(self._hello_seconds)

    async def _connect(self, accepted: socket.socket, guest: Guest) -> None:
        """Shake hands, if by TLS, and start the protocol, which reports to the guest when it is closed."""
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_protocol(guest),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._hello_seconds,
                ssl_shutdown_timeout=None if self._tls is None else _SHUTDOWN_SECONDS,
            )
        except OSError:  # the peer is gone, no TLS, too late, or displaced
            guest.leave()
            return
        guest.connect(transport)
        if transport.is_closing():  # it was cut off during the handshake: the protocol does not learn of it
            transport.abort()
            guest.leave()

    def _report(self, event: str, **facts: object) -> None:
        """Report what can happen a thousand times a second, at most every ten seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._reported_at + _REPORT_SECONDS:
            self._reported_at = now
            log_event(event, waiting=self._admission.waiting, **facts)


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, (str(at[0]), int(at[1]))) for family, _, _, _, at in found))


def _listen(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    listening = socket.create_server(address, family=family, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening

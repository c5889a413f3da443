"""The service beside an engine that somebody watches in a terminal: what `penstock demo` adds to a plain run.

Receives the engine and its program; hands where the dashboard is, and the host that epochs are told to.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from penstock.catalogue.program import Program
from penstock.dashboard.mount import mounted
from penstock.engine.engine import Engine
from penstock.engine.status_server import measured, status
from penstock.errors import ExternalError
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.middleware import PAGES

#: where the service listens, if nobody else does
PORT = 8080


@contextlib.contextmanager
def pages(engine: Engine, program: Program) -> Iterator[tuple[str, Host]]:
    """The dashboard of an engine, on this machine only."""
    host = Host(program, engine.settings.state)
    host.backlog = lambda: {} if engine.admission is None else dict(engine.admission.backlog)
    host.look = lambda: status(engine, measured(engine))
    service = Service(host)
    mounted(service)
    with Server(service, "127.0.0.1", free_port(PORT)) as server:
        try:
            yield f"{server.url}{PAGES}/", host
        finally:
            host.ended()


def free_port(wanted: int) -> int:
    """This port of the loopback address if it is free, else another."""
    for port in (wanted, 0):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
            found: int = free.getsockname()[1]
            return found
    raise ExternalError("NO_PORT", "no port of the loopback address is free")

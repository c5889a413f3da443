"""Serves the dashboard of an engine that runs in a terminal, for `penstock demo`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from penstock.catalogue.program import Program
from penstock.cli.service_options import own_tokens
from penstock.dashboard.mount import mount_dashboard
from penstock.engine.engine import Engine
from penstock.engine.status_server import latest_snapshot, status
from penstock.errors import ExternalError
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server

#: the preferred port
PORT = 8080


@contextlib.contextmanager
def serve_dashboard(engine: Engine, program: Program) -> Iterator[tuple[Server, Host]]:
    """Serve the dashboard on loopback; yields the server, and the host to which epochs are reported."""
    host = Host(program, engine.settings.state)
    host.backlog = lambda: {} if engine.admission is None else dict(engine.admission.backlog)
    host.engine_status = lambda: status(engine, latest_snapshot(engine))
    service = Service(host, tokens=own_tokens(engine.settings.state))
    mount_dashboard(service)
    with Server(service, "127.0.0.1", free_port(PORT)) as server:
        try:
            yield server, host
        finally:
            host.end()


def free_port(wanted: int) -> int:
    """This port of the loopback address if it is free, else any other."""
    for port in (wanted, 0):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
            port_number: int = free.getsockname()[1]
            return port_number
    raise ExternalError("NO_PORT", "no port of the loopback address is free")

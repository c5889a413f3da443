"""Serves the API with uvicorn, on a thread of its own beside the engine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import cast

import uvicorn

from penstock.errors import ExternalError
from penstock.server.api import Service
from penstock.server.connections import HttpProtocol, Listener
from penstock.server.structured_log import log
from penstock.state.service_token import publish_service_token

_START_SECONDS = 20.0
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Tls:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Server:
    """An HTTP server; entered, it serves until it is left."""

    def __init__(self, service: Service, host: str, port: int, tls: Tls | None = None) -> None:
        self.service = service
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = Listener(family, service.limits)
        service.connections = self._socket.connections
        service.gate.bodies.end_stalled = self._socket.connections.end_stalled
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as failure:
            self._socket.close()
            raise ExternalError(
                "ADDRESS_TAKEN",
                f"cannot listen on {host}:{port}",
                detail=failure.strerror or str(failure),
                hint="Another process may listen there; choose another with --listen.",
            ) from failure
        name = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if tls is None else 'https'}://{name}:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                service.gate,
                log_config=None,
                access_log=False,
                loop="asyncio",  # even if uvloop is installed: the limits below are those of h11
                http=cast(type[asyncio.Protocol], partial(HttpProtocol, self._socket.connections)),
                lifespan="on",
                ws="wsproto" if service.has_pages else "none",
                ws_max_size=1 << 20,
                ws_per_message_deflate=False,  # a message of a few bytes would become one of many
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=math.ceil(service.limits.idle_seconds),
                timeout_graceful_shutdown=int(_END_SECONDS),
                h11_max_incomplete_event_size=64 << 10,
                ssl_certfile=None if tls is None else str(tls.certificate),
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self._failure: BaseException | None = None
        self._published = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run, name="penstock-http", daemon=True)

    def __enter__(self) -> Server:
        tokens = self.service.tokens
        if tokens is not None and tokens.is_own and tokens.file is not None:
            port = self._socket.getsockname()[1]  # it is ours, and nobody is answered yet
            if (why := self._published.enter_context(publish_service_token(tokens.file, port))) is not None:
                log("programs of this user do not find the token by themselves", 30, reason=why)
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not self._server.started:
            self.close()
            raise ExternalError(
                "SERVICE_NOT_STARTED",
                "the HTTP server could not start",
                detail=str(self._failure or "it takes too long"),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop to listen, and let running requests finish."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS + 5)
        self._socket.close()
        self._published.close()  # last: who finds no token while the service answers would be refused for good

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as failure:
            self._failure = failure

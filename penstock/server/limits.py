"""Declares how much one client may request, send and hold open, each limit with its unit, and limits request rates."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

#: clients remembered at once; the one idle for longest is forgotten first
_MAX_CLIENTS = 10_000


@dataclass(frozen=True)
class Limits:
    """The limits of a service."""

    #: the longest body of a request, in bytes
    body_bytes: int = 4 << 20
    #: that of a login, which needs no token
    login_bytes: int = 4 << 10
    #: the longest SQL in one request, in characters
    sql_characters: int = 200_000
    #: statements that are executed or wait for it, in all and of one caller
    statements: int = 128
    statements_per_caller: int = 32
    #: requests a second of one client, and how many it may send at once after a pause
    requests_per_second: float = 2_000.0
    request_burst: int = 4_000
    #: connections open at once, in all and of one address
    connections: int = 4_096
    connections_per_address: int = 1_024
    #: how long a connection may take, in seconds: for its first request (with the TLS handshake, without the body), for
    #: each later one, for a body, and to read any of a response that waits for it
    first_request_seconds: float = 10.0
    idle_seconds: float = 30.0
    body_seconds: float = 60.0
    stalled_seconds: float = 120.0
    #: subscriptions open at once, in all and of one client
    subscribers: int = 2_000
    subscribers_per_client: int = 500
    #: pages of the dashboard open at once
    pages: int = 200
    #: how many epochs with rows, and how many bytes of them, a subscriber may be behind
    behind_epochs: int = 128
    behind_bytes: int = 32 << 20
    #: how long a subscriber may take to receive one piece, in seconds
    patience_seconds: float = 10.0
    #: how often a subscription without rows reports its position, in seconds
    heartbeat_seconds: float = 10.0
    #: bytes of responses that are being sent, each body once; beyond that, connections that read nothing are closed
    response_bytes: int = 256 << 20
    #: a page of results ends when it has this many bytes
    page_bytes: int = 16 << 20


class RateLimiter:
    """A token bucket for every client. Not safe for two threads."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, float(burst), clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = self._clock()
        tokens, at = self._clients.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        is_empty = tokens < 1.0
        self._clients[client] = (tokens if is_empty else tokens - 1.0, now)
        while len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        return (1.0 - tokens) / self._rate if is_empty else 0.0

"""Limits: how much one client may ask, send and hold open. Each is declared once, with its unit.

Receives a client's name and the time; hands whether it may go on, or after how many seconds.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

#: clients remembered at once; those not heard of for longest are forgotten first
_CLIENTS = 10_000


@dataclass(frozen=True)
class Limits:
    """What a service grants."""

    #: the longest body of a request, in bytes
    body_bytes: int = 4 << 20
    #: the longest SQL in one request, in characters
    sql_characters: int = 200_000
    #: requests a second of one client, and how many it may have saved up
    requests_per_second: float = 2_000.0
    request_burst: int = 4_000
    #: subscriptions open at once, in all and of one client
    subscribers: int = 2_000
    subscribers_per_client: int = 500
    #: pages of the dashboard open at once
    pages: int = 200
    #: how many told epochs, and how many bytes of them, a subscriber may be behind
    behind_epochs: int = 128
    behind_bytes: int = 32 << 20
    #: how long one piece may wait for a subscriber to take it, in seconds
    patience_seconds: float = 10.0
    #: a subscription without rows says how far it is this often, in seconds
    heartbeat_seconds: float = 10.0
    #: the most bytes one page of results is made of
    page_bytes: int = 16 << 20


class Buckets:
    """A bucket of tokens for every client: a request takes one, and they come back with time. For one thread."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, float(burst), clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a token; hands 0, or the seconds until there is one."""
        now = self._clock()
        tokens, at = self._known.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        short = tokens < 1.0
        self._known[client] = (tokens if short else tokens - 1.0, now)
        while len(self._known) > _CLIENTS:
            self._known.popitem(last=False)
        return (1.0 - tokens) / self._rate if short else 0.0

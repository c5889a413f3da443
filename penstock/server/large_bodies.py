"""Sends large bodies of responses in pieces, and bounds the memory of those that nobody reads.

A body that is sent at once is copied into the buffer of its connection, whole. In pieces, connections share a body
that is cached, and wait until their clients read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from starlette.types import Message, Send

_PIECE_BYTES = 64 << 10
_CHECK_SECONDS = 0.1


class Bodies:
    """The large bodies that are being sent. For the event loop of one server."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        #: by the identity of a body: how many send it
        self._senders: Counter[int] = Counter()
        self._bytes = 0
        self._checking: asyncio.TimerHandle | None = None
        #: closes a connection whose client reads nothing; returns whether there is one
        self.end_stalled: Callable[[], bool] = lambda: False

    async def send(self, message: Message, send: Send) -> None:
        """Send a message; a large body in pieces."""
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= _PIECE_BYTES:
            await send(message)
            return
        self._add(body)
        try:
            for at in range(0, len(body), _PIECE_BYTES):
                follows = at + _PIECE_BYTES < len(body) or message.get("more_body", False)
                await send({**message, "body": body[at : at + _PIECE_BYTES], "more_body": follows})
        finally:
            self._remove(body)

    def _add(self, body: bytes) -> None:
        self._senders[id(body)] += 1
        if self._senders[id(body)] == 1:
            self._bytes += len(body)
        self._end_stalled_ones()

    def _end_stalled_ones(self) -> None:
        """While there is too much, close a connection after the other; some need a moment until they are stalled."""
        if self._bytes <= self._most_bytes:
            return
        self.end_stalled()
        if self._checking is None:
            self._checking = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_again)

    def _check_again(self) -> None:
        self._checking = None
        self._end_stalled_ones()

    def _remove(self, body: bytes) -> None:
        self._senders[id(body)] -= 1
        if not self._senders[id(body)]:
            del self._senders[id(body)]
            self._bytes -= len(body)

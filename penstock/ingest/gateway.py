"""Accepts the connections of agents and appends the frames that they send to segment logs.

Receives frames over TCP (see `intake`); passes them to the committer, and acknowledgements to the senders.

Invariants:
- A frame is acknowledged after it is on disk, never before.
- Of what one connection sent, nothing is accepted after the first frame that was refused.
- Memory is bounded: beyond `most_waiting_bytes` the gateway reads no connection until some of it is on disk.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.committer import Committer, FrameOutcome
from penstock.ingest.event_log import log_event
from penstock.ingest.frames import Frame
from penstock.ingest.intake import MOST_BYTES, Hello, Intake
from penstock.ingest.partition import SequenceGap
from penstock.ingest.store import PARTITIONS, SEGMENT_BYTES, Retention


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of a gateway."""

    directory: Path
    token: str = ""
    most_bytes: int = MOST_BYTES
    most_connections: int = 2048
    most_waiting_bytes: int = 64 << 20
    partitions: int = PARTITIONS
    segment_bytes: int = SEGMENT_BYTES
    gather_seconds: float = 0.005
    #: how long a hello, or the rest of a frame, may be on its way
    patience_seconds: float = 30.0
    prune_seconds: float = 30.0
    retention: Retention = field(default_factory=Retention)


class Gateway:
    """The state that all connections share. Create it in a running event loop."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.committer = Committer(
            settings.directory,
            partitions=settings.partitions,
            segment_bytes=settings.segment_bytes,
            gather_seconds=settings.gather_seconds,
        )
        self.connections: set[Connection] = set()
        self._by_producer: dict[tuple[str, str], Connection] = {}
        self.refused = 0

    @property
    def is_full(self) -> bool:
        """Whether the bytes that wait to be written have reached their limit."""
        return self.committer.waiting_bytes >= self.settings.most_waiting_bytes

    def check_token(self, token: str, hint: str = "Give --token-file with the same token.") -> None:
        """Raise unless the token is the required one, or none is required."""
        if self.settings.token and not hmac.compare_digest(token.encode(), self.settings.token.encode()):
            raise UserError("BAD_TOKEN", "the token is not the gateway's", hint=hint)

    def collect_metrics(self) -> dict[str, object]:
        """Collect the counters."""
        return {
            "connections": len(self.connections),
            "refused": self.refused,
            **self.committer.collect_metrics(),
        }

    async def open(self) -> None:
        """Open the existing logs, before any connection is accepted."""
        for name, cut in (await self.committer.open_all()).items():
            log_event("log opened", stream=name, cut_bytes=cut)

    async def run(self) -> None:
        """Run the tasks beside the connections, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.committer.run(self._acknowledge_all))
            tasks.create_task(self._watch())
            tasks.create_task(self._prune())

    def register(self, connection: Connection, hello: Hello) -> None:
        """Make a connection the one of its producer; close an older one."""
        key = (hello.stream, hello.producer)
        before = self._by_producer.get(key)
        self._by_producer[key] = connection
        if before is not None and before is not connection:
            before.refuse(ExternalError("TAKEN_OVER", "the producer has connected again"))

    def unregister(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        hello = connection.intake.hello
        if hello and self._by_producer.get((hello.stream, hello.producer)) is connection:
            del self._by_producer[hello.stream, hello.producer]

    def _acknowledge_all(self) -> None:
        for connection in list(self.connections):
            connection.acknowledge()

    async def _watch(self) -> None:
        """Close connections that start a message and do not finish it."""
        while True:
            await asyncio.sleep(min(self.settings.patience_seconds / 4, 5))
            late = time.monotonic() - self.settings.patience_seconds
            for connection in list(self.connections):
                if connection.is_unfinished and connection.received_at < late:
                    connection.refuse(ExternalError("TOO_SLOW", "the rest of a message did not come"))

    async def _prune(self) -> None:
        while True:
            for name, pruned in (await self.committer.prune(self.settings.retention)).items():
                if pruned.segments:
                    log_event("pruned", stream=name, **asdict(pruned))
            await asyncio.sleep(self.settings.prune_seconds)


class Connection(asyncio.Protocol):
    """One agent's connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.intake = Intake(gateway.settings.most_bytes)
        self._transport: asyncio.Transport | None = None
        self._hello_task: asyncio.Task[None] | None = None
        self._ready = self._over = self._paused = self._writing_paused = False
        self._durable: int | None = None
        self.received_at = time.monotonic()

    @property
    def is_unfinished(self) -> bool:
        """Whether a message has started and is not whole."""
        return not self._paused and (self.intake.hello is None or self.intake.buffered_bytes > 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._gateway.connections) >= self._gateway.settings.most_connections:
            self.refuse(ExternalError("TOO_MANY_CONNECTIONS", "the gateway has as many as it may"))
            return
        self._gateway.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self.received_at = time.monotonic()
        try:
            for message in self.intake.feed(data):
                if isinstance(message, Hello):
                    self._gateway.check_token(message.token)
                    self._hello_task = asyncio.ensure_future(self._answer_hello(message))
                elif not self._ready:
                    raise ExternalError("BAD_HELLO", "frames came before the hello was answered")
                else:
                    self._take(message)
        except PenstockError as error:
            self.refuse(error)

    def _take(self, frame: Frame) -> None:
        hello = self.intake.hello
        assert hello is not None
        self._gateway.committer.submit(self, hello.stream, frame, self._handle_outcome)
        if self._gateway.is_full:
            self._pause()

    async def _answer_hello(self, hello: Hello) -> None:
        try:
            self._gateway.register(self, hello)
            position = await self._gateway.committer.position(hello.stream, hello.producer)
        except PenstockError as error:
            self.refuse(error)
            return
        self._ready = True
        self._send({"next": position, "most_bytes": self._gateway.settings.most_bytes})

    def _handle_outcome(self, outcome: FrameOutcome) -> None:
        if isinstance(outcome, PenstockError):
            self.refuse(outcome)
        else:
            self._durable = outcome.position

    def acknowledge(self) -> None:
        """Acknowledge what a group brought to disk, and resume reading."""
        if self._durable is not None:
            self._send({"durable": self._durable})
            self._durable = None
        if (
            self._paused
            and not self._gateway.is_full
            and not self._writing_paused
            and self._transport
            and not self._over
        ):
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and self._transport and not self._over:
            self._paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._writing_paused = (
            True  # it does not read its acknowledgements: then the gateway does not read from it
        )
        self._pause()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.acknowledge()

    def refuse(self, error: PenstockError) -> None:
        """Send the error and close the connection."""
        if self._over or self._transport is None:
            return
        self._over = True
        self._gateway.refused += 1
        hello = self.intake.hello
        peer = self._transport.get_extra_info("peername")
        log_event(
            "refused",
            condition=error.condition,
            reason=error.primary,
            peer=peer and f"{peer[0]}:{peer[1]}",
            producer=hello and hello.producer,
        )
        answer: dict[str, object] = {"error": error.condition, "reason": error.primary, "hint": error.hint}
        if isinstance(error, SequenceGap):
            answer["next"] = error.expected
        self._transport.write(json.dumps(answer).encode() + b"\n")
        if self._transport.can_write_eof():
            self._transport.write_eof()
        # closing with bytes unread would take the answer back before it is read
        asyncio.get_running_loop().call_later(1.0, self._transport.close)

    def _send(self, message: dict[str, object]) -> None:
        if self._transport is not None and not self._over:
            self._transport.write(json.dumps(message).encode() + b"\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        if self._hello_task is not None:
            self._hello_task.cancel()
        self._gateway.unregister(self)

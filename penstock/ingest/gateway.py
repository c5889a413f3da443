"""The gateway: takes agents' connections, and HTTP requests beside them, and appends what they send to segment
logs.

Receives frames over TCP (see `intake`); hands them to the committer, and senders their acknowledgements.

Invariants:
- A frame is acknowledged after it is on disk, never before.
- Of what one connection sent, nothing is taken after the first frame that was refused.
- Memory is bounded: beyond `most_waiting_bytes` nobody is read from until some of it is on disk.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.committer import Answer, Committer
from penstock.ingest.frames import Frame
from penstock.ingest.intake import MOST_BYTES, Hello, Intake
from penstock.ingest.partition import SequenceGap
from penstock.ingest.store import PARTITIONS, SEGMENT_BYTES, Retention
from penstock.ingest.tell import tell


@dataclass(frozen=True)
class GatewaySettings:
    """What a gateway is told."""

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
    """Everything that the connections share. Make it inside of a running event loop."""

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
    def full(self) -> bool:
        """Whether as much waits to be written as may."""
        return self.committer.waiting_bytes >= self.settings.most_waiting_bytes

    def check_token(self, token: str, hint: str = "Give --token-file with the same token.") -> None:
        """Raise unless the token is the one asked for, or none is."""
        if self.settings.token and not hmac.compare_digest(token.encode(), self.settings.token.encode()):
            raise UserError("BAD_TOKEN", "the token is not the gateway's", hint=hint)

    def figures(self) -> dict[str, object]:
        """What there is to count."""
        return {"connections": len(self.connections), "refused": self.refused, **self.committer.figures()}

    async def open(self) -> None:
        """Open the logs that there are; nobody is listened to before."""
        for name, cut in (await self.committer.open_all()).items():
            tell("log opened", stream=name, cut_bytes=cut)

    async def run(self) -> None:
        """What goes on beside the connections, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.committer.run(self._committed))
            tasks.create_task(self._watch())
            tasks.create_task(self._prune())

    def introduce(self, connection: Connection, hello: Hello) -> None:
        """A connection speaks for a producer now; an older one that did is over."""
        key = (hello.stream, hello.producer)
        before = self._by_producer.get(key)
        self._by_producer[key] = connection
        if before is not None and before is not connection:
            before.refuse(ExternalError("TAKEN_OVER", "the producer has connected again"))

    def leave(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        hello = connection.intake.hello
        if hello and self._by_producer.get((hello.stream, hello.producer)) is connection:
            del self._by_producer[hello.stream, hello.producer]

    def _committed(self) -> None:
        for connection in list(self.connections):
            connection.settle()

    async def _watch(self) -> None:
        """Hang up on who begins something and does not go on."""
        while True:
            await asyncio.sleep(min(self.settings.patience_seconds / 4, 5))
            late = time.monotonic() - self.settings.patience_seconds
            for connection in list(self.connections):
                if connection.unfinished and connection.heard_at < late:
                    connection.refuse(ExternalError("TOO_SLOW", "the rest of a message did not come"))

    async def _prune(self) -> None:
        while True:
            for name, pruned in (await self.committer.prune(self.settings.retention)).items():
                if pruned.segments:
                    tell("pruned", stream=name, **asdict(pruned))
            await asyncio.sleep(self.settings.prune_seconds)


class Connection(asyncio.Protocol):
    """One agent's connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.intake = Intake(gateway.settings.most_bytes)
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._ready = self._over = self._paused = self._deaf = False
        self._durable: int | None = None
        self.heard_at = time.monotonic()

    @property
    def unfinished(self) -> bool:
        """Whether it has begun to say something."""
        return not self._paused and (self.intake.hello is None or self.intake.held_bytes > 0)

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
        self.heard_at = time.monotonic()
        try:
            for told in self.intake.feed(data):
                if isinstance(told, Hello):
                    self._gateway.check_token(told.token)
                    self._greeting = asyncio.ensure_future(self._greet(told))
                elif not self._ready:
                    raise ExternalError("BAD_HELLO", "frames came before the hello was answered")
                else:
                    self._take(told)
        except PenstockError as error:
            self.refuse(error)

    def _take(self, frame: Frame) -> None:
        hello = self.intake.hello
        assert hello is not None
        self._gateway.committer.submit(self, hello.stream, frame, self._answered)
        if self._gateway.full:
            self._pause()

    async def _greet(self, hello: Hello) -> None:
        try:
            self._gateway.introduce(self, hello)
            position = await self._gateway.committer.position(hello.stream, hello.producer)
        except PenstockError as error:
            self.refuse(error)
            return
        self._ready = True
        self._say({"next": position, "most_bytes": self._gateway.settings.most_bytes})

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, PenstockError):
            self.refuse(answer)
        else:
            self._durable = answer.position

    def settle(self) -> None:
        """After a group: say how far it is on disk, and listen again."""
        if self._durable is not None:
            self._say({"durable": self._durable})
            self._durable = None
        if self._paused and not self._gateway.full and not self._deaf and self._transport and not self._over:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and self._transport and not self._over:
            self._paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._deaf = True  # it does not take its acknowledgements: then nothing more is taken from it
        self._pause()

    def resume_writing(self) -> None:
        self._deaf = False
        self.settle()

    def refuse(self, error: PenstockError) -> None:
        """Say why, and hang up."""
        if self._over or self._transport is None:
            return
        self._over = True
        self._gateway.refused += 1
        hello = self.intake.hello
        peer = self._transport.get_extra_info("peername")
        tell(
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

    def _say(self, told: dict[str, object]) -> None:
        if self._transport is not None and not self._over:
            self._transport.write(json.dumps(told).encode() + b"\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        if self._greeting is not None:
            self._greeting.cancel()
        self._gateway.leave(self)

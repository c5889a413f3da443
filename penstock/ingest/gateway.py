"""Accepts the connections of agents and appends the frames that they send to segment logs.

Receives frames over TCP (see `intake`); passes them to the committer, and acknowledgements to the senders.

Invariants:
- A frame is acknowledged after it is on disk, never before.
- Of what one connection sent, nothing is accepted after the first frame that was refused.
- Memory is bounded: beyond `most_waiting_bytes` the gateway reads no connection until some of it is on disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.descriptors import MOST_DESCRIPTORS, compute_room
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.admission import Admission, Bounds
from penstock.ingest.bindings import Claim
from penstock.ingest.committer import Committer, FrameOutcome
from penstock.ingest.event_log import log_event
from penstock.ingest.frames import Frame
from penstock.ingest.intake import MOST_BYTES, Hello, Intake, SessionTaken
from penstock.ingest.listener import Guest
from penstock.ingest.partition import SequenceGap
from penstock.ingest.private_directories import report_open_directories
from penstock.ingest.producers import Producers
from penstock.ingest.store import PARTITIONS, SEGMENT_BYTES, Retention
from penstock.ingest.tokens import Tokens


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of a gateway."""

    directory: Path
    tokens: Tokens = field(default_factory=Tokens)
    most_bytes: int = MOST_BYTES
    bounds: Bounds = field(default_factory=Bounds)
    #: the streams that the operator declared, beside those that have a log; None: any
    streams: frozenset[str] | None = None
    #: the limit of open files
    descriptors: int = MOST_DESCRIPTORS
    most_waiting_bytes: int = 64 << 20
    partitions: int = PARTITIONS
    segment_bytes: int = SEGMENT_BYTES
    gather_seconds: float = 0.005
    #: how long a connection may take to prove who it is, with its TLS handshake
    hello_seconds: float = 10.0
    #: how long a message may be on its way, from its first byte to its last
    patience_seconds: float = 30.0
    prune_seconds: float = 30.0
    #: how long a producer must have been silent before its spool may continue elsewhere
    takeover_seconds: float = 30.0
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
        self.admission = Admission(
            settings.bounds, lambda: compute_room(settings.descriptors, self.committer.descriptors)
        )
        self.connections: set[Connection] = set()
        self.producers = Producers(settings.directory, settings.takeover_seconds)
        self.refused = 0

    @property
    def is_full(self) -> bool:
        """Whether the bytes that wait to be written have reached their limit."""
        return self.committer.waiting_bytes >= self.settings.most_waiting_bytes

    def check_declared(self, stream: str) -> str:
        """Raise unless the operator declared a stream, or it has a log already."""
        declared = self.settings.streams
        if declared is None or stream in declared or self.committer.has_log(stream):
            return stream
        raise UserError(
            "STREAM_NOT_DECLARED",
            f"the gateway has no stream {stream}",
            hint=f"If it is meant, start the gateway with --stream {stream}.",
        )

    def collect_metrics(self) -> dict[str, object]:
        """Collect the counters."""
        return {
            "connections": len(self.connections),
            "waiting_connections": self.admission.waiting,
            "refused": self.refused + self.admission.displaced,
            **self.committer.collect_metrics(),
        }

    async def open(self) -> None:
        """Open the existing logs, before any connection is accepted."""
        streams = sorted(path.parent for path in self.settings.directory.glob("*/log.json"))
        report_open_directories([self.settings.directory, *streams])
        for name, cut in (await self.committer.open_all()).items():
            log_event("log opened", stream=name, cut_bytes=cut)

    async def run(self) -> None:
        """Run the tasks beside the connections, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.committer.run(self._acknowledge_all))
            tasks.create_task(self._watch())
            tasks.create_task(self._prune())

    def unregister(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        if hello := connection.intake.hello:
            self.producers.disconnect((hello.stream, hello.producer), connection)

    def _acknowledge_all(self) -> None:
        for connection in list(self.connections):
            connection.acknowledge()

    async def _watch(self) -> None:
        """Close connections that start a message and do not finish it."""
        while True:
            await asyncio.sleep(min(self.settings.patience_seconds / 4, 5))
            late = time.monotonic() - self.settings.patience_seconds
            for connection in list(self.connections):
                if connection.is_unfinished and connection.started_at < late:
                    connection.refuse(ExternalError("TOO_SLOW", "the rest of a message did not come"))

    async def _prune(self) -> None:
        while True:
            for name, pruned in (await self.committer.prune(self.settings.retention)).items():
                if pruned.segments:
                    log_event("pruned", stream=name, **asdict(pruned))
            await self.producers.forget()
            await asyncio.sleep(self.settings.prune_seconds)


class Connection(asyncio.Protocol):
    """One agent's connection."""

    def __init__(self, gateway: Gateway, guest: Guest) -> None:
        self._gateway, self._guest = gateway, guest
        guest.on_late = self.refuse
        self.intake = Intake(gateway.settings.most_bytes)
        self._transport: asyncio.Transport | None = None
        self._hello_task: asyncio.Task[None] | None = None
        self._claim: Claim | None = None
        #: the session that the agent is offered, and the one before it
        self._offered = ("", "")
        self._ready = self._over = self._paused = self._writing_paused = False
        self._durable: int | None = None
        #: when the first bytes of the message came that is not whole
        self.started_at = time.monotonic()

    @property
    def is_unfinished(self) -> bool:
        """Whether a message has started and is not whole; how long a hello may take is the guest's matter."""
        return self._ready and not self._paused and self.intake.buffered_bytes > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        try:
            self._guest.check_room()
        except PenstockError as error:
            self.refuse(error)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        was_empty = not self.intake.buffered_bytes
        try:
            messages = self.intake.feed(data)
            if was_empty or messages:
                self.started_at = time.monotonic()
            for message in messages:
                if isinstance(message, Hello):
                    token = self._gateway.settings.tokens.check(message.token)
                    self._guest.establish()
                    self._claim = Claim(
                        message.producer, message.secret, token, message.sessions, message.place
                    )
                    self._hello_task = asyncio.ensure_future(self._answer_hello(message, self._claim))
                elif isinstance(message, SessionTaken):
                    self._hello_task = asyncio.ensure_future(self._bind(message.session))
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

    async def _answer_hello(self, hello: Hello, claim: Claim) -> None:
        try:
            self._gateway.check_declared(hello.stream)
            if hello.sessions is not None:
                self._offered = await self._gateway.producers.offer_session(hello.stream, claim)
            else:
                await self._connect(hello, claim)
            position = await self._gateway.committer.position(hello.stream, hello.producer)
        except PenstockError as error:
            self.refuse(error)
            return
        answer: dict[str, object] = {"next": position, "most_bytes": self._gateway.settings.most_bytes}
        if hello.sessions is not None:
            answer |= {"session": self._offered[0], "former": self._offered[1]}
        self._send(answer)

    async def _bind(self, session: str) -> None:
        """Bind the name to the session that the agent has stored."""
        hello, claim = self.intake.hello, self._claim
        assert hello is not None
        assert claim is not None
        try:
            if not session or session != self._offered[0]:
                raise ExternalError("BAD_HELLO", "another session was offered")
            await self._connect(hello, claim)
        except PenstockError as error:
            self.refuse(error)
            return
        self._send({"ready": True})

    async def _connect(self, hello: Hello, claim: Claim) -> None:
        """Make this the connection of its producer."""
        await self._gateway.producers.bind(hello.stream, claim, self._offered[0])
        self._guest.stop_deadline()
        self._gateway.connections.add(self)
        self._gateway.producers.connect((hello.stream, hello.producer), self)
        self._ready = True

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
            self.started_at = time.monotonic()
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
        log_event(
            "refused",
            condition=error.condition,
            reason=error.primary,
            peer=self._guest.peer,
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
        self._guest.leave()
        self._gateway.unregister(self)

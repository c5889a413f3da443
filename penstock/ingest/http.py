"""Serves HTTP: receives lines and JSON from programs that are no agents.

    POST /streams/NAME/events   lines as they are; with Content-Type application/json an array of events, or one
    GET  /status                the gateway's counters
    GET  /metrics               the same for Prometheus
    GET  /health                200 while it runs

Receives requests; passes frames to the committer. The response comes when the lines are on disk. With the headers
`Penstock-Producer` and `Penstock-Position` (the count of bytes that the producer sent before) a request can be
repeated: the gateway drops what the log already has. `Penstock-Secret` binds the producer's name (`bindings`).

Requests of pages of other sites are refused, as the service refuses them, and so are types of bodies that a form can
send. A body that is not read is skipped, or ends the connection: it is never taken for a request.

Small on purpose: HTTP/1.1, Content-Length, keep-alive. Everything else is refused with a status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import dataclass

from penstock.errors import PenstockError, UserError
from penstock.ingest.bindings import Claim
from penstock.ingest.committer import FrameOutcome
from penstock.ingest.event_log import log_event
from penstock.ingest.frames import MOST_POSITION, Frame
from penstock.ingest.gateway import Gateway
from penstock.ingest.intake import check_producer, check_stream
from penstock.ingest.json_events import json_lines
from penstock.ingest.listener import Guest
from penstock.ingest.partition import SequenceGap
from penstock.ingest.tokens import LEAST_TOKEN
from penstock.metrics import CONTENT_TYPE, Registry, expose
from penstock.metrics.facts import set_gateway
from penstock.request_origin import check_local_request

_MOST_HEAD_BYTES = 16 << 10
_CLOSE_SECONDS = 5.0
#: a body that was not wanted is skipped up to this size, and after a refusal for so long and so far
_MOST_SKIPPED_BYTES = 64 << 10
_MOST_DRAINED_BYTES = 4 << 20
_DRAIN_SECONDS = 2.0
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: what a proxy may take for the end of a line
_CONTROL = re.compile(r"[\r\n\0]")
_CONTENT_TYPES = ("application/x-ndjson", "application/octet-stream", "application/json")
_EVENTS = re.compile(r"/streams/([^/?]*)/events")
#: the producer of requests that name none
UNNAMED = "http"
_STATUS = {
    "BAD_REQUEST": 400,
    "BAD_TOKEN": 401,
    "FOREIGN_HOST": 403,
    "PRODUCER_BOUND": 403,
    "NOT_FOUND": 404,
    "STREAM_NOT_DECLARED": 404,
    "METHOD_NOT_ALLOWED": 405,
    "SEQUENCE_GAP": 409,
    "LENGTH_REQUIRED": 411,
    "TOO_LARGE": 413,
    "WRONG_CONTENT_TYPE": 415,
    "BAD_STREAM_NAME": 422,
    "BAD_PRODUCER": 422,
    "NOT_JSON": 422,
    "TOO_MANY_CONNECTIONS": 503,
    "LOG_UNWRITABLE": 503,
}
_REASONS = {200: "OK", 503: "Service Unavailable"}


@dataclass
class _Request:
    method: str
    path: str
    version: str
    headers: dict[str, str]
    #: of the body; -1 if the request does not say
    length: int
    #: whether the next byte of the connection is that of the next request
    is_read: bool

    @property
    def content_type(self) -> str:
        """The type of the body, "" if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class HttpServer:
    """Answers HTTP for a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def make_protocol(self, guest: Guest) -> asyncio.BaseProtocol:
        """Make the protocol of a connection."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._handle_connection(reader, writer, guest)
            finally:
                await _close(writer)
                guest.leave()

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_MOST_HEAD_BYTES), handle)

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guest: Guest
    ) -> None:
        """Handle all requests of one connection."""
        seconds = self._gateway.settings.patience_seconds * 2
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            try:
                guest.check_room()
            except PenstockError as error:
                await self._refuse(writer, error)
                return
            while await asyncio.wait_for(self._handle_request(reader, writer, guest), seconds):
                pass

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guest: Guest
    ) -> bool:
        """Handle one request; return whether there may be another on this connection."""
        request = None
        try:
            request = await _read_request(reader)
            if request is None:
                return False
            status, answer = await self._answer(request, reader, guest)
        except PenstockError as error:
            await self._refuse(writer, error, request)
            await _drain(reader, writer)
            return False
        keep = request.version == "HTTP/1.1" and request.headers.get("connection", "").lower() != "close"
        keep = keep and await _skip_body(request, reader)
        await _write_response(writer, status, answer, close=not keep)
        return keep

    async def _refuse(
        self, writer: asyncio.StreamWriter, error: PenstockError, request: _Request | None = None
    ) -> None:
        """Log the error and send it."""
        self._gateway.refused += 1
        status, answer = _build_refusal(error)
        peer = writer.get_extra_info("peername")
        log_event(
            "refused",
            condition=error.condition,
            reason=error.primary,
            peer=peer and f"{peer[0]}:{peer[1]}",
            producer=request and request.headers.get("penstock-producer"),
            request=request and f"{request.method} {request.path.partition('?')[0]}"[:200],
            status=status,
        )
        await _write_response(writer, status, answer, close=True)

    async def _answer(
        self, request: _Request, reader: asyncio.StreamReader, guest: Guest
    ) -> tuple[int, dict[str, object] | str]:
        tokens = self._gateway.settings.tokens
        if not tokens.are_required or tokens.own is not None:
            check_local_request(request.headers.get("host"), request.headers.get("origin"))
        if request.path == "/health":
            return 200, {"ok": True}
        token = tokens.check(
            request.headers.get("authorization", "").removeprefix("Bearer ").strip(),
            hint="Send the header Authorization: Bearer TOKEN.",
        )
        guest.establish()
        guest.stop_deadline()
        if request.path == "/status":
            return 200, self._gateway.collect_metrics()
        if request.path == "/metrics":
            registry = Registry()
            set_gateway(registry, self._gateway.collect_metrics())
            return 200, expose(registry)
        found = _EVENTS.fullmatch(request.path.partition("?")[0])
        if not found:
            raise UserError("NOT_FOUND", "there is no such path", hint="POST /streams/NAME/events")
        if request.method != "POST":
            raise UserError("METHOD_NOT_ALLOWED", "events must be sent by POST")
        stream = self._gateway.check_declared(check_stream(found[1]))
        _check_content_type(request)
        producer, position = _parse_producer(request)
        if position is not None:
            secret = _parse_secret(request)
            await self._gateway.producers.bind(stream, Claim(producer, secret, token))
        return 200, await self._append(stream, producer, position, request, reader)

    async def _append(
        self,
        stream: str,
        producer: str,
        position: int | None,
        request: _Request,
        reader: asyncio.StreamReader,
    ) -> dict[str, object]:
        most = self._gateway.settings.most_bytes
        if request.length < 0:
            raise UserError("LENGTH_REQUIRED", "a Content-Length is required")
        if request.length > most:
            raise UserError("TOO_LARGE", f"the body is larger than {most} bytes", hint="Send it in parts.")
        while self._gateway.is_full:
            await asyncio.sleep(0.01)
        body = await reader.readexactly(request.length)
        request.is_read = True
        if request.content_type == "application/json":
            body = json_lines(body)
            if len(body) > most:
                raise UserError(
                    "TOO_LARGE", f"the events are larger than {most} bytes", hint="Send them in parts."
                )
        if not body:
            return {"lines": 0}
        if not body.endswith(b"\n"):
            body += b"\n"
        made_at = int(time.time() * 1e6)
        frame = await asyncio.to_thread(Frame.of, producer, position or 0, body, made_at=made_at)
        done: asyncio.Future[FrameOutcome] = asyncio.get_running_loop().create_future()

        def set_outcome(outcome: FrameOutcome) -> None:
            if not done.done():  # the request may be over
                done.set_result(outcome)

        self._gateway.committer.submit(done, stream, frame, set_outcome, anywhere=position is None)
        outcome = await done
        if isinstance(outcome, PenstockError):
            raise outcome
        result: dict[str, object] = {"lines": outcome.lines}
        return result if position is None else result | {"durable": outcome.position}


def _check_content_type(request: _Request) -> None:
    """Raise for a type that a form of a page could send, or that is none of lines. Programs may leave it out."""
    kind = request.content_type
    if kind not in _CONTENT_TYPES and (kind or "origin" in request.headers):
        raise UserError(
            "WRONG_CONTENT_TYPE",
            f"the body must be {' or '.join(_CONTENT_TYPES)}, not {kind[:80] or 'without a type'}",
            hint="Set Content-Type: application/x-ndjson for lines, application/json for an array of objects.",
        )


async def _skip_body(request: _Request, reader: asyncio.StreamReader) -> bool:
    """Skip a body that nobody read, so that it is not taken for a request; False if its end is unknown or far."""
    if not request.is_read and 0 <= request.length <= _MOST_SKIPPED_BYTES:
        await reader.readexactly(request.length)
        request.is_read = True
    return request.is_read


async def _drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read on for a moment after a refusal: closing with bytes unread would take the response back."""
    with contextlib.suppress(OSError, TimeoutError):
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(_DRAIN_SECONDS):
            left = _MOST_DRAINED_BYTES
            while left > 0 and (data := await reader.read(_MOST_HEAD_BYTES)):
                left -= len(data)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; do not wait long for a peer that does not read the response."""
    writer.close()
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def _parse_producer(request: _Request) -> tuple[str, int | None]:
    """Parse the producer and its position, if the request names them."""
    producer = request.headers.get("penstock-producer")
    if producer is None:
        return UNNAMED, None
    position = request.headers.get("penstock-position", "")
    if not re.fullmatch(r"[0-9]{1,19}", position) or int(position) >= MOST_POSITION:
        raise UserError("BAD_REQUEST", "Penstock-Position must be the count of bytes sent before")
    if check_producer(producer) == UNNAMED:
        raise UserError("BAD_PRODUCER", f"{UNNAMED!r} is reserved for the gateway")
    return producer, int(position)


def _parse_secret(request: _Request) -> str:
    """Parse the secret that proves the producer's name; "" if the request has none."""
    secret = request.headers.get("penstock-secret", "")
    if secret and len(secret) < LEAST_TOKEN:
        raise UserError(
            "BAD_REQUEST",
            f"Penstock-Secret must have at least {LEAST_TOKEN} characters",
            hint="Make one with: openssl rand -hex 24.",
        )
    return secret


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """Read the head of a request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise UserError("BAD_REQUEST", "the head of the request is too long") from None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    words = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or name.lower() in headers or _CONTROL.search(value):
            raise UserError("BAD_REQUEST", "a header is malformed, or there twice")
        headers[name.lower()] = value.strip()
    length = headers.get("content-length", "-1" if "transfer-encoding" in headers else "0")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or _CONTROL.search(first):
        raise UserError("BAD_REQUEST", "the request is not HTTP/1.1")
    if not re.fullmatch(r"-1|[0-9]{1,18}", length):
        raise UserError("BAD_REQUEST", "Content-Length is not a number")
    known = -1 if "transfer-encoding" in headers else int(length)
    return _Request(words[0], words[1], words[2], headers, known, is_read=known == 0)


def _build_refusal(error: PenstockError) -> tuple[int, dict[str, object]]:
    answer: dict[str, object] = {"error": error.condition, "reason": error.primary, "hint": error.hint}
    if isinstance(error, SequenceGap):
        answer["next"] = error.expected
    return _STATUS.get(error.condition, 400), answer


async def _write_response(
    writer: asyncio.StreamWriter, status: int, answer: dict[str, object] | str, *, close: bool = True
) -> None:
    kind = CONTENT_TYPE if isinstance(answer, str) else "application/json"
    body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'close' if close else 'keep-alive'}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()

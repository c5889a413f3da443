"""Forwards requests about a job to the coordinator that manages it, and makes commands idempotent on their way.

It stands between the gate and the API. Requests that are about no job of another coordinator, and those that another
coordinator has forwarded, go to the API of this process.

Guarantees: a forwarded command has an idempotency key, so it is executed once, however often it is sent. If the manager
of the job does not respond, the command goes to whichever coordinator manages the job next; after
`MAX_FORWARD_SECONDS` this process executes it. Any coordinator can: the command log orders commands. If the manager
does not respond to a read, this process responds at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Iterable
from contextvars import ContextVar

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.catalogue.coordinators import Coordinator, Coordinators
from penstock.catalogue.master_placement import subject_of
from penstock.server.structured_log import log
from penstock.sql.parse import parse

#: the idempotency key of the request
REQUEST: ContextVar[str | None] = ContextVar("penstock_request", default=None)
MAX_FORWARD_SECONDS = 15.0
_RESPONSE_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_KEY, _FORWARDED, _BY = b"idempotency-key", b"penstock-forwarded", b"penstock-coordinator"
_FORWARDED_HEADERS = (b"authorization", b"accept", b"content-type")
_COMMANDS = ("pause", "resume", "flush", "empty")
_JOB = re.compile(r"/jobs/([^/]+)(?:/([a-z]+))?")
_STREAM = re.compile(r"/streams/([^/]+)")
#: the other coordinator cannot respond now: a later one may
_UNAVAILABLE = frozenset({502, 503, 504})
#: the other coordinator refuses this one
_REFUSED = frozenset({401, 403, 429})


class Forwarding:
    """ASGI middleware between the gate and the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: the coordinators that share the jobs; None if this process manages all of them
        self.coordinators: Coordinators | None = None
        self.ca_file: str | None = None
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            if scope["type"] == "lifespan" and self._client is not None:
                await self._client.aclose()
            return
        headers = dict(scope["headers"])
        REQUEST.set(headers[_KEY].decode("latin-1") if _KEY in headers else None)
        coordinators = self.coordinators
        if coordinators is None:
            await self._app(scope, receive, send)
            return
        send = _sign_responses(send, coordinators.me.name)
        subject = None if _FORWARDED in headers else _subject_of_path(scope["method"], scope["path"])
        if subject is None:
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            return  # the client is gone
        name: str | None = subject
        if not subject:
            content_type = headers.get(b"content-type", b"")
            name = await asyncio.to_thread(_subject_of_body, scope["path"], content_type, body)
        response = None if name is None else await self._forward(coordinators, name, scope, headers, body)
        if response is None:
            await self._app(scope, _replay_body(body, receive), send)
        else:
            await _relay(response, send)

    async def _forward(
        self,
        coordinators: Coordinators,
        name: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        body: bytes,
    ) -> httpx.Response | None:
        """Return the response of the coordinator that manages a job; None if this process is to respond."""
        is_read = scope["method"] == "GET" or scope["path"].endswith("/messages")
        until = time.monotonic() + MAX_FORWARD_SECONDS
        while (manager := coordinators.manager_of(name)).name != coordinators.me.name:
            if not is_read and REQUEST.get() is None:
                REQUEST.set(uuid.uuid4().hex)
            response = await self._send_to(manager, scope, headers, body)
            status = None if response is None else response.status_code
            if response is not None and status not in _UNAVAILABLE | _REFUSED:
                return response
            if is_read or status in _REFUSED or time.monotonic() > until:
                log("coordinator does not respond", 30, job=name, coordinator=manager.name)
                return None
            await asyncio.sleep(_RETRY_SECONDS)
        return None

    async def _send_to(
        self, manager: Coordinator, scope: Scope, headers: dict[bytes, bytes], body: bytes
    ) -> httpx.Response | None:
        """Send a request to another coordinator; None if it does not respond."""
        if self._client is None:
            verify = httpx.create_ssl_context()
            if self.ca_file is not None:
                verify.load_verify_locations(self.ca_file)
            timeout = httpx.Timeout(_RESPONSE_SECONDS, connect=1.0)
            self._client = httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False)
        forwarded = [(key, value) for key, value in headers.items() if key in _FORWARDED_HEADERS]
        forwarded.append((_FORWARDED, b"1"))
        if (request := REQUEST.get()) is not None:
            forwarded.append((_KEY, request.encode("latin-1")))
        query = scope["query_string"].decode("latin-1")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        url = f"{manager.url}{path}{query and '?'}{query}"
        try:
            return await self._client.request(scope["method"], url, headers=forwarded, content=body)
        except httpx.HTTPError:
            return None


def _subject_of_path(method: str, path: str) -> str | None:
    """The job or stream that a request is about; "" if its body names it, None if any coordinator can respond."""
    if method == "POST" and path in ("/sql", "/jobs", "/streams"):
        return ""
    if (match := _STREAM.fullmatch(path)) is not None:
        return match[1] if method == "DELETE" else None
    match = _JOB.fullmatch(path)
    if match is None:
        return None
    page = match[2]
    if method == "GET":
        is_managed = page in (None, "answer", "results")
    elif method == "POST":
        is_managed = page in (*_COMMANDS, "messages")
    elif method == "PUT":
        is_managed = page == "code"
    else:
        is_managed = method in ("PATCH", "DELETE") and page is None
    return match[1] if is_managed else None


def _subject_of_body(path: str, content_type: bytes, body: bytes) -> str | None:
    """The job or stream that a body is about; None if it cannot be read: the API of this process reports why."""
    try:
        if path != "/sql":
            name = json.loads(body)["name"]
            return name if isinstance(name, str) else None
        text = body.decode() if content_type.startswith(b"application/sql") else json.loads(body)["sql"]
        return subject_of(parse(text))
    except Exception:
        return None


async def _read_body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Let the API read a body that has been read already."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _sign_responses(send: Send, name: str) -> Send:
    """Add the coordinator's name to responses that do not have one."""

    async def send_signed(message: Message) -> None:
        if message["type"] == "http.response.start" and _BY not in dict(message["headers"]):
            message = {**message, "headers": [*message["headers"], (_BY, name.encode())]}
        await send(message)

    return send_signed


async def _relay(response: httpx.Response, send: Send) -> None:
    """Send the response of another coordinator."""
    relayed: Iterable[bytes] = (b"content-type", b"penstock-epoch", b"www-authenticate", _BY)
    headers = [(key.lower(), value) for key, value in response.headers.raw if key.lower() in relayed]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})

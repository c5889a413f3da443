"""Forwards requests about a job to the coordinator that manages it, and makes commands idempotent on their way.

It stands between the gate and the API. Requests that are about no job of another coordinator, and those that another
coordinator has forwarded, go to the API of this process. A forwarded request is signed by this coordinator and carries
neither the token nor the cookies of its user (`peer_requests`).

Guarantees: requests are forwarded only to addresses, and responses relayed only from processes, that have the key of
the state directory. A forwarded command has an idempotency key, so it is executed once, however often it is sent. If
the manager of the job does not respond, the command goes to whichever coordinator manages the job next; after
`MAX_FORWARD_SECONDS` this process executes it, and at once if the manager cannot be verified. Any coordinator can: the
command log orders commands. If the manager does not respond to a read, this process responds at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from contextvars import ContextVar
from pathlib import Path

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.catalogue.coordinators import Coordinator, Coordinators
from penstock.catalogue.master_placement import subject_of
from penstock.server.middleware import SIGNED, target_of
from penstock.server.peer_requests import SIGNATURE, PeerRequests, SignedRequest
from penstock.server.structured_log import log
from penstock.server.tokens import ANYONE, CALLER, Role
from penstock.sql.parse import parse

#: the idempotency key of the request
REQUEST: ContextVar[str | None] = ContextVar("penstock_request", default=None)
MAX_FORWARD_SECONDS = 15.0
_RESPONSE_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_KEY, _BY = b"idempotency-key", b"penstock-coordinator"
_FORWARDED_HEADERS = (b"accept", b"content-type")
_RELAYED_HEADERS = (b"content-type", b"penstock-epoch", _BY)
_COMMANDS = ("pause", "resume", "flush", "empty")
_JOB = re.compile(r"/jobs/([^/]+)(?:/([a-z]+))?")
_STREAM = re.compile(r"/streams/([^/]+)")
#: the other coordinator cannot respond now: a later one may
_UNAVAILABLE = frozenset({502, 503, 504})


class _NotVerified(Exception):
    """The other process does not sign its response: it refuses this one, or it is no coordinator."""


class Forwarding:
    """ASGI middleware between the gate and the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: the coordinators that share the jobs; None if this process manages all of them
        self.coordinators: Coordinators | None = None
        self._peer_requests: PeerRequests | None = None
        self._certificate: Path | None = None
        self._client: httpx.AsyncClient | None = None

    def share_jobs(
        self, coordinators: Coordinators, peer_requests: PeerRequests, certificate: Path | None = None
    ) -> None:
        """Forward requests about jobs of other coordinators from now on; `certificate`: one to trust."""
        self._peer_requests, self._certificate = peer_requests, certificate
        self.coordinators = coordinators

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
        send = _name_coordinator(send, coordinators.me.name)
        if (signed := scope.get(SIGNED)) is not None:
            await self._respond_to_peer(signed, scope, receive, send)
            return
        subject = _subject_of_path(scope["method"], scope["path"])
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
            is_verified = True
            try:
                response = await self._send_to(manager, scope, headers, body)
            except _NotVerified:
                response, is_verified = None, False
            if response is not None and response.status_code not in _UNAVAILABLE:
                return response
            if is_read or not is_verified or time.monotonic() > until:
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
            if self._certificate is not None:
                verify.load_verify_locations(self._certificate)
            timeout = httpx.Timeout(_RESPONSE_SECONDS, connect=1.0)
            self._client = httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False)
        assert self._peer_requests is not None
        forwarded = {key: value for key, value in headers.items() if key in _FORWARDED_HEADERS}
        forwarded.setdefault(b"accept", b"*/*")  # what httpx would add
        if (key := REQUEST.get()) is not None:
            forwarded[_KEY] = key.encode("latin-1")
        request = self._client.build_request(
            scope["method"], f"{manager.url}{target_of(scope)}", headers=list(forwarded.items()), content=body
        )
        caller = CALLER.get()
        signed = self._peer_requests.sign_request(
            request.method,
            request.url.raw_path,
            forwarded.items(),
            body,
            manager.name,
            None if caller is None else caller.name,
            Role.operate if caller is None or caller.name == ANYONE else caller.role,
        )
        request.headers.update(httpx.Headers(list(signed.items())))
        try:
            response = await self._client.send(request)
        except httpx.HTTPError:
            return None
        raw = [(name.lower(), value) for name, value in response.headers.raw]
        signature = response.headers.get(SIGNATURE.decode(), "")
        if not self._peer_requests.verifies_response(
            signature, signed[SIGNATURE].decode(), response.status_code, raw, response.content
        ):
            raise _NotVerified
        return response

    async def _respond_to_peer(
        self, signed: SignedRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Have the API respond to a request of another coordinator, and sign the whole response."""
        start: Message = {}
        body = b""

        async def send_whole(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body", False):
                return
            assert self._peer_requests is not None
            headers = [(name.lower(), value) for name, value in start["headers"]]
            signature = self._peer_requests.sign_response(signed.signature, start["status"], headers, body)
            await send({**start, "headers": [*headers, (SIGNATURE, signature.encode())]})
            await send({"type": "http.response.body", "body": body})

        # the signature covers the coordinator's name
        assert self.coordinators is not None
        await self._app(scope, receive, _name_coordinator(send_whole, self.coordinators.me.name))


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


def _name_coordinator(send: Send, name: str) -> Send:
    """Add the coordinator's name to responses that do not have one."""

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start" and _BY not in dict(message["headers"]):
            message = {**message, "headers": [*message["headers"], (_BY, name.encode())]}
        await send(message)

    return send_named


async def _relay(response: httpx.Response, send: Send) -> None:
    """Send the response of another coordinator."""
    headers = [(key.lower(), value) for key, value in response.headers.raw if key.lower() in _RELAYED_HEADERS]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})

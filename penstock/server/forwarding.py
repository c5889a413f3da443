"""Between the gate and the API: what belongs to another coordinator goes there, and a request can be said again.

Receives requests that have passed the gate; hands those about a job whose master another coordinator carries to that
one, and its answer back. All others, and those that were forwarded already, go on to the API here.

Guarantees: a command has a request's name on its way, so that it is carried out once, however often it has to be sent.
One whose carrier does not answer is sent to whoever carries the job then; after `PATIENCE_SECONDS` it is carried out
here: any coordinator can, since it is the log that keeps commands in order. A question is then answered here at once.
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
from penstock.catalogue.master_placement import subject
from penstock.server.structured_log import log
from penstock.sql.parse import parse

#: the name a request was given by who made it, for it to be carried out once
REQUEST: ContextVar[str | None] = ContextVar("penstock_request", default=None)
PATIENCE_SECONDS = 15.0
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 0.1
_KEY, _FORWARDED, _BY = b"idempotency-key", b"penstock-forwarded", b"penstock-coordinator"
_PASSED_ON = (b"authorization", b"accept", b"content-type")
_COMMANDS = ("pause", "resume", "flush", "empty")
_JOB = re.compile(r"/jobs/([^/]+)(?:/([a-z]+))?")
_STREAM = re.compile(r"/streams/([^/]+)")
#: the carrier cannot answer now: another may, or it later
_AWAY = frozenset({502, 503, 504})
#: the carrier does not let us in
_CLOSED = frozenset({401, 403, 429})


class Forwarding:
    """Stands between the gate and an app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: who else carries masters; None where all are here
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
        send = _signed(send, coordinators.me.name)
        about = None if _FORWARDED in headers else _about(scope["method"], scope["path"])
        if about is None:
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return  # who asked has gone
        name: str | None = about
        if not about:
            kind = headers.get(b"content-type", b"")
            name = await asyncio.to_thread(_named, scope["path"], kind, body)
        answer = None if name is None else await self._elsewhere(coordinators, name, scope, headers, body)
        if answer is None:
            await self._app(scope, _again(body, receive), send)
        else:
            await _handed(answer, send)

    async def _elsewhere(
        self,
        coordinators: Coordinators,
        name: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        body: bytes,
    ) -> httpx.Response | None:
        """What the coordinator answers that carries a job's master; None where that is this one."""
        question = scope["method"] == "GET" or scope["path"].endswith("/messages")
        until = time.monotonic() + PATIENCE_SECONDS
        while (carrier := coordinators.carrier(name)).name != coordinators.me.name:
            if not question and REQUEST.get() is None:
                REQUEST.set(uuid.uuid4().hex)
            answer = await self._asked(carrier, scope, headers, body)
            if answer is not None and answer.status_code not in _AWAY | _CLOSED:
                return answer
            if question or (answer is not None and answer.status_code in _CLOSED) or time.monotonic() > until:
                log("carrier does not answer", 30, job=name, coordinator=carrier.name)
                return None
            await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def _asked(
        self, carrier: Coordinator, scope: Scope, headers: dict[bytes, bytes], body: bytes
    ) -> httpx.Response | None:
        """Have a coordinator answer a request; None if it does not."""
        if self._client is None:
            verify = httpx.create_ssl_context()
            if self.ca_file is not None:
                verify.load_verify_locations(self.ca_file)
            timeout = httpx.Timeout(_ANSWER_SECONDS, connect=1.0)
            self._client = httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False)
        passed = [(key, value) for key, value in headers.items() if key in _PASSED_ON]
        passed.append((_FORWARDED, b"1"))
        if (request := REQUEST.get()) is not None:
            passed.append((_KEY, request.encode("latin-1")))
        query = scope["query_string"].decode("latin-1")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        url = f"{carrier.url}{path}{query and '?'}{query}"
        try:
            return await self._client.request(scope["method"], url, headers=passed, content=body)
        except httpx.HTTPError:
            return None


def _about(method: str, path: str) -> str | None:
    """The job or stream a request is about; "" where its body says it, None where anyone can answer."""
    if method == "POST" and path in ("/sql", "/jobs", "/streams"):
        return ""
    if (found := _STREAM.fullmatch(path)) is not None:
        return found[1] if method == "DELETE" else None
    found = _JOB.fullmatch(path)
    if found is None:
        return None
    page = found[2]
    if method == "GET":
        wanted = page in (None, "answer", "results")
    elif method == "POST":
        wanted = page in (*_COMMANDS, "messages")
    elif method == "PUT":
        wanted = page == "code"
    else:
        wanted = method in ("PATCH", "DELETE") and page is None
    return found[1] if wanted else None


def _named(path: str, kind: bytes, body: bytes) -> str | None:
    """The job or stream that a body is about; None if it cannot be read: the API says why."""
    try:
        if path != "/sql":
            name = json.loads(body)["name"]
            return name if isinstance(name, str) else None
        text = body.decode() if kind.startswith(b"application/sql") else json.loads(body)["sql"]
        return subject(parse(text))
    except Exception:
        return None


async def _body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read again."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _signed(send: Send, name: str) -> Send:
    """Answers that say which coordinator gave them, unless they do."""

    async def signed(message: Message) -> None:
        if message["type"] == "http.response.start" and _BY not in dict(message["headers"]):
            message = {**message, "headers": [*message["headers"], (_BY, name.encode())]}
        await send(message)

    return signed


async def _handed(answer: httpx.Response, send: Send) -> None:
    """Hand an answer on."""
    kept: Iterable[bytes] = (b"content-type", b"penstock-epoch", b"www-authenticate", _BY)
    headers = [(key.lower(), value) for key, value in answer.headers.raw if key.lower() in kept]
    headers.append((b"content-length", str(len(answer.content)).encode()))
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})

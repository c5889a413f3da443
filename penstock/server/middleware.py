"""The gate before the API: who is let in, how often, with how much; and a line in the log for each.

Receives every request before anything looks at it; hands on those that pass.

Invariant: a body is counted while it comes and never held beyond its limit.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError, UserError
from penstock.server.limits import Buckets, Limits
from penstock.server.security import Token, check_origin, check_own
from penstock.server.structured_log import log
from penstock.server.wire import ARROW, PROBLEM, problem, status_of

#: where the dashboard's pages lie, where one logs in, and the cookie of those who did
PAGES = "/ui"
LOGIN = f"{PAGES}/login"
COOKIE = "penstock"
#: pages that need no token: they tell nothing
_OPEN = frozenset({"/", "/health", "/favicon.ico", LOGIN})
#: what the log says a request was answered with whose client had gone; and where its scope says so
_GONE, LEFT = 499, "penstock.left"


class Refused(Exception):
    """A request does not pass."""

    def __init__(self, error: PenstockError, **headers: str) -> None:
        super().__init__(error.text())
        self.error, self.headers = error, headers


class Gate:
    """Stands before an app."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        token: Token | None,
        at_hand: Callable[[str], bytes | None] = lambda job: None,
    ) -> None:
        self._app, self._limits, self._token = app, limits, token
        #: a job's latest answer as JSON, where nothing has to be done for it: half of what an answer costs is routing
        self._at_hand = at_hand
        self._buckets = Buckets(limits.requests_per_second, limits.request_burst)
        #: answers so far, by status
        self.answers: Counter[int] = Counter()
        #: pages of the dashboard that are open
        self.pages = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._line(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, gone = time.monotonic(), 0, False

        async def received() -> Message:
            nonlocal gone
            message = await receive()
            gone = scope[LEFT] = gone or message["type"] == "http.disconnect"
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if gone and not status:  # nobody hears it
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                self.answers[status] += 1
                if _is_page(scope):
                    message = {**message, "headers": [*message["headers"], *_page_headers(scope)]}
            await send(message)

        try:
            self._check(scope)
            if (told := self._told(scope)) is not None:
                await _say(told, watched)
                return
            await self._app(scope, self._counted(scope, received), watched)
        except Refused as refused:
            if status:  # the answer has begun; nothing else can be said
                raise
            await _refuse(refused, watched, to_login=_asks_for_page(scope))
        except Exception as failure:
            if not (gone and for_nobody(failure)):
                raise
        finally:
            status = status or (_GONE if gone else 0)
            log(
                "request",
                logging.DEBUG
                if (status < 400 or status == _GONE) and scope["method"] == "GET"
                else logging.INFO,
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=round(time.monotonic() - began, 6),
                client=client_of(scope),
            )

    def _told(self, scope: Scope) -> bytes | None:
        """The answer to a question that needs no thought."""
        path = scope["path"]
        if scope["method"] != "GET" or not path.startswith("/jobs/") or not path.endswith("/answer"):
            return None
        if any(name == b"accept" and ARROW.encode() in value for name, value in scope["headers"]):
            return None
        return self._at_hand(path[6:-7])

    async def _line(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket: only the dashboard's pages have one, and it passes as a request does."""
        try:
            self._check(scope)
            if not _is_page(scope) or self.pages >= self._limits.pages:
                raise Refused(UserError("TOO_MANY_REQUESTS", "no more pages can be open"))
        except Refused as refused:
            log(
                "page refused", path=scope["path"], condition=refused.error.condition, client=client_of(scope)
            )
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        self.pages += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.pages -= 1

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        wait = self._buckets.take(client_of(scope))
        if wait:
            error = UserError(
                "TOO_MANY_REQUESTS",
                f"at most {self._limits.requests_per_second:g} requests a second are answered",
                hint=f"Ask again in {wait:.3f} s.",
            )
            raise Refused(error, **{"retry-after": str(max(1, round(wait)))})
        try:
            if self._token is None:
                check_own(headers.get(b"host"), headers.get(b"origin"))
        except UserError as error:
            raise Refused(error) from error
        token = None if scope["path"] in _OPEN else self._token
        if token is not None and not token.fits(headers.get(b"authorization")) and not self._let_in(scope):
            refused = UserError(
                "NOT_AUTHORISED",
                "the request does not carry this service's token",
                hint="Authorization: Bearer TOKEN; the client takes connect(url, token=...).",
            )
            raise Refused(refused, **{"www-authenticate": 'Bearer realm="penstock"'})
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise Refused(self._too_large())

    def _let_in(self, scope: Scope) -> bool:
        """Whether a browser that logged in asks for a page; its cookie is good for nothing else."""
        headers = _headers(scope)
        try:
            carried = SimpleCookie(headers.get(b"cookie", "")).get(COOKIE)
        except CookieError:
            return False
        if self._token is None or not _is_page(scope) or carried is None:
            return False
        if scope["type"] == "websocket" or scope["method"] != "GET" or b"origin" in headers:
            try:
                check_origin(headers.get(b"host"), headers.get(b"origin"))
            except UserError as error:
                raise Refused(error) from error
        return self._token.passes(carried.value, time.time())

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """The body of a request that does not say how long it is, up to the limit."""
        got = 0

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self._limits.body_bytes:
                raise Refused(self._too_large())
            return message

        return counted

    def _too_large(self) -> UserError:
        return UserError(
            "BODY_TOO_LARGE",
            f"the body is longer than {self._limits.body_bytes:,} bytes",
            hint="Send it in parts.",
        )


def for_nobody(failure: Exception) -> bool:
    """Whether an error says no more than that there is nobody to answer."""
    if isinstance(failure, ClientDisconnect | OSError):
        return True
    return isinstance(failure, RuntimeError) and str(failure) == "No response returned."  # Starlette's


def client_of(scope: Scope) -> str:
    """Who asks: the address a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_page(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == PAGES or path.startswith(f"{PAGES}/")


def _asks_for_page(scope: Scope) -> bool:
    return _is_page(scope) and scope["method"] == "GET" and "/_nicegui" not in scope["path"]


def _page_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """What a page may do: load from here, speak to here, be part of no other page."""
    host = _headers(scope).get(b"host", "")
    lines = f" ws://{host} wss://{host}" if re.fullmatch(r"[\w.:\[\]-]+", host) else ""
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; "
        f"form-action 'self'; connect-src 'self'{lines}"
    )
    said = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
    }
    return [(name.encode(), value.encode()) for name, value in said.items()]


async def _say(told: bytes, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(told))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


async def _refuse(refused: Refused, send: Send, *, to_login: bool) -> None:
    if to_login and refused.error.condition == "NOT_AUTHORISED":
        await send({"type": "http.response.start", "status": 303, "headers": [(b"location", LOGIN.encode())]})
        await send({"type": "http.response.body", "body": b""})
        return
    body = json.dumps(problem(refused.error)).encode()
    headers = {"content-type": PROBLEM, "content-length": str(len(body)), **refused.headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status_of(refused.error), "headers": raw})
    await send({"type": "http.response.body", "body": body})

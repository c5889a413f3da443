"""Checks every request before the API sees it: token and role, or the signature of a coordinator; rate, size; logs it.

Guarantees: a body is counted while it arrives and never held beyond its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import html
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError, UserError
from penstock.server.large_bodies import Bodies
from penstock.server.limits import Limits, RateLimiter
from penstock.server.peer_requests import FORWARDED, PeerRequests, SignedRequest, not_verified
from penstock.server.security import check_local_request, check_origin, check_site, is_of_other_site
from penstock.server.sessions import Sessions
from penstock.server.structured_log import log
from penstock.server.tokens import ANYONE, CALLER, Caller, Role, Token, Tokens, check_role, needed_role
from penstock.server.wire import ARROW, PROBLEM, problem, status_of
from penstock.state.service_token import CHALLENGE, PROOF

#: the path of the dashboard's pages, and that of the login
PAGES = "/ui"
LOGIN = f"{PAGES}/login"
#: pages that need no token: they show nothing
_OPEN = frozenset({"/", "/health", "/favicon.ico", LOGIN})
#: the status in the log of a request whose client disconnected before the response, and the key in its scope
_CLIENT_GONE_STATUS, CLIENT_GONE = 499, "penstock.client_gone"
#: the key in the scope of a request that another coordinator signed
SIGNED = "penstock.signed"
#: the key in the scope of a function that says whether who sent a request still may
ALLOWED = "penstock.allowed"
#: how often an open page is checked for that, in seconds
_CHECK_SECONDS = 1.0
_TOKEN_HINT = "Send the header Authorization: Bearer TOKEN; the client takes connect(url, token=...)."
_OWN_HINT = (
    " The service has made its token itself: `penstock token` prints it, for the user that runs the service, and the "
    "client finds it there."
)
_LINK = (
    '<!doctype html><meta charset="utf-8"><title>Penstock</title>'
    '<p>A page of another site leads here. <a href="{path}">Open the page of Penstock</a></p>'
)


class Refusal(Exception):
    """A request does not pass the gate."""

    def __init__(self, error: PenstockError, **headers: str) -> None:
        super().__init__(error.text())
        self.error, self.headers = error, headers


class Gate:
    """The outermost ASGI middleware of a service."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        tokens: Tokens | None,
        sessions: Sessions | None = None,
        cached_result: Callable[[str], bytes | None] = lambda job: None,
        audit: Callable[..., None] = lambda caller, did, **facts: None,
    ) -> None:
        self._app, self._limits, self._tokens, self._sessions = app, limits, tokens, sessions
        #: records what is refused because of a role
        self._audit = audit
        #: a job's latest result as JSON if it is cached: half the cost of such a request is routing
        self._cached_result = cached_result
        self._rates = RateLimiter(limits.requests_per_second, limits.request_burst)
        #: verifies requests of other coordinators, if they share the jobs
        self.peer_requests: PeerRequests | None = None
        #: responses so far, by status
        self.responses: Counter[int] = Counter()
        self.bodies = Bodies(limits.response_bytes)
        #: open pages of the dashboard
        self.pages = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._pass_websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at, status, gone = time.monotonic(), 0, False

        async def receive_watched() -> Message:
            nonlocal gone
            message = await receive()
            gone = scope[CLIENT_GONE] = gone or message["type"] == "http.disconnect"
            return message

        async def send_watched(message: Message) -> None:
            nonlocal status
            if gone and not status:  # nobody receives it
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                self.responses[status] += 1
                message = {**message, "headers": [*message["headers"], *self._more_headers(scope)]}
            await self.bodies.send(message, send)

        try:
            self._check(scope)
            if (result := self._find_cached_result(scope)) is not None:
                await _send_json(result, send_watched)
                return
            if _is_page_request(scope) and is_of_other_site(_headers(scope)):
                await _send_link(scope["path"], send_watched)
                return
            await self._app(scope, self._check_body(scope, receive_watched), send_watched)
        except Refusal as refusal:
            if status:  # the response has started; no other can be sent
                raise
            await _refuse(refusal, send_watched, to_login=_is_page_request(scope))
        except Exception as failure:
            if not (gone and is_client_gone(failure)):
                raise
        finally:
            status = status or (_CLIENT_GONE_STATUS if gone else 0)
            is_well = status < 400 or status == _CLIENT_GONE_STATUS
            log(
                "request",
                logging.DEBUG if is_well and scope["method"] == "GET" else logging.INFO,
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=round(time.monotonic() - started_at, 6),
                client=client_of(scope),
            )

    def _find_cached_result(self, scope: Scope) -> bytes | None:
        """The response to a request for a job's latest result, if it is cached."""
        path = scope["path"]
        if scope["method"] != "GET" or not path.startswith("/jobs/") or not path.endswith("/answer"):
            return None
        if any(name == b"accept" and ARROW.encode() in value for name, value in scope["headers"]):
            return None
        return self._cached_result(path[6:-7])

    async def _pass_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a WebSocket as a request is checked; only the dashboard's pages have one."""
        try:
            self._check(scope)
            if not _is_page(scope) or self.pages >= self._limits.pages:
                raise Refusal(UserError("TOO_MANY_REQUESTS", "no more pages can be open"))
        except Refusal as refusal:
            log(
                "page refused", path=scope["path"], condition=refusal.error.condition, client=client_of(scope)
            )
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        self.pages += 1
        caller, requested = CALLER.get(), dict(scope)  # the application changes the path in it
        receiving: asyncio.Future[Message] | None = None

        async def receive_while_allowed() -> Message:
            nonlocal receiving
            receiving = receiving or asyncio.ensure_future(receive())
            while True:
                await asyncio.wait({receiving}, timeout=_CHECK_SECONDS)
                is_message = receiving.done() and receiving.result()["type"] == "websocket.receive"
                if (is_message or not receiving.done()) and self._caller_of(requested) != caller:
                    await send({"type": "websocket.close", "code": 1008})  # its session or token was revoked
                    return {"type": "websocket.disconnect", "code": 1008}
                if receiving.done():
                    message, receiving = receiving.result(), None
                    return message

        try:
            await self._app(scope, receive_while_allowed, send)
        finally:
            self.pages -= 1
            if receiving is not None:
                receiving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await receiving

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        wait = self._rates.take(client_of(scope))
        if wait:
            error = UserError(
                "TOO_MANY_REQUESTS",
                f"at most {self._limits.requests_per_second:g} requests a second are answered",
                hint=f"Retry in {wait:.3f} s.",
            )
            raise Refusal(error, **{"retry-after": str(max(1, round(wait)))})
        try:
            check_site(scope.get("method", "GET"), headers)
            if self._tokens is None or self._tokens.is_own:
                check_local_request(headers.get(b"host"), headers.get(b"origin"))
        except UserError as error:
            raise Refusal(error) from error
        if (signed := self._verify_peer(scope)) is not None:
            name = signed.envelope.user or signed.envelope.sender
            self._admit(scope, Caller(name, Role(signed.envelope.role), client_of(scope)))
        elif self._tokens is None or scope["path"] not in _OPEN:
            self._check_caller(scope)
            requested, caller = dict(scope), CALLER.get()
            scope[ALLOWED] = lambda: self._is_still(caller, requested)
        length = headers.get(b"content-length", "0")
        most = self._most_bytes(scope)
        if not length.isdecimal() or int(length) > most:
            raise Refusal(_too_large(most))

    def _verify_peer(self, scope: Scope) -> SignedRequest | None:
        """The signature of a request that another coordinator has forwarded; None if nobody claims that. Raises where
        it is only claimed."""
        if scope["type"] != "http" or not any(name == FORWARDED for name, _ in scope["headers"]):
            return None
        try:
            if self.peer_requests is None:
                raise not_verified("this process shares its jobs with no coordinator")
            target = target_of(scope).encode("latin-1")
            signed = self.peer_requests.verify_request(scope["method"], target, scope["headers"])
        except UserError as error:
            raise Refusal(error) from error
        scope[SIGNED] = signed
        return signed

    def _check_caller(self, scope: Scope) -> None:
        """Find out who sends a request, and refuse it without the role that it needs."""
        caller = self._caller_of(scope)
        CALLER.set(caller)
        if caller is None:
            refused = UserError(
                "NOT_AUTHORISED",
                "the request does not carry a token of this service",
                hint=_TOKEN_HINT + (_OWN_HINT if self._tokens and self._tokens.is_own else ""),
            )
            raise Refusal(refused, **{"www-authenticate": 'Bearer realm="penstock"'})
        self._admit(scope, caller)

    def _admit(self, scope: Scope, caller: Caller) -> None:
        CALLER.set(caller)
        method = scope.get("method", "GET")
        try:
            check_role(caller, needed_role(method, scope["path"]))
        except UserError as error:
            self._audit(caller, "refused", method=method, path=scope["path"], condition=error.condition)
            raise Refusal(error) from error

    def _caller_of(self, scope: Scope) -> Caller | None:
        """Who sends a request; None if it has no valid token or session."""
        address = client_of(scope)
        if self._tokens is None:
            return Caller(ANYONE, Role.administer, address)
        token = self._tokens.find(_headers(scope).get(b"authorization")) or self._session_of(scope)
        return None if token is None else Caller(token.name, token.role, address)

    def _is_still(self, caller: Caller | None, scope: Scope) -> bool:
        """Whether a request may be answered further: its token has not been revoked since."""
        now = self._caller_of(scope)
        return caller is not None and now is not None and now.name == caller.name

    def _more_headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Headers of a response that the application does not know of."""
        if _is_page(scope):
            return _page_headers(scope)
        if scope["path"] == "/health" and (nonce := _headers(scope).get(CHALLENGE.encode())) is not None:
            proof = None if self._tokens is None else self._tokens.prove(port_of(scope), nonce)
            return [] if proof is None else [(PROOF.encode(), proof.encode())]
        return []

    def _session_of(self, scope: Scope) -> Token | None:
        """The token with which a browser logged in that requests a page; its session is valid for nothing else."""
        headers = _headers(scope)
        session = session_in(headers.get(b"cookie", ""), scope)
        if self._sessions is None or not _is_page(scope) or session is None:
            return None
        if scope["type"] == "websocket" or scope["method"] != "GET" or b"origin" in headers:
            try:
                check_origin(headers.get(b"host"), headers.get(b"origin"))
            except UserError as error:
                raise Refusal(error) from error
        return self._sessions.find(session)

    def _most_bytes(self, scope: Scope) -> int:
        """The longest body of a request."""
        return self._limits.login_bytes if scope["path"] == LOGIN else self._limits.body_bytes

    def _check_body(self, scope: Scope, receive: Receive) -> Receive:
        """Receive a body up to the limit, also one that comes without its length; of a signed request only the body
        that was signed."""
        size, digest, most = 0, hashlib.sha256(), self._most_bytes(scope)
        signed: SignedRequest | None = scope.get(SIGNED)

        async def receive_checked() -> Message:
            nonlocal size
            message = await receive()
            body = message.get("body", b"")
            size += len(body)
            if size > most:
                raise Refusal(_too_large(most))
            if signed is not None and message["type"] == "http.request":
                digest.update(body)
                if not message.get("more_body", False) and digest.hexdigest() != signed.envelope.body_digest:
                    raise Refusal(not_verified("it has another body than was signed"))
            return message

        return receive_checked


def _too_large(most: int) -> UserError:
    return UserError("BODY_TOO_LARGE", f"the body is longer than {most:,} bytes", hint="Send it in parts.")


def is_client_gone(failure: Exception) -> bool:
    """Whether an error only means that the client has disconnected."""
    if isinstance(failure, ClientDisconnect | OSError):
        return True
    return isinstance(failure, RuntimeError) and str(failure) == "No response returned."  # Starlette's


def cookie_name(scope: Mapping[str, Any]) -> str:
    """The name of the cookie with the session: services at several ports of a machine get each other's cookies."""
    return f"penstock-{port_of(scope)}"


def port_of(scope: Mapping[str, Any]) -> int:
    """The port at which the service listens."""
    server = scope.get("server")
    return int(server[1] or 0) if server else 0


def session_in(cookies: str, scope: Mapping[str, Any]) -> str | None:
    """The session in the cookies of a browser."""
    try:
        cookie = SimpleCookie(cookies).get(cookie_name(scope))
    except CookieError:
        return None
    return None if cookie is None else cookie.value


def client_of(scope: Scope) -> str:
    """The address a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def target_of(scope: Scope) -> str:
    """The path and the query of a request, as they came."""
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope["query_string"]
    return str((path + (b"?" + query if query else b"")).decode("latin-1"))


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_page(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == PAGES or path.startswith(f"{PAGES}/")


def _is_page_request(scope: Scope) -> bool:
    return _is_page(scope) and scope["method"] == "GET" and "/_nicegui" not in scope["path"]


def _page_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Restrict a page to loading from this service, connecting to it, and standing in no other page's frame."""
    host = _headers(scope).get(b"host", "")
    sockets = f" ws://{host} wss://{host}" if re.fullmatch(r"[\w.:\[\]-]+", host) else ""
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; "
        f"form-action 'self'; connect-src 'self'{sockets}"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _send_json(body: bytes, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_link(path: str, send: Send) -> None:
    """Let a person who comes from another site open the page; no page of that site can."""
    body = _LINK.format(path=html.escape(quote(path))).encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(refusal: Refusal, send: Send, *, to_login: bool) -> None:
    if to_login and refusal.error.condition == "NOT_AUTHORISED":
        await send({"type": "http.response.start", "status": 303, "headers": [(b"location", LOGIN.encode())]})
        await send({"type": "http.response.body", "body": b""})
        return
    body = json.dumps(problem(refusal.error)).encode()
    headers = {"content-type": PROBLEM, "content-length": str(len(body)), **refusal.headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status_of(refusal.error), "headers": raw})
    await send({"type": "http.response.body", "body": body})

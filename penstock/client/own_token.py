"""Finds the token of a service that the same user has started on this machine without configuring one.

Guarantees: the token is sent only to a service that has proved that it knows it. It proves it again after a connection
has failed, and for every subscription: the service may have ended since, and another user's program listen at its port.
"""

from __future__ import annotations

from collections.abc import Generator

import httpx

from penstock.request_origin import is_loopback
from penstock.state.service_token import CHALLENGE, PROOF, find_service_token, is_proof, new_nonce

_PORTS = {"http": 80, "https": 443}


class OwnToken(httpx.Auth):
    """Adds the token to requests, as soon as one is found."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._token: str | None = None

    def forget(self) -> None:
        """Have the service prove again that it knows the token."""
        self._token = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if request.headers.get("accept") == "text/event-stream":
            self.forget()
        token = self._token or (yield from self._find(request))
        if token is None:
            yield request
            return
        request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:  # it has a new token
            self.forget()
            if (renewed := (yield from self._find(request))) not in (None, token):
                request.headers["authorization"] = f"Bearer {renewed}"
                yield request

    def _find(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, str | None]:
        """Find the token, and have the service prove that it knows it."""
        port = self._url.port or _PORTS.get(self._url.scheme, 0)
        token = find_service_token(port) if is_loopback(self._url.host) else None
        if token is None:
            return None
        nonce = new_nonce()
        response = yield httpx.Request(
            "GET", self._url.join("/health"), headers={CHALLENGE: nonce}, extensions=request.extensions
        )
        if is_proof(response.headers.get(PROOF, ""), token, port, nonce):
            self._token = token
        return self._token

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
        token = self._token or self._find()
        if self._token is None and token is not None:
            yield from self._have_it_proved(token, request)
        self._authorise(request)
        response = yield request
        renewed = self._find() if response.status_code == 401 else None
        if renewed not in (None, token):  # the service has a new one, or was about to start
            assert renewed is not None
            self.forget()
            yield from self._have_it_proved(renewed, request)
            self._authorise(request)
            yield request  # also without a token: the response to the last request is what the caller gets

    def _find(self) -> str | None:
        return find_service_token(self._port) if is_loopback(self._url.host) else None

    def _authorise(self, request: httpx.Request) -> None:
        request.headers.pop("authorization", None)
        if self._token is not None:
            request.headers["authorization"] = f"Bearer {self._token}"

    def _have_it_proved(
        self, token: str, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Use a token if the service proves that it knows it."""
        nonce = new_nonce()
        response = yield httpx.Request(
            "GET", self._url.join("/health"), headers={CHALLENGE: nonce}, extensions=request.extensions
        )
        if is_proof(response.headers.get(PROOF, ""), token, self._port, nonce):
            self._token = token

    @property
    def _port(self) -> int:
        return self._url.port or _PORTS.get(self._url.scheme, 0)

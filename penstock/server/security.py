"""Decides who may use the service: tokens, login passes, and requests that a page of another site makes.

Guarantees: a service that others can reach has a token. Tokens and passes are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from penstock.errors import UserError
from penstock.request_origin import check_local_request as check_local_request
from penstock.request_origin import is_loopback as is_loopback
from penstock.token_file import token_in

_TOKEN_HINT = "openssl rand -hex 24 > token; chmod 600 token; then --token-file token."


class Token:
    """The token that requests must carry. It holds only the digest."""

    def __init__(self, text: str) -> None:
        self._digest = _digest(text)

    def matches(self, header: str | None) -> bool:
        """Whether an Authorization header carries the token."""
        kind, _, text = (header or "").partition(" ")
        return hmac.compare_digest(self._digest, _digest(text.strip())) and kind.lower() == "bearer"

    def issue_pass(self, until: int) -> str:
        """Return what a browser that showed the token carries instead of it, valid until an instant (seconds since
        1970)."""
        return f"{until}.{self._sign(str(until))}"

    def accepts_pass(self, login_pass: str | None, now: float) -> bool:
        """Whether a pass was issued with this token and is still valid."""
        until, _, signature = (login_pass or "").partition(".")
        right = hmac.compare_digest(self._sign(until).encode(), signature.encode("utf-8", "surrogateescape"))
        return right and until.isdecimal() and now < int(until)

    def _sign(self, text: str) -> str:
        return hmac.new(
            self._digest, b"dashboard " + text.encode("utf-8", "surrogateescape"), "sha256"
        ).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def read_token(file: Path) -> Token:
    """Read the token from a file that only its owner can read."""
    return Token(token_in(file))


def parse_address(listen: str) -> tuple[str, int]:
    """Return host and port of `--listen`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UserError("BAD_OPTION", f"{listen!r} is no address to listen on", hint="As in 127.0.0.1:8080.")
    return host.strip("[]"), int(port)


def check_token_for_address(host: str, token: Token | None) -> None:
    """Raise if others could reach the service without a token."""
    if token is None and not is_loopback(host):
        raise UserError(
            "TOKEN_NEEDED",
            f"on {host} others can reach the service, so it needs a token",
            hint=f"{_TOKEN_HINT} Or --listen 127.0.0.1:8080.",
        )


def check_token_for_code(allow_code: bool, token: Token | None) -> None:
    """Raise if the service would take code without a token."""
    if allow_code and token is None:
        raise UserError(
            "TOKEN_NEEDED",
            "a service that takes code needs a token, also on the loopback address",
            hint=_TOKEN_HINT,
        )


def check_origin(host: str | None, origin: str | None) -> None:
    """For a browser with a pass: raise for a request that a page of another site makes."""
    if host is None or origin is None or re.sub(r"^https?://", "", origin) != host:
        raise UserError("FOREIGN_HOST", "a page of another site may not use this service", detail=origin)

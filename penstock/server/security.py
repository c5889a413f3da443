"""Decides from where the service may be used: its address, and requests that a page of another site makes.

Guarantees: a service that others can reach has a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import UserError
from penstock.request_origin import check_local_request as check_local_request
from penstock.request_origin import is_loopback as is_loopback
from penstock.server.tokens import Tokens

_FILE_HINT = "openssl rand -hex 24 > token; chmod 600 token; then --token-file token."


def parse_address(listen: str) -> tuple[str, int]:
    """Return host and port of `--listen`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UserError("BAD_OPTION", f"{listen!r} is no address to listen on", hint="As in 127.0.0.1:8080.")
    return host.strip("[]"), int(port)


def check_token_for_address(host: str, tokens: Tokens | None) -> None:
    """Raise if others could reach the service without a token."""
    if tokens is None and not is_loopback(host):
        raise UserError(
            "TOKEN_NEEDED",
            f"on {host} others can reach the service, so it needs a token",
            hint=f"{_FILE_HINT} Or --listen 127.0.0.1:8080.",
        )


def check_token_for_code(allow_code: bool, *, no_token: bool) -> None:
    """Raise if the service would take code without a token."""
    if allow_code and no_token:
        raise UserError(
            "TOKEN_NEEDED",
            "a service that takes code needs a token, also on the loopback address",
            hint="Leave out --no-token.",
        )


def check_origin(host: str | None, origin: str | None) -> None:
    """For a browser with a session: raise for a request that a page of another site makes."""
    if host is None or origin is None or re.sub(r"^https?://", "", origin) != host:
        raise UserError("FOREIGN_HOST", "a page of another site may not use this service", detail=origin)


def is_of_other_site(headers: Mapping[bytes, str]) -> bool:
    """Whether a browser sends a request because of a page of another site."""
    return headers.get(b"sec-fetch-site") in ("cross-site", "same-site")


def check_site(method: str, headers: Mapping[bytes, str]) -> None:
    """Raise for a request that a page of another site makes, unless a person follows a link there."""
    is_opened = headers.get(b"sec-fetch-mode") == "navigate" and headers.get(b"sec-fetch-dest") == "document"
    if is_of_other_site(headers) and not (is_opened and method in ("GET", "HEAD")):
        raise UserError(
            "FOREIGN_HOST",
            "a page of another site may not use this service",
            detail=f"Sec-Fetch-Site is {headers[b'sec-fetch-site']!r}.",
            hint="Open the address of the service itself.",
        )

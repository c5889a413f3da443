"""Refuses requests that a page of another site makes in a browser, for the service and the gateway alike.

Guarantees: what listens on the loopback address without a token is used by programs and pages of this machine only,
also where a name of another site was made to lead here.
"""

from __future__ import annotations

import ipaddress
import re

from penstock.errors import UserError


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_local_request(host: str | None, origin: str | None) -> None:
    """Without a token: raise for a request that a page of another site makes in a browser on this machine."""
    name = re.sub(r":\d+$", "", host or "")
    if not is_loopback(name):
        raise UserError(
            "FOREIGN_HOST", "this service is for its own machine only", detail=f"it was called {host!r}"
        )
    if origin is not None and re.sub(r"^https?://", "", origin) != host:
        raise UserError("FOREIGN_HOST", "a page of another site may not use this service", detail=origin)

"""Which servers SQL over HTTP may name: those whose addresses the operator named, and nothing that is not
plainly an address.

Receives calls such as `redis('redis://cache:6379/0', 'clicks')`; hands the `host:port`s they would connect to,
or None when that cannot be told. Libraries read much more into an address (other hosts, files, sockets,
services): over HTTP none of it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from penstock.errors import UserError
from penstock.sql.statements import Call, Scalar

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}")


def _url(schemes: Mapping[str, int], address: str, *, query: bool = False) -> list[str] | None:
    """The host and port of a URL that says nothing else of where to connect."""
    if not address.isascii() or not address.isprintable() or re.search(r"[\s\\]", address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in schemes or not parts.hostname or parts.fragment or (parts.query and not query):
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    found = f"{host}:{schemes[parts.scheme] if port is None else port}"
    # what stands between // and the path is a user, a host and a port, and only one of each
    if address.count("@") > 1 or not _HOST_PORT.fullmatch(found):
        return None
    return [found.lower()]


def _brokers(address: str) -> list[str] | None:
    found = [one.strip() for one in address.split(",")]
    found = [one if re.search(r":\d+$", one) else f"{one}:9092" for one in found]
    return [one.lower() for one in found] if all(map(_HOST_PORT.fullmatch, found)) else None


#: logs and sinks that reach a server: the option that has its address, and how it is read
_REACHING: Mapping[str, tuple[str, Callable[[str], list[str] | None]]] = {
    "kafka": ("brokers", _brokers),
    "redis": ("address", lambda a: _url({"redis": 6379, "rediss": 6379}, a)),
    "postgres": ("address", lambda a: _url({"postgresql": 5432, "postgres": 5432}, a)),
    "http_push": ("url", lambda a: _url({"http": 80, "https": 443}, a, query=True)),
}
#: options that name files of this machine
_FILE_OPTIONS = frozenset({"token_file"})


class Reach:
    """Lets through what names servers that are open to HTTP."""

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        for address in addresses:
            if not _HOST_PORT.fullmatch(address):
                raise UserError(
                    "BAD_OPTION", f"{address!r} is no host and port", hint="As in --reach cache:6379."
                )
        self._allowed = frozenset(address.lower() for address in addresses)

    @staticmethod
    def concerns(call: Call) -> bool:
        """Whether a call names a server."""
        return call.name in _REACHING

    def check(self, call: Call) -> None:
        """Raise unless a call reaches only servers that are open to HTTP."""
        line, column = call.at
        where = f"line {line}, column {column}"
        option, endpoints = _REACHING[call.name]
        given: list[Scalar] = [*call.arguments[:1]]
        given += [value for name, value in call.options.items() if name == option]
        if _FILE_OPTIONS & call.options.keys():
            raise UserError("NOT_OVER_HTTP", f"{call.name} may not name a file over HTTP", where=where)
        for address in given:
            found = endpoints(address) if isinstance(address, str) else None
            if found is None or not self._allowed.issuperset(found):
                raise UserError(
                    "ADDRESS_NOT_ALLOWED",
                    f"{call.name} names a server that may not be named over HTTP",
                    where=where,
                    detail=f"open to HTTP: {', '.join(sorted(self._allowed)) or 'none'}.",
                    hint="The operator names servers with penstock serve --reach HOST:PORT.",
                )

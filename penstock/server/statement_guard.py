"""Decides which files, servers and code a statement over HTTP may name.

Guarantees: a statement that names files passes only if they are below a directory that the operator opened, and outside
the state directory. One that names a server passes only if the operator opened that host and port. A log or sink that
is in none of the tables here never passes, nor does a number that is out of the bounds in `number_bounds`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import UserError
from penstock.secret_store import reveal
from penstock.server.number_bounds import check_numbers
from penstock.sql.statements import Call, CreateJob, CreateStream, Scalar, Statement

#: logs and sinks that touch no files and reach no other machine
_HARMLESS = frozenset({"generated", "call_records", "console"})
#: logs and sinks that name files: the option that does, and whether all arguments do
_FILES: Mapping[str, tuple[str, bool]] = {
    "files": ("glob", True),
    "segments": ("directory", False),
    "jsonl": ("directory", False),
    "parquet": ("directory", False),
    "sqlite": ("path", False),
}
_NAME = re.compile(r"[^\W\d][\w-]{0,99}")
_GLOB = re.compile(r"[*?\[]")
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}")


def check_name(name: str, what: str) -> str:
    """Return the name of a stream or job if it is safe in paths; raise otherwise."""
    if not _NAME.fullmatch(name):
        raise UserError(
            "BAD_NAME",
            f"{name[:100]!r} cannot be the name of a {what}",
            hint="Use letters, digits, _ and -, at most 100, and no digit first.",
        )
    return name


# -- servers -------------------------------------------------------------------------------------
# Libraries read much more into an address: other hosts, files, sockets, services. Here an address that is not plainly
# a host and a port has no endpoints, and is refused.


def _url_endpoints(schemes: Mapping[str, int], address: str, *, query: bool = False) -> list[str] | None:
    """The `host:port` of a URL that names exactly one."""
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
    endpoint = f"{host}:{schemes[parts.scheme] if port is None else port}"
    # between // and the path is at most one user, one host and one port
    if address.count("@") > 1 or not _HOST_PORT.fullmatch(endpoint):
        return None
    return [endpoint.lower()]


def _broker_endpoints(address: str) -> list[str] | None:
    brokers = [broker.strip() for broker in address.split(",")]
    brokers = [broker if re.search(r":\d+$", broker) else f"{broker}:9092" for broker in brokers]
    return [broker.lower() for broker in brokers] if all(map(_HOST_PORT.fullmatch, brokers)) else None


#: logs and sinks that reach a server: the option that has its address, and how to find the endpoints in it
_REMOTE: Mapping[str, tuple[str, Callable[[str], list[str] | None]]] = {
    "kafka": ("brokers", _broker_endpoints),
    "redis": ("address", lambda a: _url_endpoints({"redis": 6379, "rediss": 6379}, a)),
    "postgres": ("address", lambda a: _url_endpoints({"postgresql": 5432, "postgres": 5432}, a)),
    "http_push": ("url", lambda a: _url_endpoints({"http": 80, "https": 443}, a, query=True)),
}
#: options that name files of this machine
_FILE_OPTIONS = frozenset({"token_file"})


class AllowedServers:
    """The servers that SQL over HTTP may name, each as `host:port`."""

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        for address in addresses:
            if not _HOST_PORT.fullmatch(address):
                raise UserError(
                    "BAD_OPTION", f"{address!r} is no host and port", hint="As in --reach cache:6379."
                )
        self._allowed = frozenset(address.lower() for address in addresses)

    def check(self, call: Call) -> None:
        """Raise unless a log or sink connects to allowed servers only."""
        where = _place(call)
        option, endpoints = _REMOTE[call.name]
        addresses: list[Scalar] = [*call.arguments[:1]]
        addresses += [value for name, value in call.options.items() if name == option]
        if _FILE_OPTIONS & call.options.keys():
            raise UserError("NOT_OVER_HTTP", f"{call.name} may not name a file over HTTP", where=where)
        for address in addresses:
            named = endpoints(reveal(address)) if isinstance(address, str) else None
            if named is None or not self._allowed.issuperset(named):
                raise UserError(
                    "ADDRESS_NOT_ALLOWED",
                    f"{call.name} names a server that may not be named over HTTP",
                    where=where,
                    detail=f"open to HTTP: {', '.join(sorted(self._allowed)) or 'none'}.",
                    hint="The operator opens servers with penstock serve --reach HOST:PORT.",
                )


# -- statements ----------------------------------------------------------------------------------


class StatementGuard:
    """Checks statements and code that arrive over HTTP."""

    def __init__(
        self,
        directories: Sequence[Path],
        state: Path,
        servers: AllowedServers | None = None,
        *,
        code: bool = False,
    ) -> None:
        self._servers, self._code = servers or AllowedServers(), code
        self._allowed = [Path(os.path.realpath(directory)) for directory in directories]
        self._state = Path(os.path.realpath(state))

    def check_code(self) -> None:
        """Raise unless code may arrive over HTTP: it can do whatever the engine's user can do."""
        if not self._code:
            raise UserError(
                "CODE_NOT_ALLOWED",
                "this service takes no code over HTTP",
                hint="The operator allows it with penstock serve --allow-code; penstock jobs and penstock deploy take "
                "it from files of the engine's machine.",
            )

    def check(self, statements: Iterable[Statement]) -> None:
        """Raise for the first statement that may not arrive over HTTP."""
        for statement in statements:
            match statement:
                case CreateStream(name=name, log=log):
                    check_name(name, "stream")
                    self._check_call(log)
                case CreateJob(name=name, sinks=sinks):
                    check_name(name, "job")
                    for sink in sinks:
                        self._check_call(sink)

    def _check_call(self, call: Call) -> None:
        check_numbers(call)
        if call.name in _HARMLESS:
            return
        if call.name in _REMOTE:
            self._servers.check(call)
            return
        if call.name not in _FILES:
            raise UserError("NOT_OVER_HTTP", f"{call.name} cannot be named over HTTP", where=_place(call))
        option, every = _FILES[call.name]
        paths = [*(call.arguments if every else call.arguments[:1])]
        paths += [value for key, value in call.options.items() if key == option]
        for path in paths:
            if not isinstance(path, str) or not self._allows(path):
                below = ", ".join(map(str, self._allowed))
                raise UserError(
                    "FILES_NOT_ALLOWED",
                    f"{call.name} names files that may not be named over HTTP",
                    where=_place(call),
                    detail=f"open to HTTP is what lies below {below}."
                    if below
                    else "no directory is open to HTTP here.",
                    hint="The operator opens directories with penstock serve --files DIR.",
                )

    def _allows(self, path: str) -> bool:
        if "\0" in path or ".." in Path(path).parts:
            return False
        whole = os.path.abspath(os.path.expanduser(path))
        glob = _GLOB.search(whole)
        fixed = whole if glob is None else os.path.dirname(whole[: glob.start()] + "x")
        real = Path(os.path.realpath(fixed))
        if real.is_relative_to(self._state) or (glob is not None and self._state.is_relative_to(real)):
            return False
        return any(real.is_relative_to(directory) for directory in self._allowed)


def _place(call: Call) -> str:
    line, column = call.at
    return f"line {line}, column {column}"

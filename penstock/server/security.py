"""Who may ask, and what may be said over HTTP.

Receives addresses, tokens and parsed statements; hands nothing, or raises `UserError`.

Guarantees: a service that others can reach has a token. Tokens are compared in constant time. A statement that
names files passes only below directories the operator named, and one that names a server only if the operator
did (`allowed_hosts.py`); a log or sink that neither knows passes never.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.errors import UserError
from penstock.server.allowed_hosts import Reach
from penstock.sql.statements import Call, CreateJob, CreateStream, Statement
from penstock.token_file import token_in

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


class Token:
    """The token that requests must carry; only its digest is kept."""

    def __init__(self, text: str) -> None:
        self._digest = _digest(text)

    def fits(self, header: str | None) -> bool:
        """Whether an Authorization header carries it."""
        kind, _, given = (header or "").partition(" ")
        return hmac.compare_digest(self._digest, _digest(given.strip())) and kind.lower() == "bearer"

    def pass_until(self, instant: int) -> str:
        """What a browser that showed the token carries instead of it, up to an instant (seconds since 1970)."""
        return f"{instant}.{self._signed(str(instant))}"

    def passes(self, carried: str | None, now: float) -> bool:
        """Whether a browser carries what it was given, and in time."""
        until, _, signed = (carried or "").partition(".")
        right = hmac.compare_digest(self._signed(until).encode(), signed.encode("utf-8", "surrogateescape"))
        return right and until.isdecimal() and now < int(until)

    def _signed(self, text: str) -> str:
        return hmac.new(
            self._digest, b"dashboard " + text.encode("utf-8", "surrogateescape"), "sha256"
        ).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def token_of(file: Path) -> Token:
    """The token of a file that only its owner can read."""
    return Token(token_in(file))


def loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address(listen: str) -> tuple[str, int]:
    """Host and port of `--listen`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UserError("BAD_OPTION", f"{listen!r} is no address to listen on", hint="As in 127.0.0.1:8080.")
    return host.strip("[]"), int(port)


def check_guarded(host: str, token: Token | None) -> None:
    """Refuse to be reached by others without a token."""
    if token is None and not loopback(host):
        raise UserError(
            "TOKEN_NEEDED",
            f"on {host} others can reach the service, so it needs a token",
            hint="openssl rand -hex 24 > token; chmod 600 token; then --token-file token. Or --listen 127.0.0.1:8080.",
        )


def check_code_guarded(allowed: bool, token: Token | None) -> None:
    """Refuse to take code from whoever reaches the service."""
    if allowed and token is None:
        raise UserError(
            "TOKEN_NEEDED",
            "a service that takes code needs a token, also on a machine of its own",
            hint="openssl rand -hex 24 > token; chmod 600 token; then --token-file token.",
        )


def check_own(host: str | None, origin: str | None) -> None:
    """Without a token: refuse what a page of some other site has a browser on this machine send."""
    name = re.sub(r":\d+$", "", host or "")
    if not loopback(name):
        raise UserError(
            "FOREIGN_HOST", "this service is for its own machine only", detail=f"it was called {host!r}"
        )
    if origin is not None and re.sub(r"^https?://", "", origin) != host:
        raise UserError("FOREIGN_HOST", "a page of another site may not use this service", detail=origin)


def check_origin(host: str | None, origin: str | None) -> None:
    """Of a browser that is let in: refuse what a page of some other site has it send."""
    if host is None or origin is None or re.sub(r"^https?://", "", origin) != host:
        raise UserError("FOREIGN_HOST", "a page of another site may not use this service", detail=origin)


# -- statements ----------------------------------------------------------------------------------


def check_name(name: str, what: str) -> str:
    """A name as it may be given over HTTP: it becomes part of paths."""
    if not _NAME.fullmatch(name):
        raise UserError(
            "BAD_NAME",
            f"{name[:100]!r} cannot be the name of a {what}",
            hint="Letters, digits, _ and -, at most 100, and no digit first.",
        )
    return name


class FileGuard:
    """Lets through what names files below some directories, and outside the state directory, or servers in reach; and
    code, if that is allowed."""

    def __init__(
        self, directories: Sequence[Path], state: Path, reach: Reach | None = None, *, code: bool = False
    ) -> None:
        self._reach, self._code = reach or Reach(), code
        self._allowed = [Path(os.path.realpath(directory)) for directory in directories]
        self._state = Path(os.path.realpath(state))

    def check_code(self) -> None:
        """Raise unless code may come over HTTP: it does whatever the engine's user can do."""
        if not self._code:
            raise UserError(
                "CODE_NOT_ALLOWED",
                "this service takes no code over HTTP",
                hint="The operator allows it with penstock serve --allow-code; penstock jobs and penstock deploy take "
                "it from files of the engine's machine.",
            )

    def check(self, statements: Iterable[Statement]) -> None:
        """Raise for the first statement that may not be said over HTTP."""
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
        if call.name in _HARMLESS:
            return
        if self._reach.concerns(call):
            self._reach.check(call)
            return
        line, column = call.at
        where = f"line {line}, column {column}"
        if call.name not in _FILES:
            raise UserError("NOT_OVER_HTTP", f"{call.name} cannot be named over HTTP", where=where)
        option, every = _FILES[call.name]
        named = [*(call.arguments if every else call.arguments[:1])]
        named += [value for key, value in call.options.items() if key == option]
        for path in named:
            if not isinstance(path, str) or not self._allows(path):
                raise UserError(
                    "FILES_NOT_ALLOWED",
                    f"{call.name} names files that may not be named over HTTP",
                    where=where,
                    detail=self._says(),
                    hint="The operator names directories with penstock serve --files DIR.",
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

    def _says(self) -> str:
        if not self._allowed:
            return "no directory is open to HTTP here."
        return f"open to HTTP is what lies below {', '.join(map(str, self._allowed))}."

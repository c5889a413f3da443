"""Names who sends a request: tokens with names and roles, in a file that is read again when it changes.

    NAME ROLE TOKEN    a line for each token; lines that start with # are comments
    TOKEN              a file with one token alone: it is called `token` and may administer

Guarantees: tokens are compared in constant time, and only their digests are held. A change of the file is in force
within about a second; if the new content is wrong or cannot be read, the former tokens stay in force, and the log says
why.

Where no file is configured, a service on the loopback address makes a token for itself (`state.service_token`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.errors import PenstockError, UserError
from penstock.server.structured_log import log
from penstock.state.service_token import open_service_token, prove_token, read_service_token
from penstock.token_file import check_token, read_private_file

#: how often the file is looked at, in seconds
_LOOK_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9_][\w.@-]{0,63}", re.ASCII)
_MESSAGES = re.compile(r"/jobs/[^/]+/messages")
#: the name of a token that has none
UNNAMED = "token"


class Role(StrEnum):
    """What a token may do, from least to most; each role includes those before it."""

    read = "read"
    operate = "operate"
    administer = "administer"

    def includes(self, other: Role) -> bool:
        """Whether who has this role may do what needs the other one."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True)
class Caller:
    """Who sends a request: the name of the token, its role, and from where."""

    name: str
    role: Role
    address: str = ""


#: who sends the request that is being answered; None where no request is
CALLER: ContextVar[Caller | None] = ContextVar("penstock_caller", default=None)
#: who sends requests to a service without tokens
ANYONE = "anyone"


@dataclass(frozen=True)
class Token:
    """A token. It holds only the digest."""

    name: str
    role: Role
    digest: bytes = field(repr=False)

    def sign(self, text: str) -> str:
        """Sign a text, so that nobody without the token can."""
        return hmac.new(self.digest, b"dashboard " + _encode(text), "sha256").hexdigest()


class Tokens:
    """The tokens of a service. Safe for several threads: a change replaces them all at once."""

    def __init__(
        self,
        tokens: Sequence[Token],
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_own: bool = False,
    ) -> None:
        self._by_name = {token.name: token for token in tokens}
        self._clock, self._changes = clock, 0
        #: the file that they are in, if any; and whether the service has made it for itself
        self.file, self.is_own = file, is_own
        self._version = None if file is None else _version(file)
        self._looked_at = clock()

    @staticmethod
    def of_text(text: str) -> Tokens:
        """One token, which may administer."""
        return Tokens([Token(UNNAMED, Role.administer, digest(text))])

    @staticmethod
    def of_file(file: Path, clock: Callable[[], float] = time.monotonic) -> Tokens:
        """The tokens of a file that only its owner can read."""
        return Tokens(read_tokens(file), file, clock)

    @staticmethod
    def of_directory(directory: Path, clock: Callable[[], float] = time.monotonic) -> Tokens:
        """The token that a service makes for itself, in a file of its directory."""
        file, is_renewed = open_service_token(directory)
        if is_renewed:
            log("others could read the token file; it has a new token", 30, file=str(file))
        return Tokens([_own_token(file)], file, clock, is_own=True)

    @property
    def changes(self) -> int:
        """How often the tokens have changed."""
        self._look()
        return self._changes

    def prove(self, port: int, nonce: str) -> str | None:
        """Prove to a program of this user that the service knows its own token; None where one is configured: a token
        that a person made could be guessed from it."""
        self._look(at_once=True)  # who asks has just read the file
        token = self._by_name.get(UNNAMED)
        return prove_token(token.digest, port, nonce) if self.is_own and token is not None else None

    def find(self, header: str | None) -> Token | None:
        """The token that an Authorization header carries."""
        self._look()
        kind, _, text = (header or "").partition(" ")
        given, found = digest(text.strip()), None
        for token in self._by_name.values():  # all of them, so that the time reveals nothing
            if hmac.compare_digest(token.digest, given):
                found = token
        return found if kind.lower() == "bearer" else None

    def named(self, name: str) -> Token | None:
        """The token with a name."""
        self._look()
        return self._by_name.get(name)

    def _look(self, *, at_once: bool = False) -> None:
        """Read the file again if it has changed."""
        if self.file is None or (not at_once and self._clock() - self._looked_at < _LOOK_SECONDS):
            return
        self._looked_at = self._clock()
        version = _version(self.file)
        if version == self._version:
            return
        self._version = version
        try:
            tokens = [_own_token(self.file)] if self.is_own else read_tokens(self.file)
            self._by_name = {token.name: token for token in tokens}
        except PenstockError as error:
            log("the tokens in force stay as they were", 30, condition=error.condition, error=error.text())
            return
        self._changes += 1
        log("tokens", names={token.name: token.role.value for token in self._by_name.values()})


def _own_token(file: Path) -> Token:
    return Token(UNNAMED, Role.administer, digest(read_service_token(file)))


def read_tokens(file: Path) -> list[Token]:
    """Read the tokens of a file that only its owner can read."""
    lines = [
        line.split() for line in read_private_file(file).splitlines() if not line.lstrip().startswith("#")
    ]
    lines = [words for words in lines if words]
    if all(len(words) == 1 for words in lines) and len(lines) <= 1:
        text = lines[0][0] if lines else ""
        return [Token(UNNAMED, Role.administer, digest(check_token(text, file)))]
    tokens: dict[str, Token] = {}
    texts: set[str] = set()
    for number, words in enumerate(lines, 1):
        if (
            len(words) != 3
            or not _NAME.fullmatch(words[0])
            or words[1] not in list(Role)
            or words[0] in tokens
            or words[2] in texts
        ):
            raise UserError(
                "BAD_TOKEN_FILE",
                f"token {number} in {file} is no name, role and token",
                detail="A name stands for one token, and a token for one name.",
                hint=f"As in: alice operate TOKEN. Roles are {', '.join(Role)}.",
            )
        texts.add(words[2])
        tokens[words[0]] = Token(words[0], Role(words[1]), digest(check_token(words[2], file)))
    return list(tokens.values())


def digest(text: str) -> bytes:
    """The digest of a token."""
    return hashlib.sha256(_encode(text)).digest()


def needed_role(method: str, path: str) -> Role:
    """The role that a request needs. That of statements is up to what they say: see `Service.execute`."""
    path = path.rstrip("\n")  # a route matches before it too
    if path in ("/audit", "/sessions") or (method == "PUT" and path.endswith("/code")):
        return Role.administer
    if method in ("GET", "HEAD") or path == "/sql" or _MESSAGES.fullmatch(path) or path.startswith("/ui/"):
        return Role.read
    return Role.operate


def check_role(caller: Caller | None, needed: Role) -> None:
    """Raise unless a caller has a role."""
    if caller is None or not caller.role.includes(needed):
        name, role = ("nobody", "nothing") if caller is None else (caller.name, caller.role.value)
        raise UserError(
            "ROLE_NEEDED",
            f"this needs the role {needed}, and {name} has {role}",
            hint="The operator of the service gives roles in its token file.",
        )


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def caller_facts(caller: Caller | None) -> Mapping[str, str | None]:
    """Who did something, as the audit log says it."""
    if caller is None:
        return {"who": None, "role": None, "address": None}
    return {"who": caller.name, "role": caller.role.value, "address": caller.address}

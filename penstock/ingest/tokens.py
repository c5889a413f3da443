"""Checks the tokens of senders: one that all share, and tokens with names, one for each sender.

Receives what a sender presents; returns the name of its token, "" for the shared one or where none is required.

    web1 7d5f0c...        a line of the file of named tokens; # starts a comment

Files are read again when they have changed, so tokens are added and revoked while the gateway runs. A file that can no
longer be read, or that others can read, lets nobody in.

Where no file is configured, a gateway on the loopback address makes a token for itself (`state.service_token`). Agents
and programs of its user find it there.
"""

from __future__ import annotations

import hmac
import time
from pathlib import Path

from penstock.errors import UserError
from penstock.state.service_token import read_service_token
from penstock.token_file import read_private_file

#: a shorter token could be guessed
LEAST_TOKEN = 16


_OWN_HINT = (
    " The gateway has made its token itself: `penstock token --state DIR` prints it, for the user of the gateway on "
    "the directory DIR, and agents of that user on its machine find it."
)


class Tokens:
    """The tokens that a gateway accepts."""

    def __init__(self, shared: str = "", named: Path | None = None, own: Path | None = None) -> None:
        self._shared, self._file = shared, named
        #: the file with the token that the gateway has made for itself, if it has
        self.own = own
        self._named: dict[str, str] = {}
        self._versions: dict[Path, tuple[int, int, int]] = {}
        self._read()

    @property
    def are_required(self) -> bool:
        """Whether a sender needs a token."""
        return bool(self._shared) or self._file is not None or self.own is not None

    def check(self, token: str, hint: str = "Give --token-file with the same token.") -> str:
        """Return the name of a token; raise unless it is one of these, or none is required."""
        if not self.are_required:
            return ""
        self._read()
        shown, names = token.encode(), [""] if self._shared and self._matches(token, self._shared) else []
        names += [name for name, one in self._named.items() if hmac.compare_digest(shown, one.encode())]
        if not names:
            hint += "" if self.own is None else _OWN_HINT
            raise UserError("BAD_TOKEN", "the token is not the gateway's", hint=hint)
        return names[0]

    @staticmethod
    def _matches(token: str, known: str) -> bool:
        return hmac.compare_digest(token.encode(), known.encode())

    def _read(self) -> None:
        """Read the files that have changed."""
        if self._file is not None and (version := _version(self._file)) != self._versions.get(self._file):
            self._named = _parse_named(self._file)
            self._versions[self._file] = version
        if self.own is not None and (version := _version(self.own)) != self._versions.get(self.own):
            self._shared = read_service_token(self.own)
            self._versions[self.own] = version


def _version(file: Path) -> tuple[int, int, int]:
    """What changes with the content of a file; of one that is missing another one each time."""
    try:
        status = file.stat()
    except OSError:
        return time.monotonic_ns(), 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _parse_named(file: Path) -> dict[str, str]:
    named: dict[str, str] = {}
    for line in read_private_file(file).splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] in named or len(words[1]) < LEAST_TOKEN or words[1] in named.values():
            raise UserError(
                "BAD_TOKEN_FILE",
                f"a line of {file} is not the name of a sender and a token of its own",
                hint=f"Write NAME TOKEN on each line, each once; a token has at least {LEAST_TOKEN} characters.",
            )
        named[words[0]] = words[1]
    return named

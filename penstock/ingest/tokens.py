"""Checks the tokens of senders: one that all share, and tokens with names, one for each sender.

Receives what a sender presents; returns the name of its token, "" for the shared one or where none is required.

    web1 7d5f0c...        a line of the file of named tokens; # starts a comment

The file is read again when it has changed, so tokens are added and revoked while the gateway runs. A file that can no
longer be read, or that others can read, lets nobody in.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from penstock.errors import UserError
from penstock.token_file import read_private_file

#: a shorter token could be guessed
LEAST_TOKEN = 16


class Tokens:
    """The tokens that a gateway accepts."""

    def __init__(self, shared: str = "", named: Path | None = None) -> None:
        self._shared, self._file = shared, named
        self._named: dict[str, str] = {}
        self._version: tuple[int, int, int] | None = None
        self._read_named()

    @property
    def are_required(self) -> bool:
        """Whether a sender needs a token."""
        return bool(self._shared) or self._file is not None

    def check(self, token: str, hint: str = "Give --token-file with the same token.") -> str:
        """Return the name of a token; raise unless it is one of these, or none is required."""
        if not self.are_required:
            return ""
        self._read_named()
        shown, names = token.encode(), [""] if self._shared and self._matches(token, self._shared) else []
        names += [name for name, one in self._named.items() if hmac.compare_digest(shown, one.encode())]
        if not names:
            raise UserError("BAD_TOKEN", "the token is not the gateway's", hint=hint)
        return names[0]

    @staticmethod
    def _matches(token: str, known: str) -> bool:
        return hmac.compare_digest(token.encode(), known.encode())

    def _read_named(self) -> None:
        """Read the named tokens if the file has changed."""
        if self._file is None:
            return
        try:
            status = self._file.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            version = None
        if version is None or version != self._version:
            self._named, self._version = _parse_named(self._file), version


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

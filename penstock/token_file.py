"""Reads the file with a token, for the service, the gateway and the agents alike.

Guarantees: the token is long enough, and only the owner can read the file.
On failure: `ExternalError` TOKEN_FILE_UNREADABLE; `UserError` TOKEN_FILE_OPEN, TOKEN_TOO_SHORT.
"""

from __future__ import annotations

import stat
from pathlib import Path

from penstock.errors import ExternalError, UserError

_LEAST_TOKEN = 16


def token_in(file: Path) -> str:
    """The token in a file that only its owner can read."""
    return check_token(read_private(file).strip(), file)


def read_private(file: Path) -> str:
    """The content of a file that only its owner can read."""
    try:
        text = file.read_text()
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, UnicodeDecodeError) as failure:
        raise ExternalError(
            "TOKEN_FILE_UNREADABLE", f"the token file {file} cannot be read", detail=str(failure)
        ) from failure
    if mode & 0o077:
        raise UserError(
            "TOKEN_FILE_OPEN",
            f"others can read the token file {file}",
            hint=f"Run chmod 600 {file}, and put a new token into it.",
        )
    return text


def check_token(text: str, file: Path) -> str:
    """Return a token if it is long enough."""
    if len(text) < _LEAST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise UserError(
            "TOKEN_TOO_SHORT",
            f"the token in {file} must have at least {_LEAST_TOKEN} letters and digits",
            hint=f"Make one with: openssl rand -hex 24 > {file}.",
        )
    return text

"""Look up secrets that statements name and never contain: `SECRET shop_db` stands for an address with a password.

A secret is the environment variable `PENSTOCK_SECRET_SHOP_DB`, or a line `shop_db = ...` of the file that
`PENSTOCK_SECRETS` names, which only its owner can read. It is looked up where a connector connects, in the process that
does; what is stored and shown is its name.

On failure: `UserError` UNKNOWN_SECRET, SECRETS_FILE_OPEN; `ExternalError` SECRETS_FILE_UNREADABLE. No error has the
value of a secret.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from penstock.errors import ExternalError, UserError

#: the environment variable that names the file of secrets, and the start of those that are secrets
SECRETS_FILE, SECRET_VARIABLE = "PENSTOCK_SECRETS", "PENSTOCK_SECRET_"
_REFERENCE = re.compile(r"SECRET ([^\W\d]\w*)")
#: the password of a URL, or of a list of settings
_PASSWORD = re.compile(
    r"(://[^/\s:@'\"]*:)[^/\s]+(?=@)|(\bpassword\s*=\s*)(?:'[^']*'|[^\s&'\"]+)", re.IGNORECASE
)


def reference_to(name: str) -> str:
    """The text that stands for a secret."""
    return f"SECRET {name}"


def is_reference(value: object) -> bool:
    """Whether a value stands for a secret."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def reveal(text: str) -> str:
    """The secret that a text stands for; any other text as it is."""
    reference = _REFERENCE.fullmatch(text)
    if reference is None:
        return text
    name = reference[1]
    value = os.environ.get(f"{SECRET_VARIABLE}{name.upper()}") or _read_file().get(name)
    if not value:
        raise UserError(
            "UNKNOWN_SECRET",
            f"there is no secret {name} on this machine",
            hint=f"Set {SECRET_VARIABLE}{name.upper()}, or write {name} = ... into the file that {SECRETS_FILE} names, "
            "where the engine runs.",
        )
    return value


def redact(text: str, address: str = "") -> str:
    """A text to show, without the passwords in it. `address`: what may be quoted in it, and is or stands for a
    secret."""
    if is_reference(address):
        text = text.replace(reveal(address), address)
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", text)


def _read_file() -> dict[str, str]:
    if not (named := os.environ.get(SECRETS_FILE)):
        return {}
    file = Path(named)
    try:
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise ExternalError(
            "SECRETS_FILE_UNREADABLE",
            f"the file of secrets {file} cannot be read",
            detail=type(failure).__name__,
            hint=f"{SECRETS_FILE} names it; it has lines such as shop_db = postgresql://me:password@host/shop.",
        ) from None
    if mode & 0o077:
        raise UserError(
            "SECRETS_FILE_OPEN",
            f"others can read the file of secrets {file}",
            hint=f"Run chmod 600 {file}, and change the secrets in it.",
        )
    lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in lines if equals}

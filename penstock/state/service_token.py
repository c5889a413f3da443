"""Keeps the token that a service or a gateway makes for itself where the operator has configured none.

    DIR/service.token                  the token; DIR is a state directory, or the directory of a gateway
    TMPDIR/penstock-UID/token-PORT     a link to it while the service listens, by which programs of its user find it

Guarantees: only the user of the service can read the token. It is the same after a restart, and for all processes that
serve one directory. A program sends it only to a service that has proved that it knows it: after a service has ended,
another user of the machine can listen at its port.
On failure: `UserError` NOT_PRIVATE, TOKEN_TOO_SHORT; `ExternalError` TOKEN_FILE_UNREADABLE.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.state.durable import make_private, write_once, write_whole
from penstock.state.private import check_private
from penstock.token_file import check_token

FILE = "service.token"
#: the header of a request with a nonce, and that of the response with the proof
CHALLENGE, PROOF = "penstock-challenge", "penstock-proof"
#: how often a service looks whether its link is still there, in seconds
_KEEP_SECONDS = 60.0
_NONCE = re.compile(r"[0-9a-f]{32}")


def open_service_token(directory: Path) -> tuple[Path, bool]:
    """The file with the token of a directory, made if there is none; and whether the token is new because others could
    read the former one."""
    file = directory / FILE
    try:
        if not os.path.lexists(file):
            write_once(file, _new_token())
        is_open = bool(_status(file).st_mode & 0o077)
        if is_open:
            write_whole(file, _new_token())
    except OSError as failure:
        raise _unreadable(file, failure) from failure
    read_service_token(file)
    return file, is_open


def renew_service_token(directory: Path) -> None:
    """Replace the token of a directory; services follow within about a second."""
    try:
        write_whole(directory / FILE, _new_token())
    except OSError as failure:
        raise _unreadable(directory / FILE, failure) from failure


def read_service_token(file: Path) -> str:
    """The token in a file that belongs to this user alone. Links are not followed."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle) as opened:
            _check_status(file, os.fstat(handle), mask=0o077)
            text = opened.read(1_000)
    except (OSError, UnicodeDecodeError) as failure:
        raise _unreadable(file, failure) from failure
    return check_token(text.strip(), file)


@contextlib.contextmanager
def publish_service_token(file: Path, port: int) -> Iterator[str | None]:
    """Let programs of this user find a token by the port of its service, within a `with` block. Yields why they cannot,
    if the directory for temporary files cannot be used now: they can as soon as it can."""
    link, target, over = _folder() / f"token-{port}", file.resolve(), threading.Event()
    why_not = _try_place_link(link, target)

    def keep() -> None:
        """Restore the link: machines remove what is old from directories for temporary files."""
        while not over.wait(_KEEP_SECONDS):
            if not os.path.lexists(link):
                _try_place_link(link, target)

    keeping = threading.Thread(target=keep, name="penstock-token", daemon=True)
    keeping.start()
    try:
        yield why_not
    finally:
        over.set()
        keeping.join()
        with contextlib.suppress(OSError):
            if link.readlink() == target:
                link.unlink()


def _try_place_link(link: Path, target: Path) -> str | None:
    """Place a link to a token; returns why that is impossible."""
    new = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    try:
        own_folder()
        new.symlink_to(target)
        os.replace(new, link)
    except PenstockError as error:
        return error.text()
    except OSError as failure:
        return str(failure)
    return None


def find_service_token(port: int) -> str | None:
    """The token of the service that this user has started at a port of this machine; None if there is none."""
    try:
        return read_service_token((own_folder(make=False) / f"token-{port}").readlink())
    except (OSError, PenstockError):
        return None


def new_nonce() -> str:
    """A text that a service has to sign."""
    return secrets.token_hex(16)


def prove_token(digest: bytes, port: int, nonce: str) -> str | None:
    """What shows that a service at a port knows the token with a digest; None for a text that is no nonce. The port is
    part of it, so who listens at another one cannot have it made by the service."""
    if not _NONCE.fullmatch(nonce):
        return None
    return hmac.new(digest, f"penstock service {port} {nonce}".encode(), "sha256").hexdigest()


def is_proof(text: str, token: str, port: int, nonce: str) -> bool:
    """Whether a text is that of `prove_token` for a token."""
    proof = prove_token(hashlib.sha256(token.encode()).digest(), port, nonce)
    return proof is not None and hmac.compare_digest(proof.encode(), text.encode("utf-8", "replace"))


def _new_token() -> bytes:
    return f"{secrets.token_hex(24)}\n".encode()


def _status(file: Path) -> os.stat_result:
    status = os.lstat(file)
    _check_status(file, status)
    return status


def _check_status(file: Path, status: os.stat_result, mask: int = 0) -> None:
    """Raise unless a file is one of this user, with none of the rights in a mask."""
    if not stat.S_ISREG(status.st_mode):
        why = "it is no plain file"
    elif status.st_uid != os.geteuid():
        why = f"it belongs to user {status.st_uid}"
    elif status.st_mode & mask:
        why = f"its mode is {stat.S_IMODE(status.st_mode):04o}"
    else:
        return
    raise UserError(
        "NOT_PRIVATE",
        f"other users can read or change the token file {file}",
        detail=f"{why[0].upper()}{why[1:]}; this process runs as user {os.geteuid()}.",
        hint="Remove it: the next start makes a new one.",
    )


def _unreadable(file: Path, failure: Exception) -> ExternalError:
    return ExternalError(
        "TOKEN_FILE_UNREADABLE",
        f"the token file {file} cannot be used",
        detail=str(failure),
        hint="Run this as the user of the service, and name its directory.",
    )


def own_folder(*, make: bool = True) -> Path:
    """The directory for temporary files that only this user can use."""
    folder = _folder()
    if make:
        make_private(folder, durable=False)
    check_private(folder)
    return folder


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"

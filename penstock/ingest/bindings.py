"""Binds the names of producers to those who may use them, and recognizes copies of a producer's spool.

Receives what a producer claims to be; returns the binding that it gets, or raises.

    STREAM/producers/DIGEST.json   the name, the hash of its secret, its session and place, the name of its token

A name without a binding is free: agents of the first version have no secret and never bind. The first who shows a
secret, or a token that has a name, binds it. A claim with sessions (an agent's) is refused where its session is over,
or where its spool lies elsewhere than the one that was seen up to a moment ago: then it is a copy. Programs that send
by HTTP have no sessions.

Deciding (`check_claim`) is pure. A binding is read again for every claim, so to remove its file is to release the name.
On failure: `UserError` PRODUCER_BOUND, PRODUCER_COPIED.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import UserError
from penstock.ingest.private_directories import make_private_directory
from penstock.state.durable import write_whole

#: bindings of producers that were not seen for so long are removed, as the log forgets their positions
FORGOTTEN_AFTER_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class Claim:
    """What somebody shows who wants to send under a name."""

    producer: str
    secret: str = ""
    #: the name of the token, if it has one
    token: str = ""
    #: an agent's sessions, one of which must be the current one; None for who has none
    sessions: Sequence[str] | None = None
    place: str = ""


@dataclass(frozen=True)
class Binding:
    """Who may send under a name."""

    producer: str
    secret_hash: str = ""
    token: str = ""
    session: str = ""
    place: str = ""


def check_claim(
    binding: Binding | None, claim: Claim, silent_seconds: float, takeover_seconds: float, session: str = ""
) -> Binding | None:
    """Check a claim against the binding of its name; return the one that it gets, None if it binds nothing.

    `silent_seconds`: how long the producer has not been connected. `session`: the one that it was offered.
    """
    following = session or secrets.token_hex(16) if claim.sessions is not None else ""
    if binding is None:
        if not claim.secret and not claim.token:
            return None
        binding = Binding(claim.producer, _hash(claim.secret), claim.token)
        return replace(binding, session=following, place=claim.place)
    shown = _hash(claim.secret)
    if binding.secret_hash and not hmac.compare_digest(shown, binding.secret_hash):
        raise _bound_error(claim, "with another secret" if claim.secret else "without its secret")
    if binding.token and binding.token != claim.token:
        raise _bound_error(claim, f"not with the token of {binding.token}")
    binding = replace(binding, secret_hash=binding.secret_hash or shown, token=binding.token or claim.token)
    if claim.sessions is None:
        return binding
    if binding.session and binding.session not in claim.sessions:
        raise _copied_error(claim, "this spool is a copy of one that has been used since the copy was made")
    if binding.place and claim.place != binding.place and silent_seconds < takeover_seconds:
        raise _copied_error(
            claim, f"its spool lies elsewhere, and was connected from there {silent_seconds:.0f} s ago"
        )
    return replace(binding, session=following, place=claim.place)


class Bindings:
    """The bindings in the directory of a gateway."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, stream: str, producer: str) -> Binding | None:
        """Load the binding of a name; None if it is free."""
        try:
            return _read(self._path(stream, producer))
        except FileNotFoundError:
            return None

    def save(self, stream: str, binding: Binding) -> None:
        """Write a binding to disk."""
        make_private_directory(self._directory / stream / "producers")
        write_whole(self._path(stream, binding.producer), json.dumps(asdict(binding)).encode())

    def release(self, stream: str, producer: str) -> bool:
        """Remove a binding, so that the next who shows a secret gets the name; False if there was none."""
        try:
            self._path(stream, producer).unlink()
        except FileNotFoundError:
            return False
        return True

    def touch(self, stream: str, producer: str) -> None:
        """Record that a binding is in use."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(stream, producer))

    def forget(self, before: float, used: Container[tuple[str, str]]) -> None:
        """Remove the bindings that were not used since an instant (seconds since 1970), and are not now."""
        for path in self._directory.glob("*/producers/*.json"):
            # one that is damaged cannot be used, and ends nothing
            with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
                stream = path.parent.parent.name
                if path.stat().st_mtime < before and (stream, _read(path).producer) not in used:
                    path.unlink()

    def _path(self, stream: str, producer: str) -> Path:
        return self._directory / stream / "producers" / f"{_hash(producer)[:32]}.json"


def _read(path: Path) -> Binding:
    return Binding(**json.loads(path.read_bytes()))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _bound_error(claim: Claim, how: str) -> UserError:
    return UserError(
        "PRODUCER_BOUND",
        f"the name {claim.producer} belongs to another producer: it was shown {how}",
        hint="Use another name (an agent: another spool). If the name's owner has lost its secret, release it: "
        "penstock gateway --dir DIR --release STREAM/PRODUCER.",
    )


def _copied_error(claim: Claim, why: str) -> UserError:
    return UserError(
        "PRODUCER_COPIED",
        f"{claim.producer} is used twice: {why}",
        hint="If both are to run, start this agent once with --new-producer: it takes a name of its own and ships what "
        "it read since the copy was made. If only this one is to continue, stop the other and release the name: "
        "penstock gateway --dir DIR --release STREAM/PRODUCER.",
    )

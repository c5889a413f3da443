"""Issues and revokes the sessions of browsers that showed a token once.

A session is a signed text in a cookie: the name of the token, when it was issued and until when it is valid, and an
identity. It ends when it is revoked, when it expires, and with its token.

    STATE/revoked-sessions.json    what was revoked, so that a restart revives nothing

Guarantees: sessions are compared in constant time. Several coordinators of one state share what is revoked: each
reads the file when it has changed, and adds to it under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.server.structured_log import log
from penstock.server.tokens import Token, Tokens
from penstock.state.durable import make_private, open_private, write_whole

WEEK_SECONDS = 7 * 24 * 3600
_SESSION = re.compile(r"([\w.@-]{1,64}):(\d{1,12}):(\d{1,12}):([0-9a-f]{16}):([0-9a-f]{64})", re.ASCII)
#: in the file: what is revoked of all tokens
_ALL = "*"


class Sessions:
    """The sessions of a service. Safe for several threads."""

    def __init__(self, tokens: Tokens, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._tokens, self._file, self._clock = tokens, file, clock
        self._lock = threading.Lock()
        #: revoked identities, with the instants until which they would be valid; and by name (or all) the instant up to
        #: which all that were issued are revoked
        self._ids: dict[str, int] = {}
        self._before: dict[str, int] = {}
        #: of the file, as it was read
        self._read_at = 0

    def issue(self, token: Token) -> str:
        """Issue a session of a week."""
        now = int(self._clock())
        text = f"{token.name}:{now}:{now + WEEK_SECONDS}:{secrets.token_hex(8)}"
        return f"{text}:{token.sign(text)}"

    def find(self, session: str | None) -> Token | None:
        """The token of a session that is valid."""
        found = _SESSION.fullmatch(session or "")
        if found is None or session is None:
            return None
        name, issued_at, until, identity, signature = found.groups()
        token = self._tokens.named(name)
        if token is None or not hmac.compare_digest(token.sign(session.rpartition(":")[0]), signature):
            return None
        with self._lock:
            self._read()
            before = max(self._before.get(name, -1), self._before.get(_ALL, -1))
            is_revoked = identity in self._ids or int(issued_at) <= before
        return None if is_revoked or self._clock() >= int(until) else token

    def revoke(self, session: str) -> None:
        """Revoke one session."""
        found = _SESSION.fullmatch(session)
        if found is not None and self.find(session) is not None:
            with self._lock, self._writing():
                self._ids[found[4]] = int(found[3])

    def revoke_all(self, name: str | None = None) -> None:
        """Revoke all sessions that were issued until now, or those of one token."""
        with self._lock, self._writing():
            self._before[name or _ALL] = int(self._clock())

    def _read(self) -> None:
        """Read what was revoked here or by another coordinator, if the file has changed."""
        try:
            changed_at = self._file.stat().st_mtime_ns
            if changed_at == self._read_at:
                return
            content = json.loads(self._file.read_bytes())
            self._ids |= {str(key): int(until) for key, until in content["ids"].items()}
            for name, at in content["before"].items():
                self._before[str(name)] = max(int(at), self._before.get(str(name), -1))
            self._read_at = changed_at
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as failure:
            log("revoked sessions cannot be read; all are revoked", 40, error=repr(failure))
            self._before = {_ALL: int(self._clock())}

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Add something to what is revoked, also by other coordinators, and write it."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # `_write` reports it
                make_private(self._file.parent)
                lock = open(self._file.with_suffix(".lock"), "a", opener=open_private)  # noqa: SIM115
                held.enter_context(lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            yield
            self._write()

    def _write(self) -> None:
        now = self._clock()
        self._ids = {key: until for key, until in self._ids.items() if until > now}
        try:
            write_whole(self._file, json.dumps({"ids": self._ids, "before": self._before}).encode())
        except OSError as failure:
            log("revoked sessions cannot be written", 40, error=repr(failure))

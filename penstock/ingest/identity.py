"""Keeps what makes a producer itself: its name, its secret, and sessions by which a copy of its spool is recognized.

    SPOOL/NAME/producer.json   the name, the secret and the place
    SPOOL/NAME/sessions        the sessions, in space that was reserved when the spool was made

- The *secret* is bound to the name by the gateway when the producer first connects. Nobody else can use the name.
- A *session* is a value that the gateway offers with every connection, and that the producer shows with the next.
  Of two copies of a spool one connects first; the other then shows a session that is over.
- The *place* is where the spool lies: the host's boot, the file system and the directory. At a new place the spool has
  been moved, restored or copied, or the host was restarted; `since` is the position where that place began.

Invariants: only the owner can read the files. A session is on disk before the gateway learns that it was taken, so a
kill at any moment leaves one that the gateway accepts; also on a full disk, which only shipping can free.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import uuid
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.state.durable import write_whole

#: sessions that a producer keeps: one for each gateway that it alternates between
MOST_SESSIONS = 8
#: the file of sessions has two halves, which are written in turn
_HALF_BYTES = 2048


@dataclass(frozen=True)
class _Facts:
    """What `producer.json` holds. A file of the first version has `producer` and `boot` only."""

    producer: str
    boot: str
    secret: str = ""
    place: str = ""
    #: from this position on the lines were read at this place
    since: int = 0
    #: from this position on the lines are the producer's: those before are a former name's
    start: int = 0


@dataclass(frozen=True)
class _Held:
    """What the file of sessions holds, and how often it was written before."""

    count: int = 0
    sessions: tuple[str, ...] = ()
    #: where a gateway last accepted the producer
    accepted_at: str = ""
    #: up to where lines were acknowledged, a second ago
    acknowledged: int = 0


class Identity:
    """The identity of the producer of one spool."""

    def __init__(self, directory: Path, boot: str) -> None:
        self._path = directory / "producer.json"
        known = json.loads(self._path.read_bytes()) if self._path.exists() else {}
        known = {name: value for name, value in known.items() if name in _Facts.__dataclass_fields__}
        facts = _Facts(**{"producer": _make_name(), "boot": boot, **known})
        self._sessions = _SessionFile(directory / "sessions")
        where = os.stat(directory)
        #: where the spool lies
        self.place = f"{boot}/{where.st_dev:x}/{where.st_ino:x}"
        #: whether the host was restarted since the spool was last used
        self.is_rebooted = facts.boot != boot
        #: whether the spool was last used elsewhere
        self.is_moved = facts.place not in ("", self.place)
        self._was_accepted = self._sessions.held.accepted_at == facts.place
        if not facts.place:
            self._sessions.write(replace(self._sessions.held, accepted_at=self.place))
        self._facts = replace(facts, boot=boot, secret=facts.secret or secrets.token_hex(24))

    @property
    def producer(self) -> str:
        """The producer's name."""
        return self._facts.producer

    @property
    def secret(self) -> str:
        """The secret that proves the name."""
        return self._facts.secret

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that it can show, the newest last."""
        return self._sessions.held.sessions

    @property
    def since(self) -> int:
        """The position from which on its lines were read at this place."""
        return self._facts.since

    @property
    def start(self) -> int:
        """The position of the producer's first line."""
        return self._facts.start

    @property
    def is_accepted(self) -> bool:
        """Whether a gateway has accepted it at this place."""
        return self._sessions.held.accepted_at == self.place

    def save(self, moved_at: int | None = None) -> None:
        """Write it to disk; `moved_at`: the position where a new place starts."""
        # a place at which nobody accepted it does not count
        is_new = moved_at is not None and self._was_accepted
        since = moved_at if is_new and moved_at is not None else self._facts.since
        self._facts = replace(self._facts, place=self.place, since=since)
        write_whole(self._path, json.dumps(asdict(self._facts)).encode())

    def take_session(self, offered: str) -> None:
        """Take the session that a gateway offers, before the gateway knows."""
        sessions = (*self.sessions, offered)[-MOST_SESSIONS:]
        self._sessions.write(replace(self._sessions.held, sessions=sessions))

    def confirm(self, former: str) -> None:
        """The gateway knows that the session was taken: the one that it followed is over."""
        sessions = tuple(one for one in self.sessions if one != former)
        self._sessions.write(replace(self._sessions.held, sessions=sessions, accepted_at=self.place))

    def note_acknowledged(self, position: int) -> None:
        """Note up to where lines were acknowledged."""
        if position > self._sessions.held.acknowledged:
            self._sessions.write(replace(self._sessions.held, acknowledged=position))

    def rename(self) -> None:
        """Take another name and secret, for the lines that were read at this place and not acknowledged."""
        start = max(self._facts.since, self._sessions.held.acknowledged)
        self._facts = replace(self._facts, producer=_make_name(), secret=secrets.token_hex(24), start=start)
        self._sessions.write(replace(self._sessions.held, sessions=(), accepted_at=self.place))
        self.save()


class _SessionFile:
    """A file that is written in place: of its two halves the one that is whole and newer counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        halves = (_parse_half(data[at : at + _HALF_BYTES]) for at in (0, _HALF_BYTES))
        self.held = max(halves, key=lambda held: held.count)
        if len(data) < 2 * _HALF_BYTES:
            write_whole(path, data.ljust(2 * _HALF_BYTES))

    def write(self, held: _Held) -> None:
        """Replace what is held, on disk."""
        held = replace(held, count=self.held.count + 1)
        text = json.dumps(asdict(held)).encode()
        half = (b"%08x %s\n" % (zlib.crc32(text), text)).ljust(_HALF_BYTES)
        fd = os.open(self._path, os.O_WRONLY)
        try:
            os.pwrite(fd, half, held.count % 2 * _HALF_BYTES)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self.held = held


def _parse_half(data: bytes) -> _Held:
    """Parse one half; an empty or torn one holds nothing."""
    crc, _, text = data.rstrip().partition(b" ")
    if not text or crc != b"%08x" % zlib.crc32(text):
        return _Held()
    fields = json.loads(text)
    return _Held(**fields | {"sessions": tuple(fields["sessions"])})


def _make_name() -> str:
    """A new name: that of the host, as far as it can be part of a name, and a random part."""
    host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")[:60] or "host"
    return f"{host}-{uuid.uuid4().hex[:12]}"

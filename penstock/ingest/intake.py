"""Parses the protocol between an agent and the gateway, without any socket: bytes in, a hello and frames out.

An agent connects and sends a hello, a line of JSON::

    {"penstock": 1, "stream": "clicks", "producer": "web1-3f9c", "token": "...",
     "secret": "...", "sessions": ["..."], "place": "..."}

The gateway answers with a line: `{"next": 1234, "most_bytes": 1048576, "session": "...", "former": "..."}`, or
`{"error": "BAD_TOKEN", "hint": "..."}` and closes the connection. The agent stores the session that it is offered and
sends `{"session": "..."}`; the gateway binds it to the name and answers `{"ready": true}` (see `bindings`). Agents of
the first version have neither secret nor sessions, and gateways of the first version offer none: then both leave
this step out. Then frames go one way, and lines the other: `{"durable": 5678}` when the producer's bytes before that
position are on disk, or an error. An agent may send on before earlier frames are acknowledged.
Receives the bytes of a connection; returns its messages. Bounded: it buffers no more than one frame and one read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from penstock.errors import ExternalError, UserError
from penstock.ingest.frames import MOST_ID_BYTES, Frame, FrameError, Head, parse_head

VERSION = 1
#: the longest hello
MOST_HELLO_BYTES = 4096
#: the largest frame a gateway takes, and what it may unpack to
MOST_BYTES = 1 << 20

_STREAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_PRODUCER = re.compile(rf"[\x21-\x7e]{{1,{MOST_ID_BYTES}}}")


@dataclass(frozen=True)
class Hello:
    """A producer, its stream, and how it proves that the name is its own (see `identity`)."""

    stream: str
    producer: str
    token: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    #: None for who has none, such as an agent of the first version
    sessions: tuple[str, ...] | None = None
    place: str = ""

    def encoded(self) -> bytes:
        """The line on the wire."""
        fields: dict[str, object] = {
            "penstock": VERSION,
            "stream": self.stream,
            "producer": self.producer,
            "token": self.token,
        }
        if self.secret:
            fields |= {"secret": self.secret, "place": self.place}
        if self.sessions is not None:
            fields["sessions"] = self.sessions
        return json.dumps(fields).encode() + b"\n"


@dataclass(frozen=True)
class SessionTaken:
    """An agent has stored the session that it was offered."""

    session: str

    def encoded(self) -> bytes:
        """The line on the wire."""
        return json.dumps({"session": self.session}).encode() + b"\n"


def check_stream(name: str) -> str:
    """Raise unless a name can be that of a stream, which is also that of a directory."""
    if not _STREAM.fullmatch(name):
        raise UserError(
            "BAD_STREAM_NAME",
            f"{name[:80]!r} cannot be the name of a stream",
            hint="Use letters, digits, _ and -, up to 64.",
        )
    return name


def check_producer(id: str) -> str:
    """Raise unless an id can be that of a producer."""
    if not _PRODUCER.fullmatch(id):
        raise UserError(
            "BAD_PRODUCER", f"{id[:80]!r} cannot be the id of a producer", hint="Printable, without spaces."
        )
    return id


def parse_hello(line: bytes) -> Hello:
    """Parse a hello."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or fields.get("penstock") != VERSION:
        raise ExternalError(
            "BAD_HELLO",
            "this is not the hello of an agent of this version",
            hint="Use the same version for agents and gateway.",
        )
    texts = [fields.get(name, "") for name in ("stream", "producer", "token", "secret", "place")]
    sessions = fields.get("sessions")
    if not all(isinstance(text, str) for text in [*texts, *(sessions if isinstance(sessions, list) else ())]):
        raise ExternalError(
            "BAD_HELLO", "stream, producer, token, secret, place and sessions must be strings"
        )
    stream, producer, token, secret, place = texts
    held = tuple(sessions) if isinstance(sessions, list) and secret else None
    return Hello(check_stream(stream), check_producer(producer), token, secret, held, place)


def parse_session(line: bytes) -> SessionTaken:
    """Parse the confirmation of a session."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("session"), str):
        raise ExternalError("BAD_HELLO", "the session that was offered is not confirmed")
    return SessionTaken(fields["session"])


class Intake:
    """The bytes of one connection."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._data = bytearray()
        self._head: Head | None = None
        self.hello: Hello | None = None
        self._session_missing = False

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait for the rest of their message."""
        return len(self._data)

    def feed(self, data: bytes) -> list[Hello | SessionTaken | Frame]:
        """Return the messages that these bytes complete; raise at the first that is wrong."""
        self._data += data
        found: list[Hello | SessionTaken | Frame] = []
        if self.hello is None:
            line = self._take_line()
            if line is None:
                return found
            self.hello = parse_hello(line)
            self._session_missing = self.hello.sessions is not None
            found.append(self.hello)
        if self._session_missing:
            line = self._take_line()
            if line is None:
                return found
            found.append(parse_session(line))
            self._session_missing = False
        return found + self._take_frames(self.hello)

    def _take_line(self) -> bytes | None:
        """Take the line at the start of the buffer; None if it is not whole."""
        end = self._data.find(b"\n", 0, MOST_HELLO_BYTES)
        if end < 0:
            if len(self._data) >= MOST_HELLO_BYTES:
                raise ExternalError("BAD_HELLO", "the hello does not end")
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line

    def _take_frames(self, hello: Hello) -> list[Frame]:
        """Take all whole frames from the buffer."""
        found: list[Frame] = []
        at = 0
        while at < len(self._data):
            head = self._head or parse_head(self._data, at, self._most_bytes)
            if head is None:
                break
            self._head = head
            if len(self._data) - at < head.frame_bytes:
                break
            frame = head.parse_frame(self._data, at)
            if frame.producer != hello.producer:
                raise FrameError("the frame is of another producer than the hello")
            if not frame.is_lines or not frame.count or not frame.raw_bytes:
                raise FrameError("the frame holds no lines")
            found.append(frame)
            at, self._head = at + head.frame_bytes, None
        del self._data[:at]
        return found

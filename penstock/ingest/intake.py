"""What an agent and the gateway say to each other, without any socket: bytes in, a hello and frames out.

An agent connects and says hello in a line of JSON::

    {"penstock": 1, "stream": "clicks", "producer": "web1-3f9c", "token": "..."}

The gateway answers with a line: `{"next": 1234, "most_bytes": 1048576}`, or `{"error": "BAD_TOKEN", "hint":
"..."}` and hangs up. Then frames go one way, and lines the other: `{"durable": 5678}` when the producer's bytes
before that position are on disk, or an error. An agent may send on before earlier frames are acknowledged.

Receives what came over a connection; hands what it means. Bounded: no more than one frame and one read is held.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from penstock.errors import ExternalError, UserError
from penstock.ingest.frames import MOST_ID_BYTES, Frame, FrameError, Head, head_in

VERSION = 1
#: the longest hello
MOST_HELLO_BYTES = 4096
#: the largest frame a gateway takes, and what it may unpack to
MOST_BYTES = 1 << 20

_STREAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_PRODUCER = re.compile(rf"[\x21-\x7e]{{1,{MOST_ID_BYTES}}}")


@dataclass(frozen=True)
class Hello:
    """Who sends, to which stream."""

    stream: str
    producer: str
    token: str = ""

    def encoded(self) -> bytes:
        """The line that says it."""
        told = {"penstock": VERSION, "stream": self.stream, "producer": self.producer, "token": self.token}
        return json.dumps(told).encode() + b"\n"


def check_stream(name: str) -> str:
    """A stream's name, which is also that of a directory; anything else is refused."""
    if not _STREAM.fullmatch(name):
        raise UserError(
            "BAD_STREAM_NAME",
            f"{name[:80]!r} cannot be the name of a stream",
            hint="Use letters, digits, _ and -, up to 64.",
        )
    return name


def check_producer(id: str) -> str:
    """A producer's id."""
    if not _PRODUCER.fullmatch(id):
        raise UserError(
            "BAD_PRODUCER", f"{id[:80]!r} cannot be the id of a producer", hint="Printable, without spaces."
        )
    return id


def hello_in(line: bytes) -> Hello:
    """What a hello says."""
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("penstock") != VERSION:
        raise ExternalError(
            "BAD_HELLO",
            "this is not how an agent of this version says hello",
            hint="Agents and gateway must be of versions that know each other.",
        )
    stream, producer, token = (told.get(name, "") for name in ("stream", "producer", "token"))
    if not (isinstance(stream, str) and isinstance(producer, str) and isinstance(token, str)):
        raise ExternalError("BAD_HELLO", "stream, producer and token are texts")
    return Hello(check_stream(stream), check_producer(producer), token)


class Intake:
    """The bytes of one connection."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._data = bytearray()
        self._head: Head | None = None
        self.hello: Hello | None = None

    @property
    def held_bytes(self) -> int:
        """What has come and is not whole yet."""
        return len(self._data)

    def feed(self, data: bytes) -> list[Hello | Frame]:
        """What has become whole with these bytes; raises at the first that is wrong."""
        self._data += data
        found: list[Hello | Frame] = []
        if self.hello is None:
            end = self._data.find(b"\n", 0, MOST_HELLO_BYTES)
            if end < 0:
                if len(self._data) >= MOST_HELLO_BYTES:
                    raise ExternalError("BAD_HELLO", "the hello does not end")
                return found
            self.hello = hello_in(bytes(self._data[:end]))
            del self._data[: end + 1]
            found.append(self.hello)
        at = 0
        while at < len(self._data):
            head = self._head or head_in(self._data, at, self._most_bytes)
            if head is None:
                break
            self._head = head
            if len(self._data) - at < head.frame_bytes:
                break
            frame = head.frame_in(self._data, at)
            if frame.producer != self.hello.producer:
                raise FrameError("the frame is of another producer than said hello")
            if not frame.is_lines or not frame.count or not frame.raw_bytes:
                raise FrameError("the frame holds no lines")
            found.append(frame)
            at, self._head = at + head.frame_bytes, None
        del self._data[:at]
        return found

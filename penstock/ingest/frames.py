"""Frames: whole lines of one producer, compressed and checksummed, the same bytes on the wire and on disk.

Encodes lines as bytes and decodes bytes to lines.

A frame is a head, the producer's id and the payload. A producer numbers its bytes: a frame holds those from
`first` to `end`, so a repeated byte is recognized wherever frames are cut. `offset`, `safe` and
`arrived_at` are 0 until the gateway writes the frame into a segment.

Invariants: the head has a checksum of its own, so no length is used before it is verified;
a payload never unpacks into more bytes than its head has.
On failure: `FrameError` with the reason; nothing else is raised, whatever the bytes are.
"""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass, replace

import zstandard

from penstock.errors import ExternalError

MAGIC = b"PSF1"
#: magic, checksums of head and payload, payload bytes, raw bytes, lines, codec, flags, bytes of the id,
#: first, offset, safe, made at, arrived at
_HEAD = struct.Struct("<4sIIIIIBBHQQQqq")
HEAD_BYTES = _HEAD.size
#: the longest id of a producer
MOST_ID_BYTES = 200
#: no frame is longer, whatever its head claims
MOST_FRAME_BYTES = 64 << 20
#: no producer comes so far
MOST_POSITION = 1 << 62

PLAIN, ZSTD = 0, 1
#: the producer has given up what lies between its last frame and this one
GAP = 1
#: the producer's numbering jumps ahead; nothing need be missing
JUMP = 2
#: not lines, but the producers' positions in the first frame of a segment
PRODUCERS = 4
_FLAGS = GAP | JUMP | PRODUCERS
#: below this, packing does not pay
_LEAST_PACKED = 120


class _Codec(threading.local):
    """What packs and unpacks. Each thread has its own: two calls of one at once mix up what they pack."""

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor(level=1)
        self.unpacker = zstandard.ZstdDecompressor()


_codec = _Codec()


class FrameError(ExternalError):
    """Bytes that are no frame."""

    retry = False

    def __init__(self, reason: str) -> None:
        super().__init__("BAD_FRAME", reason)

    def __reduce__(self) -> tuple[object, ...]:
        return FrameError, (self.primary,)


@dataclass(frozen=True, slots=True)
class Frame:
    """Lines of one producer. `made_at` is by the producer's clock, `arrived_at` by the gateway's (microseconds)."""

    producer: str
    first: int
    raw_bytes: int
    count: int
    payload: bytes
    payload_crc: int
    codec: int
    flags: int = 0
    made_at: int = 0
    offset: int = 0
    safe: int = 0
    arrived_at: int = 0

    @staticmethod
    def of(producer: str, first: int, lines: bytes, *, made_at: int = 0, flags: int = 0) -> Frame:
        """Build the frame of some lines, packed if that makes it smaller."""
        payload, codec = lines, PLAIN
        if len(lines) >= _LEAST_PACKED:
            packed = _codec.packer.compress(lines)
            if len(packed) < len(lines):
                payload, codec = packed, ZSTD
        crc = zlib.crc32(payload)
        return Frame(
            producer, first, len(lines), lines.count(b"\n"), payload, crc, codec, flags, made_at=made_at
        )

    @property
    def end(self) -> int:
        """The producer's position after the frame."""
        return self.first + self.raw_bytes

    @property
    def is_lines(self) -> bool:
        """Whether it holds what a producer sent."""
        return not self.flags & PRODUCERS

    def encoded(self) -> bytes:
        """The bytes of the frame."""
        id = self.producer.encode()
        head = _HEAD.pack(
            MAGIC,
            0,
            self.payload_crc,
            len(self.payload),
            self.raw_bytes,
            self.count,
            self.codec,
            self.flags,
            len(id),
            self.first,
            self.offset,
            self.safe,
            self.made_at,
            self.arrived_at,
        )
        crc = zlib.crc32(id, zlib.crc32(head[8:]))
        return b"".join((head[:4], crc.to_bytes(4, "little"), head[8:], id, self.payload))

    def content(self) -> bytes:
        """Unpack the payload and verify it against the head."""
        if zlib.crc32(self.payload) != self.payload_crc:
            raise FrameError("the payload does not fit its checksum")
        raw = self.payload
        if self.codec == ZSTD:
            try:
                if zstandard.frame_content_size(raw) != self.raw_bytes:
                    raise FrameError("the payload does not unpack to the length in its head")
                raw = _codec.unpacker.decompress(raw)
            except zstandard.ZstdError as error:
                raise FrameError(f"the payload does not unpack: {error}") from None
        if len(raw) != self.raw_bytes:
            raise FrameError("the payload does not have the length in its head")
        return raw

    def lines(self) -> bytes:
        """Return the content, if it is the number of whole lines in the head."""
        raw = self.content()
        if not raw.endswith(b"\n") or raw.count(b"\n") != self.count:
            raise FrameError("the payload does not have the number of whole lines in its head")
        return raw

    def is_line_end(self, position: int) -> bool:
        """Whether a line of the frame ends at a position of its producer."""
        return self.lines()[position - self.first - 1 : position - self.first] == b"\n"

    def after(self, position: int) -> Frame:
        """Cut off what lies before a position of its producer, which must be the end of a line."""
        lines = self.lines()
        if lines[position - self.first - 1 : position - self.first] != b"\n":
            raise FrameError(f"position {position} of {self.producer} is inside of a line")
        rest = Frame.of(self.producer, position, lines[position - self.first :], made_at=self.made_at)
        return replace(rest, flags=self.flags & ~(GAP | JUMP))


@dataclass(frozen=True, slots=True)
class Head:
    """A frame without its payload, and how long it is."""

    frame: Frame
    payload_at: int
    frame_bytes: int

    def parse_frame(self, data: bytes | bytearray | memoryview, at: int = 0) -> Frame:
        """Parse the whole frame that starts at `at`."""
        payload = bytes(data[at + self.payload_at : at + self.frame_bytes])
        return replace(self.frame, payload=payload)


def parse_head(
    data: bytes | bytearray | memoryview, at: int = 0, most_bytes: int = MOST_FRAME_BYTES
) -> Head | None:
    """Parse the head of the frame that starts at `at`; None if more bytes are needed.

    `most_bytes` bounds both the frame and what it unpacks to.
    """
    there = len(data) - at
    if bytes(data[at : at + 4]) != MAGIC[:there]:
        raise FrameError("these bytes do not start with a frame")
    if there < HEAD_BYTES:
        return None
    (
        _,
        head_crc,
        payload_crc,
        payload_bytes,
        raw_bytes,
        count,
        codec,
        flags,
        id_bytes,
        first,
        offset,
        safe,
        made_at,
        arrived_at,
    ) = _HEAD.unpack_from(data, at)
    if id_bytes > MOST_ID_BYTES:
        raise FrameError("the head does not fit its checksum")
    if there < HEAD_BYTES + id_bytes:
        return None
    if zlib.crc32(data[at + 8 : at + HEAD_BYTES + id_bytes]) != head_crc:
        raise FrameError("the head does not fit its checksum")
    if codec not in (PLAIN, ZSTD) or flags & ~_FLAGS:
        raise FrameError("the frame has an unknown codec or flag")
    frame_bytes = HEAD_BYTES + id_bytes + payload_bytes
    if max(frame_bytes, raw_bytes) > most_bytes:
        raise FrameError(f"the frame is larger than {most_bytes} bytes")
    if first + raw_bytes > MOST_POSITION:
        raise FrameError("the frame's position is out of range")
    try:
        producer = bytes(data[at + HEAD_BYTES : at + HEAD_BYTES + id_bytes]).decode()
    except UnicodeDecodeError:
        raise FrameError("the producer's id is not text") from None
    frame = Frame(
        producer, first, raw_bytes, count, b"", payload_crc, codec, flags, made_at, offset, safe, arrived_at
    )
    return Head(frame, HEAD_BYTES + id_bytes, frame_bytes)


def parse_frame(
    data: bytes | bytearray | memoryview, at: int = 0, most_bytes: int = MOST_FRAME_BYTES
) -> tuple[Frame, int] | None:
    """Parse the frame that starts at `at`; return it and where the next one starts, or None if it is incomplete."""
    head = parse_head(data, at, most_bytes)
    if head is None or len(data) - at < head.frame_bytes:
        return None
    return head.parse_frame(data, at), at + head.frame_bytes

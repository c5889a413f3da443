"""Reads gzip archives of text: their identity, their size once unpacked, and their lines, also of damaged ones.

Receives descriptors of `.gz` files that are no longer written; returns their text in pieces and facts about it.

Invariants:
- Offsets count unpacked bytes, so a file that was compressed after its rotation keeps its offsets.
- A damaged archive gives every whole line before the damage, always the same ones; the damage itself
  takes one offset after them (`Archive.latest` is then `text_bytes + 1`), so it is reported once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.logs.textfile import EDGE_BYTES, HEAD_BYTES, PREFIX_BYTES, Prefix, line_crc, pread

_PIECE = 64 << 10
_MOST = 4 << 20


class DamagedError(Exception):
    """The archive cannot be unpacked any further; everything before this has been returned."""


@dataclass(frozen=True)
class Archive:
    """What one unpacking finds: whole lines make up `text_bytes`; `damage` says why there are not more.

    The checksums are those of the first bytes of the text, of the last ones before `text_bytes`, and of all of it.
    `start`: how many NUL bytes it starts with, as of a file that was truncated beside its writer.
    """

    own_id: str
    first_line_crc: int
    text_bytes: int
    damage: str | None
    prefix: Prefix
    edge_crc: int
    text_crc: int
    start: int = 0

    @property
    def latest(self) -> int:
        return self.text_bytes + (self.damage is not None)


def inspect(fd: int) -> Archive:
    """Unpack once and summarize the content."""
    size = whole = text_crc = start = 0
    head = line = tail = b""
    damage = None
    try:
        for piece in unpack(fd):
            if len(head) < PREFIX_BYTES:
                head = (head + piece)[:PREFIX_BYTES]
            if len(line) < HEAD_BYTES:
                text = piece if line else piece.lstrip(b"\0")
                start += 0 if line else len(piece) - len(text)
                line = (line + text)[:HEAD_BYTES]
            newline = piece.rfind(b"\n")
            whole = size + newline + 1 if newline >= 0 else whole
            size += len(piece)
            tail = (tail + piece[-EDGE_BYTES:])[-EDGE_BYTES:]
            text_crc = zlib.crc32(piece, text_crc)
    except DamagedError as error:
        lost = f", inside a line of which {size - whole} bytes are dropped" if size > whole else ""
        damage = f"{error} after {size} unpacked bytes{lost}"
    text_bytes = whole if damage else size
    prefix = Prefix().extend(head[:text_bytes])
    edge_crc = sample(fd, whole)[1] if damage else zlib.crc32(tail)
    own_id, first_line_crc = identity(fd, head, line), line_crc(line)
    return Archive(
        own_id, first_line_crc, text_bytes, damage, prefix, edge_crc, text_crc, min(start, text_bytes)
    )


def sample(fd: int, length: int) -> tuple[int, int]:
    """The checksums of the first bytes and of the last ones of `length` unpacked bytes, or of all there are; of these
    the second is another."""
    head = tail = b""
    at = 0
    try:
        for piece in unpack(fd):
            wanted = piece[: length - at]
            if len(head) < PREFIX_BYTES:
                head = (head + wanted)[:PREFIX_BYTES]
            tail = (tail + wanted[-EDGE_BYTES:])[-EDGE_BYTES:]
            at += len(wanted)
            if at >= length:
                break
    except DamagedError:
        pass
    return zlib.crc32(head), zlib.crc32(tail) if at >= length else -1


def identity(fd: int, text: bytes, line: bytes | None = None) -> str:
    """The id of an archive that starts with `text` and has no older id: the same wherever it is moved. `line`: where
    its first line starts, if not at once."""
    text = text or pread(fd, PREFIX_BYTES, 0)
    return f"gz-{line_crc(line or text[:HEAD_BYTES]):08x}-{zlib.crc32(text):08x}"


def prefix(fd: int, size: int = PREFIX_BYTES) -> bytes:
    """The first `size` unpacked bytes, or as many as can be unpacked."""
    parts: list[bytes] = []
    got = 0
    try:
        for piece in unpack(fd):
            parts.append(piece)
            got += len(piece)
            if got >= size:
                break
    except DamagedError:
        pass
    return b"".join(parts)[:size]


def is_boundary(fd: int, offset: int) -> bool:
    """Whether a record can start at `offset`: at the start, after a newline, or at the very end."""
    if offset == 0:
        return True
    at = 0
    try:
        for piece in unpack(fd):
            if at < offset <= at + len(piece) and piece[offset - at - 1] == 0x0A:
                return True
            at += len(piece)
            if at > offset:
                return False
    except DamagedError:
        return offset > at
    return at == offset


def read(fd: int, start: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, bytes, str | None]]:
    """Read (offset, whole records, damage) from `start` to `end`; the damage, if it is in the span, comes last."""
    if start > 0 and not is_boundary(fd, start) and is_boundary(fd, start - 1):
        start -= 1  # the offset of a damage that has been repaired since
    held: list[bytes] = []
    held_bytes = 0
    chunk_start, at, last = start, 0, b"\n"
    damage: str | None = None
    try:
        for piece in unpack(fd):
            low, high = max(0, chunk_start + held_bytes - at), min(len(piece), end - at)
            passed = piece.find(b"\n", max(0, end - 1 - at)) >= 0
            at += len(piece)
            for left in range(low, high, chunk_bytes):
                part = piece[left : min(left + chunk_bytes, high)]
                held.append(part)
                held_bytes += len(part)
                last = part[-1:]
                if held_bytes >= chunk_bytes and (cut := part.rfind(b"\n") + 1):
                    held[-1] = part[:cut]
                    data = b"".join(held)
                    yield chunk_start, data, None
                    chunk_start += len(data)
                    held = [part[cut:]] if cut < len(part) else []
                    held_bytes = len(part) - cut
            if passed:  # a line ends at `end` or beyond, so there is no damage in the span
                break
    except DamagedError as error:
        damage = f"{error} after {at} unpacked bytes"
    data = b"".join(held)
    if damage is not None or at > end:
        data = data[: data.rfind(b"\n") + 1]
    elif held_bytes and last != b"\n":
        data += b"\n"
    if data:
        yield chunk_start, data, None
        chunk_start += len(data)
    if damage is not None:
        yield chunk_start, b"", damage


def unpack(fd: int) -> Iterator[bytes]:
    """Unpack the text in pieces; `DamagedError` at the end if it is not all there."""
    raw = pread(fd, _PIECE, 0)
    at = len(raw)
    if not raw:
        raise DamagedError("the archive is empty")
    while raw:
        inflater = zlib.decompressobj(31)
        while not inflater.eof:
            before = inflater.copy()
            try:
                text = inflater.decompress(raw, _MOST)
            except zlib.error as error:
                if text := _salvage(before, raw):
                    yield text
                raise DamagedError(f"the archive is corrupt ({error})") from None
            if text:
                yield text
            raw = inflater.unconsumed_tail
            if not inflater.eof and not raw and len(text) < _MOST:
                raw = pread(fd, _PIECE, at)
                at += len(raw)
                if not raw:
                    raise DamagedError("the archive ends early")
        raw = inflater.unused_data.lstrip(b"\0")
        while not raw and (more := pread(fd, _PIECE, at)):
            at += len(more)
            raw = more.lstrip(b"\0")


def _salvage(inflater: zlib._Decompress, raw: bytes) -> bytes:
    """Unpack a piece up to the byte that is wrong."""
    parts: list[bytes] = []
    try:
        for at in range(len(raw)):
            parts.append(inflater.decompress(raw[at : at + 1]))
    except zlib.error:
        pass
    return b"".join(parts)

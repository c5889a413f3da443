"""Recognises the content of a partition in a file, whatever the file's name, inode or compression are now.

An `Identity` is evidence of what was read of a partition: its length, the checksum of its first bytes (at most
`PREFIX_BYTES`; they grow with what is read), that of the last bytes before the end, and where they were read. It is
kept with the offsets as one text, so that a start, a replica or a replay recognises a file as the engine did that read
it.

Guarantees: a file that an identity matches has the same length of text or more, and the same first and last bytes.
Does not guarantee: to tell a file that was replaced from one that has grown while what was read of it is all that the
two have in common; `is_weak` says that there is so little that the name has to agree too.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

from penstock.logs import archive as gz
from penstock.logs.textfile import EDGE_BYTES, PREFIX_BYTES, TextFile, edge_crc, pread

#: below so many bytes that were read, files of their own may have them in common (a header, a banner)
_WEAK_BYTES = 256


@dataclass(frozen=True)
class Identity:
    """The first `length` bytes of a partition's text, as read at `path`."""

    path: str
    length: int
    prefix_crc: int
    edge_crc: int

    @property
    def is_weak(self) -> bool:
        """Whether other files may have all of this in common with it."""
        return self.length < _WEAK_BYTES

    def is_at(self, length: int, path: str) -> bool:
        """Whether it is that of so much, read at a path."""
        return self.length == length and self.path == path

    def to_text(self) -> str:
        """The form in which offsets keep it."""
        return f"{self.length:x}.{self.prefix_crc:08x}.{self.edge_crc:08x}:{self.path}"

    @staticmethod
    def from_text(text: str) -> Identity:
        """The identity that was written; ValueError if this is none."""
        numbers, _, path = text.partition(":")
        length, prefix_crc, edge = (int(number, 16) for number in numbers.split("."))
        return Identity(path, length, prefix_crc, edge)

    @staticmethod
    def of_seen(text: TextFile) -> Identity:
        """The identity of all whole lines of a file."""
        return Identity(text.path, text.latest, text.prefix_crc, text.edge_crc)

    @staticmethod
    def of_archive(path: str, archive: gz.Archive) -> Identity:
        """The identity of all that can be unpacked of an archive."""
        return Identity(path, archive.text_bytes, archive.prefix_crc, archive.edge_crc)

    @staticmethod
    def of_text(path: str, fd: int, length: int) -> Identity:
        """The identity of the first `length` bytes of an open file."""
        return Identity(path, length, _prefix_crc(fd, length), edge_crc(fd, length))

    def matches_text(self, fd: int) -> bool:
        """Whether an open file starts with what was read."""
        if os.fstat(fd).st_size < self.length or edge_crc(fd, self.length) != self.edge_crc:
            return False
        return self.length <= EDGE_BYTES or _prefix_crc(fd, self.length) == self.prefix_crc

    def matches_edge(self, fd: int) -> bool:
        """Whether an open file has what was read last where it was read: enough for one with the same inode and the
        same first line."""
        return os.fstat(fd).st_size >= self.length and edge_crc(fd, self.length) == self.edge_crc

    def matches_archive(self, fd: int, archive: gz.Archive | None = None) -> bool:
        """Whether the text of an open archive starts with what was read; `archive`: what is known of it."""
        if archive is not None and archive.text_bytes < self.length:
            # a damaged one cannot show more; what it shows must be the same
            start = min(self.length, PREFIX_BYTES)
            shows_start = archive.damage is not None and start <= archive.text_bytes
            return shows_start and gz.sample(fd, start)[0] == self.prefix_crc
        if archive is not None and archive.text_bytes == self.length:
            return (archive.prefix_crc, archive.edge_crc) == (self.prefix_crc, self.edge_crc)
        return gz.sample(fd, self.length) == (self.prefix_crc, self.edge_crc)

    def is_related_to(self, path: str) -> bool:
        """Whether a name may be one that a rotation gives to the file: it starts with the name, less its ending, and no
        letter or digit follows that."""
        former, name = (os.path.basename(one).removesuffix(".gz") for one in (self.path, path))
        stem = os.path.splitext(former)[0]
        return name.startswith(stem) and not name[len(stem) :][:1].isalnum()


def is_beginning(fd: int, length: int, other_fd: int) -> bool:
    """Whether the first `length` bytes of a file are at the start of another too."""
    return Identity.of_text("", fd, length).matches_text(other_fd)


def _prefix_crc(fd: int, length: int) -> int:
    return zlib.crc32(pread(fd, min(length, PREFIX_BYTES), 0))

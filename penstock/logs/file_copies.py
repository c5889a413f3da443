"""Remembers which files are copies of others, and waits until files are no longer written.

A file is known by its device, inode, size and time of change: one that has changed is another.
"""

from __future__ import annotations

import time

Key = tuple[int, ...]
#: how many archives and copies that are not there now are still known
KNOWN_FILES = 1_000


class Copies:
    """The files that are left out as copies; those that are not settled yet."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._copies: set[Key] = set()
        #: the partitions of which files that may still be written are copies
        self._waiting: dict[Key, str] = {}
        #: since when a file that may still be written is as it is
        self._unchanged: dict[Key, float] = {}
        self._listed: set[Key] = set()

    def has(self, key: Key) -> bool:
        """Whether a file was found to be a copy."""
        return key in self._copies

    def is_settled(self, key: Key) -> bool:
        """Whether a file has been as it is for long enough: by its own time, or since it was seen first, so that a
        wrong clock, here or where the file is, does not hold it back."""
        now = time.monotonic()
        self._listed.add(key)
        since = self._unchanged.setdefault(key, now)
        return max(time.time() - key[3] / 1e9, now - since) >= self._settle_seconds

    def forget_unlisted(self) -> None:
        """Forget the files of which nobody has asked since the last time: they are gone, or have changed."""
        self._unchanged = {key: since for key, since in self._unchanged.items() if key in self._listed}
        self._listed.clear()

    def leave_out(self, key: Key) -> None:
        """Leave a file out for good, as it is."""
        if len(self._copies) > KNOWN_FILES:  # those that are there are found to be copies again
            self._copies.clear()
        self._copies.add(key)

    def wait(self, key: Key, original: str) -> None:
        """Remember that a file, as it is, is the beginning of that of a partition."""
        if len(self._waiting) > KNOWN_FILES:
            self._waiting.clear()
        self._waiting[key] = original

    def original_of(self, key: Key) -> str | None:
        """The partition of whose file one was the beginning when it was seen last."""
        return self._waiting.get(key)

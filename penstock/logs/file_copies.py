"""Remembers which files are copies of others, and waits until files are no longer written.

A file is known by its device, inode, size and time of change: one that has changed is another.
"""

from __future__ import annotations

import logging
import time

_LOG = logging.getLogger(__name__)
_Key = tuple[int, ...]
#: how many archives and copies that are not there now are still known
KNOWN_FILES = 1_000


class Copies:
    """The files that are left out as copies; those that are not settled yet."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._copies: set[_Key] = set()
        #: since when a file that may still be written is as it is
        self._unchanged: dict[_Key, float] = {}
        self._listed: set[_Key] = set()

    def has(self, key: _Key) -> bool:
        """Whether a file was found to be a copy."""
        return key in self._copies

    def is_settled(self, key: _Key) -> bool:
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

    def leave_out(self, key: _Key, path: str, original: str) -> None:
        """Leave a file out for good, as it is, and say so."""
        if len(self._copies) > KNOWN_FILES:  # those that are there are found to be copies again
            self._copies.clear()
        self._copies.add(key)
        _LOG.warning(
            "%s has the same lines as %s: it is left out as a copy of it. If it is a log of its own, give it a first "
            "line of its own",
            path,
            original,
        )

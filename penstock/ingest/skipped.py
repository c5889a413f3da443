"""Records the numbers that a producer left out for lines it dropped before they were in its spool.

Receives spans of positions; returns whether a gap between two positions is one of them. Used by two threads: one
adds, one reads.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.state.durable import write_whole


class Skipped:
    """Spans in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, begin: int, end: int, done: int) -> None:
        """Add a span; those before `done` are forgotten."""
        spans = [span for span in self._spans() if span[1] > done]
        write_whole(self._path, json.dumps([*spans, (begin, end)]).encode())

    def covers(self, position: int, first: int, jump: int) -> bool:
        """Whether `first` comes after `position` by a span, and not by a jump in the numbers behind it."""
        return any(begin <= position < end and first - end < jump for begin, end in self._spans())

    def _spans(self) -> list[tuple[int, int]]:
        try:
            return [(begin, end) for begin, end in json.loads(self._path.read_bytes())]
        except (FileNotFoundError, ValueError):
            return []

"""Writes who did what into the audit log: JSON lines, which only the service's user can read.

    STATE/audit.jsonl, audit.jsonl.1, ...    the latest is the one without a number

It has every statement that changes something, code, and what was refused because of a role; with the name of the token,
its role and the address. Reads are not in it, and neither are requests without a valid token: whoever sends those could
push everything else out.

Guarantees: a line is written before the response. At most `FILES` files are kept; a file is closed when it has
`FILE_BYTES`, or when its first line is `FILE_SECONDS` old, so that what is very old goes where little is written too.
On failure: a line that cannot be written is logged, and the request is answered.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

from penstock.formatting import printable
from penstock.server.structured_log import log
from penstock.server.tokens import Caller, caller_facts

FILE = "audit.jsonl"
FILES, FILE_BYTES = 4, 8 << 20
#: 120 days: with four files, a line is kept for a year at least, unless others push it out
FILE_SECONDS = 120 * 86_400.0
#: the longest text of a line, in characters
_MAX_TEXT = 10_000


class _PrivateFile(RotatingFileHandler):
    """Files that only their owner can read."""

    #: until when lines go to this file, by the wall clock; None: not looked up yet
    _closes_at: float | None = None

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Whether the file has enough, or is old."""
        if self._closes_at is None:
            self._closes_at = _first_at(Path(self.baseFilename)) + FILE_SECONDS
        return time.time() >= self._closes_at or bool(super().shouldRollover(record))

    def doRollover(self) -> None:
        super().doRollover()
        self._closes_at = None

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return cast(TextIOWrapper, open(handle, self.mode, encoding="utf-8"))

    def handleError(self, record: logging.LogRecord) -> None:
        log("the audit log cannot be written", 40, line=record.getMessage()[:200])


class Audit:
    """An audit log. Safe for several threads."""

    def __init__(self, file: Path, file_bytes: int = FILE_BYTES) -> None:
        self.file = file
        self._lock = threading.Lock()
        #: the file is created with the first line: before that its directory may not exist
        self._handler: _PrivateFile | None = None
        self._file_bytes = file_bytes

    def record(self, caller: Caller | None, did: str, **facts: object) -> None:
        """Write that somebody did something."""
        line: dict[str, object] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **caller_facts(caller),
            "did": did,
        }
        line |= {key: _clean(value) if isinstance(value, str) else value for key, value in facts.items()}
        text = printable(json.dumps(line, ensure_ascii=False, default=str))
        with self._lock:
            if self._handler is None:
                try:
                    self._handler = _PrivateFile(
                        self.file, maxBytes=self._file_bytes, backupCount=FILES - 1, delay=True
                    )
                    self._handler.setFormatter(logging.Formatter("%(message)s"))
                except OSError as failure:
                    log("the audit log cannot be written", 40, error=repr(failure))
                    return
            self._handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    def lines(self, limit: int) -> list[dict[str, Any]]:
        """The latest lines, the latest first."""
        found: list[dict[str, Any]] = []
        with self._lock:
            for number in range(FILES):
                path = self.file.with_name(f"{self.file.name}.{number}") if number else self.file
                try:
                    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
                except OSError:
                    break
                for line in reversed(lines):
                    with contextlib.suppress(ValueError):  # half a line, where the service was killed
                        found.append(json.loads(line))
                    if len(found) == limit:
                        return found
        return found

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._handler is not None:
                self._handler.close()
                self._handler = None


def _first_at(path: Path) -> float:
    """When the first line of a file was written; now if it has none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, encoding="utf-8") as file:
        return datetime.fromisoformat(json.loads(file.readline())["at"]).timestamp()
    return time.time()


def _clean(text: str) -> str:
    """A text that can be written as UTF-8, and is not too long."""
    return text[:_MAX_TEXT].encode(errors="backslashreplace").decode()

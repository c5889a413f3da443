"""Messages between the process that sends trials and its child: a byte for the kind, eight for the length, a body."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

#: that a trial is loaded, and its outcome
SENT_STARTED, SENT_ANSWER = b"s", b"a"
_TRIAL = b"t"


def write_message(file: IO[bytes], body: bytes, kind: bytes = _TRIAL) -> None:
    """Write a message."""
    file.write(kind + len(body).to_bytes(8, "big") + body)
    file.flush()


def read_message(file: IO[bytes], wait: Callable[[], None] = lambda: None) -> tuple[bytes, bytes]:
    """Read a message, with a `wait` before each read; EOFError at the end."""
    head = _read_bytes(file, 9, wait)
    return head[:1], _read_bytes(file, int.from_bytes(head[1:], "big"), wait)


def _read_bytes(file: IO[bytes], size: int, wait: Callable[[], None]) -> bytes:
    data = bytearray()
    while len(data) < size:
        wait()
        part = os.read(file.fileno(), min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)

"""Ports that nobody uses, for servers that tests start.

Guarantees: processes on one machine that take their ports here never get the same one while both live, and the kernel
gives none of them to an outgoing connection: they lie below its range.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import BinaryIO

_FIRST, _LAST = 12_000, 32_000
#: the locks on our ports, until this process ends
_held: list[BinaryIO] = []


def free_port(address: str = "127.0.0.1") -> int:
    """A port of the address that is free now, and that nobody else gets from here as long as this process lives."""
    draw = random.SystemRandom()  # a seeded one would draw the same ports in all processes
    while True:
        port = draw.randrange(_FIRST, _LAST)
        if _is_free(address, port) and _lock(port):
            return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError:
            return False
    return True


def _lock(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"penstock-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = open(folder / str(port), "wb")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True


def answers(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False

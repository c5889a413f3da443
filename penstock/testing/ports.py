"""Find free ports for servers that tests start.

Guarantees: two living processes on one machine never get the same port here, and the kernel gives none of these ports
to an outgoing connection, because they are below its range.
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
#: the locks on this process's ports, until it ends
_locks: list[BinaryIO] = []


def free_port(address: str = "127.0.0.1") -> int:
    """A port of the address that is free now. No other process gets it from here while this process lives."""
    draw = random.SystemRandom()  # a seeded one would draw the same ports in all processes
    while True:
        port = draw.randrange(_FIRST, _LAST)
        if _is_free(address, port) and _lock(port):
            return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
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
    _locks.append(lock)
    return True


def accepts_connections(port: int) -> bool:
    """Whether a server accepts connections on the port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False

"""Which machine this is, and which start of it."""

from __future__ import annotations

import socket
from pathlib import Path


def boot_id() -> str:
    """Which start of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def host() -> str:
    """The machine's name, as far as it can be part of an id."""
    return "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")[:60] or "host"

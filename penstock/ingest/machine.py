"""Identifies this host, and its current boot."""

from __future__ import annotations

import socket
from pathlib import Path


def boot_id() -> str:
    """Return the id of the host's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def host() -> str:
    """Return the host's name, as far as it can be part of an id."""
    return "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")[:60] or "host"

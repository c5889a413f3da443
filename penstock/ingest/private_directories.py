"""Creates directories that only their owner can enter, and reports existing ones that others can.

An existing directory keeps its mode: its owner may have opened it on purpose.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable
from pathlib import Path

from penstock.ingest.event_log import log_event


def make_private_directory(path: Path) -> None:
    """Create a directory, and those above it that are missing, for the owner only."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def report_open_directories(paths: Iterable[Path]) -> None:
    """Report the directories that others than their owner can enter or list."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                log_event(
                    "directory open to others", path=path, mode=f"{mode:o}", hint=f"Run chmod -R go= {path}."
                )

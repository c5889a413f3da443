"""Files that appear whole or not at all, and stay after a power loss.

Guarantees: a reader sees the old content or the new one, never a part; when the call returns, the content
and its name are on disk.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

#: anything that holds bytes
Buffer = Any


def write_whole(path: Path, *content: Buffer) -> None:
    """Put `content`, one piece after the other, at `path` in one step, replacing what was there."""
    temporary = _written(path, *content)
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_once(path: Path, content: bytes) -> bool:
    """Put `content` at `path` only if nothing is there. False when something was."""
    temporary = _written(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_directory(path.parent)
    return True


def _written(path: Path, *content: Buffer) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "xb") as file:
            for piece in content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Files that appear whole or not at all, and stay after a power loss.

Guarantees: a reader sees the old content or the new one, never a part; when the call returns, the content
and its name are on disk.
On failure: `FileNotFoundError` where `drafts` are to be written in a directory that is gone (see `generation`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

#: anything that holds bytes
Buffer = Any
#: files that are written at once
_AT_ONCE = 4


def write_whole(path: Path, *content: Buffer, drafts: Path | None = None) -> None:
    """Put `content`, one piece after the other, at `path` in one step, replacing what was there."""
    temporary = _written(path, *content, drafts=drafts)
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_filled(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """As `write_whole`, with what `fill` writes into the file."""
    temporary = _filled(path, fill)
    os.replace(temporary, path)
    sync_directory(path.parent)


def copy_whole(pairs: Iterable[tuple[Path, Path]]) -> int:
    """Copy files, each to appear whole; when the call returns all are on disk. Returns the bytes copied."""
    pairs = list(pairs)

    def copied(pair: tuple[Path, Path]) -> int:
        source, target = pair
        content = source.read_bytes()
        os.replace(_written(target, content), target)
        return len(content)

    if not pairs:
        return 0
    from concurrent.futures import (
        ThreadPoolExecutor,
    )  # an agent on a web server, which has no use for it, stays small

    with ThreadPoolExecutor(min(_AT_ONCE, len(pairs))) as threads:  # most of it is waiting for the disk
        total = sum(threads.map(copied, pairs))
    for folder in {target.parent for _, target in pairs}:
        sync_directory(folder)
    return total


def write_once(path: Path, content: bytes, drafts: Path | None = None) -> bool:
    """Put `content` at `path` only if nothing is there. False when something was."""
    temporary = _written(path, content, drafts=drafts)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _written(path: Path, *content: Buffer, drafts: Path | None = None) -> Path:
    def fill(file: IO[bytes]) -> None:
        for piece in content:
            file.write(piece)

    return _filled(path, fill, drafts)


def _filled(path: Path, fill: Callable[[IO[bytes]], None], drafts: Path | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = (drafts or path.parent) / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with open(temporary, "xb") as file:
            fill(file)
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

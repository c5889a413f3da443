"""Write files that appear whole or not at all, and survive a power loss.

Guarantees: a reader sees the old content or the new one, never a part; when the call returns, the content
and its name are on disk, unless it says otherwise. What is created has mode 0700 or 0600 at every moment, whatever the
umask.
On failure: `FileNotFoundError` where the `staging` directory is gone (see `generation`).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

#: any object with the buffer protocol
Buffer = Any
#: files that are written in parallel
_PARALLEL = 4
#: directories whose own names this process has synced: another may have created them and died before it could
_synced_names: set[Path] = set()


def write_whole(path: Path, *content: Buffer, staging: Path | None = None) -> None:
    """Put `content`, one piece after the other, at `path` in one step, replacing what was there."""
    temporary = _stage_content(path, *content, staging=staging)
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_filled(path: Path, fill: Callable[[IO[bytes]], None], *, synced: bool = True) -> None:
    """As `write_whole`, with what `fill` writes into the file. If not `synced`, it survives a power loss only after
    `sync_files` has returned."""
    temporary = _stage(path, fill, synced=synced)
    os.replace(temporary, path)
    if synced:
        sync_directory(path.parent)


def sync_files(paths: Iterable[Path]) -> None:
    """Bring files, their names and those of their directories to disk, several at a time; skip what is gone by now."""
    paths = list(paths)
    folders = {path.parent for path in paths}
    folders |= {folder.parent for folder in folders if folder not in _synced_names}
    if not paths:
        return
    from concurrent.futures import ThreadPoolExecutor  # here for the reason given in `copy_whole`

    with ThreadPoolExecutor(min(_PARALLEL, len(paths))) as threads:
        for _ in threads.map(_sync_file, paths):
            pass
        for _ in threads.map(_sync_readable, folders):
            pass
    _synced_names.update(path.parent for path in paths)


def _sync_readable(directory: Path) -> None:
    """Make the names in a directory durable, unless we may not read it: then we did not create them."""
    with contextlib.suppress(PermissionError):
        sync_directory(directory)


def _sync_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_whole(pairs: Iterable[tuple[Path, Path]]) -> int:
    """Copy files, each to appear whole; when the call returns all are on disk. Returns the bytes copied."""
    pairs = list(pairs)

    def copy(pair: tuple[Path, Path]) -> int:
        source, target = pair
        content = source.read_bytes()
        os.replace(_stage_content(target, content), target)
        return len(content)

    if not pairs:
        return 0
    # imported here: it would make the agent on a web server larger, which has no use for it
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(
        min(_PARALLEL, len(pairs))
    ) as threads:  # most of the time goes to waiting for the disk
        total = sum(threads.map(copy, pairs))
    for folder in {target.parent for _, target in pairs}:
        sync_directory(folder)
    return total


def write_once(path: Path, content: bytes, staging: Path | None = None) -> bool:
    """Put `content` at `path` only if nothing is there. False when something was."""
    temporary = _stage_content(path, content, staging=staging)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _stage_content(path: Path, *content: Buffer, staging: Path | None = None) -> Path:
    def fill(file: IO[bytes]) -> None:
        for piece in content:
            file.write(piece)

    return _stage(path, fill, staging)


def _stage(
    path: Path, fill: Callable[[IO[bytes]], None], staging: Path | None = None, *, synced: bool = True
) -> Path:
    if staging is None:
        make_private(path.parent, durable=synced)
    temporary = (staging or path.parent) / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with open(temporary, "xb", opener=open_private) as file:
            if staging is not None:  # only now: where the staging directory is gone, create nothing
                make_private(path.parent, durable=synced)
            fill(file)
            file.flush()
            if synced:
                os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def make_private(directory: Path, *, durable: bool = True) -> None:
    """Create a directory and what is missing above it. If not `durable`, it may be gone after a power loss."""
    missing, above = [], directory
    while not above.is_dir():
        missing.append(above)
        above = above.parent
    for one in reversed(missing):
        try:
            os.mkdir(one, 0o700)
        except FileExistsError:
            if not one.is_dir():
                raise
        _synced_names.discard(one)
    if durable and directory not in _synced_names:
        for one in missing or [directory]:
            _sync_readable(one.parent)
        _synced_names.update(missing or [directory])


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, which is private if this creates it: an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def create_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file for a library that opens files itself."""
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

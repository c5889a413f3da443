"""Checks who else can use or change a directory that exists. `durable` creates private ones.

On failure: `UserError` NOT_PRIVATE.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock.errors import UserError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_USABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_writers(directory: Path) -> None:
    """Raise if another user than that of this process and root can write an existing directory."""
    if directory.exists() and (why := _other_writers(directory)):
        raise _not_private(directory, why)


def check_private(directory: Path) -> None:
    """Raise if another user can use an existing directory, or replace it by changing one above it."""
    if why := find_others(directory):
        raise _not_private(directory, why)


def find_others(directory: Path) -> str | None:
    """How other users can use a directory or replace it; None if they cannot. It need not exist."""
    directory = Path(os.path.abspath(directory))
    for one in (directory, *directory.parents):
        try:
            status = os.lstat(one)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            if one == directory:
                return f"{one} is a symbolic link"
            return find_others(Path(os.path.realpath(directory)))
        if one == directory and (status.st_uid != os.geteuid() or status.st_mode & _USABLE_BY_OTHERS):
            return f"{one} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}"
        # in a sticky directory others can create files, but not replace ours
        if not (status.st_uid in (os.geteuid(), 0) and status.st_mode & stat.S_ISVTX) and (
            why := _other_writers(one)
        ):
            return why
    return None


def _other_writers(path: Path) -> str | None:
    status = os.stat(path)
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {status.st_uid}"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return f"others can write {path}: its mode is {stat.S_IMODE(status.st_mode):04o}"
    return None


def _not_private(directory: Path, why: str) -> UserError:
    return UserError(
        "NOT_PRIVATE",
        f"other users than the one that this process runs as can change {directory}",
        detail=f"{why[0].upper()}{why[1:]}; this process runs as user {os.geteuid()}.",
        hint="If nobody else has changed anything there, close it: chown and chmod -R go-w. Or name another directory "
        "(TMPDIR for temporary ones).",
    )

"""Joins the rows of several epochs in one file of a file sink: the newest file grows until it is large or old enough.

    DIR/epoch-000000000012.jsonl                 the rows of epoch 12 and of later ones, up to the next file
    DIR/.epochs/epoch-000000000012.jsonl.json    which epochs are in it: rows, and size and digest after each of them

An epoch is added by a rename that replaces the newest file with one that has its rows too. So one step changes one
name, and no name disappears: whoever lists the directory and reads what is listed, at any moment, finds each row once.
The list of epochs is in place before the file; of the epochs in it, those count that the file has by size and digest.

Several engines may add at the same time. Each first stages empty files, then removes what others have staged, then
reads, writes and renames: of two that interleave, one finds its staged files gone and starts again. Engines on one host
take turns by a lock; one that is stopped while it has the lock delays others for `_LOCK_SECONDS` and stops none.

Guarantees: an epoch is in one file, whole, or in none, also after a crash at any step.
Does not guarantee: that a reader may take the newest file away; all others it may.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.state.durable import open_private, sync_directory

LISTS = ".epochs"
#: how the names of staged files start
_STAGED = ".join-"
_LOCK_SECONDS = 2.0
_EPOCH = re.compile(r"epoch-(\d{12,})")


class JoinedEpoch(NamedTuple):
    """An epoch in a file: how many rows it has, and the size and the digest of the file once it was added."""

    epoch: int
    rows: int
    size: int
    digest: str


@dataclass(frozen=True)
class Limits:
    """When the newest file is complete: from so many bytes or epochs on, or so many seconds after it was started."""

    bytes: int
    seconds: float
    #: each epoch writes the list of all again
    epochs: int = 1_000


class JoinedFiles:
    """The files of one format in a directory. `join` makes one content of that of a file and of further rows; None
    where they have other columns."""

    def __init__(
        self,
        directory: Path,
        suffix: str,
        limits: Limits,
        join: Callable[[bytes, bytes], bytes | None],
        *,
        private: bool = False,
    ) -> None:
        self._directory, self._suffix, self._limits, self._join = directory, suffix, limits, join
        self._lists = directory / LISTS
        #: of new files: whether others than the user of this process can read them is up to the umask, or they cannot
        self._mode = 0o600 if private else 0o666

    def add(self, epoch: int, rows: int, content: bytes, staging: Path | None) -> bool:
        """Add an epoch; False if it is there. `FileNotFoundError` when `staging` is gone."""
        folder = staging or self._lists
        self._lists.mkdir(0o700 if self._mode == 0o600 else 0o777, exist_ok=True)
        while True:
            with self._turn(folder):
                staged = folder / f"{_STAGED}{uuid.uuid4().hex[:8]}{self._suffix}"
                mine = {staged, _list_of(staged, folder)}
                try:
                    for path in mine:
                        path.touch(self._mode, exist_ok=False)
                    for other in {*folder.glob(f"{_STAGED}*{self._suffix}*")} - mine:
                        other.unlink(missing_ok=True)
                    return self._add(epoch, rows, content, staged)
                except FileNotFoundError:
                    if staging is not None and not staging.exists():
                        raise
                finally:
                    for path in mine:
                        path.unlink(missing_ok=True)

    def epochs_in(self, file: Path, content: bytes) -> list[JoinedEpoch]:
        """The epochs in a file of this content; empty if it is a file of one epoch, as those without a list are."""
        try:
            listed = json.loads(_list_of(file, self._lists).read_bytes())
        except FileNotFoundError:
            return []
        found = len(content), hashlib.sha256(content).hexdigest()
        epochs = [JoinedEpoch(*one) for one in listed["epochs"]]
        last = max((at for at, one in enumerate(epochs) if (one.size, one.digest) == found), default=-1)
        return epochs[: last + 1]

    def remove(self, file: Path) -> None:
        """Remove a complete file, and its list."""
        file.unlink(missing_ok=True)
        _list_of(file, self._lists).unlink(missing_ok=True)

    def forget_removed(self) -> None:
        """Remove the lists of files that a reader has taken away."""
        for listed in self._lists.glob(f"epoch-*{self._suffix}.json"):
            if not (self._directory / listed.stem).exists():
                listed.unlink(missing_ok=True)

    def _add(self, epoch: int, rows: int, content: bytes, staged: Path) -> bool:
        files = self._files()
        earlier = [file for first, file in files if first <= epoch]
        newest = earlier[-1] if earlier else None
        before = b"" if newest is None else newest.read_bytes()
        epochs = [] if newest is None else self.epochs_in(newest, before)
        own = self._directory / f"epoch-{epoch:012d}{self._suffix}"
        if newest == own or any(one.epoch == epoch for one in epochs):
            sync_directory(self._directory)  # whoever put it there may have been interrupted just before this
            return False
        is_last = newest is not None and newest == files[-1][1] and bool(epochs) and epochs[-1].epoch < epoch
        joined = None
        has_epochs = len(epochs) < self._limits.epochs
        if newest is not None and is_last and has_epochs and self._has_room(newest, len(before)):
            joined = self._join(before, content)
        if newest is None or joined is None:
            self._put(own, content, [], epoch, rows, staged)
        else:
            self._put(newest, joined, epochs, epoch, rows, staged)
        return True

    def _put(
        self, target: Path, content: bytes, epochs: list[JoinedEpoch], epoch: int, rows: int, staged: Path
    ) -> None:
        """Put the list in place, then the file."""
        digest = hashlib.sha256(content).hexdigest()
        started_at = self._started_at(target) if epochs else time.time()
        listed = [*epochs, JoinedEpoch(epoch, rows, len(content), digest)]
        _fill(staged, content)
        _fill(
            _list_of(staged, staged.parent), json.dumps({"started_at": started_at, "epochs": listed}).encode()
        )
        os.replace(_list_of(staged, staged.parent), _list_of(target, self._lists))
        sync_directory(self._lists)
        os.replace(staged, target)
        sync_directory(self._directory)

    def _has_room(self, file: Path, size: int) -> bool:
        """Whether a further epoch is added to a file."""
        return size < self._limits.bytes and time.time() - self._started_at(file) < self._limits.seconds

    def _started_at(self, file: Path) -> float:
        return float(json.loads(_list_of(file, self._lists).read_bytes())["started_at"])

    def _files(self) -> list[tuple[int, Path]]:
        found = (
            (_EPOCH.fullmatch(path.stem), path) for path in self._directory.glob(f"epoch-*{self._suffix}")
        )
        return sorted((int(name.group(1)), path) for name, path in found if name)

    @contextlib.contextmanager
    def _turn(self, folder: Path) -> Iterator[None]:
        """Take turns with other engines of this generation, as far as they keep to it."""
        with open(folder / f".lock{self._suffix}", "ab", opener=open_private) as lock:
            deadline = time.monotonic() + _LOCK_SECONDS
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.01)
            yield


def _list_of(file: Path, folder: Path) -> Path:
    """The list of the epochs in a file."""
    return folder / f"{file.name}.json"


def _fill(staged: Path, content: bytes) -> None:
    """Write a staged file, unless another engine has removed it."""
    handle = os.open(staged, os.O_WRONLY)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())

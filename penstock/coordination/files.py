"""Keeps the coordination store in files: for one host, or several that share a file system. The default.

    DIR/records/a/b/@000000000003    version 3 of the record a/b; the highest is valid; "-" means deleted
    DIR/records/a/b/.draft-...       a change that is being written
    DIR/sessions/ID                  a session: a counter that its process increments, and its timeout
    DIR/members/GROUP/NAME           a member: its session and its value

A version is published by `link`, which one of several writers wins. All drafts are removed before old versions are: a
writer that read before then, and was paused, finds its draft gone instead of a free name that was once used. An
observer that sees a session's counter unchanged for the whole timeout, by its own clock, removes the session: then it
has ended for every process, including its own.

Guarantees: those of the contract; a process killed at any moment leaves a store that works. No locks are used.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.coordination.contract import (
    TIMEOUT_SECONDS,
    Record,
    Session,
    Store,
    clock,
    split_path,
    store_unavailable,
)
from penstock.state.durable import make_private, open_private, sync_directory, write_once, write_whole
from penstock.state.private import check_writers

#: how often a waiter reads
_POLL_SECONDS = 0.02
#: versions beyond the newest before old ones are removed
_OLD_VERSIONS = 16
_DRAFT = ".draft-"
#: a session without a heartbeat for so long is removed, in seconds: nobody may ever look at it
_ABANDONED_SECONDS = 86_400.0


class FileStore(Store):
    """A store in a directory. `durable=False` skips fsync, for tests and what need not survive a power loss."""

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool = True) -> None:
        self.directory = Path(directory)
        self._durable = durable
        self._pulses: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        with self._translate_errors():
            check_writers(self.directory)
            for part in ("records", "sessions", "members"):
                make_private(self.directory / part)

    # -- records ---------------------------------------------------------------------------------

    def get(self, path: str) -> Record | None:
        with self._translate_errors():
            version, value = self._newest(self._folder(path))
        return None if value is None else Record(value, version)

    def create(self, path: str, value: bytes) -> int | None:
        return self._change(path, None, b"+" + value)

    def replace(self, path: str, value: bytes, version: int) -> int | None:
        return self._change(path, version, b"+" + value)

    def delete(self, path: str, version: int) -> bool:
        return self._change(path, version, b"-") is not None

    def children(self, path: str) -> list[str]:
        with self._translate_errors():
            return sorted(
                child.name for child in _list_folders(self._folder(path)) if self._has_record(child)
            )

    def wait(self, path: str, seen: int | None, seconds: float) -> Record | None:
        deadline = clock() + seconds
        while True:
            found = self.get(path)
            left = deadline - clock()
            if (None if found is None else found.version) != seen or left <= 0:
                return found
            time.sleep(min(_POLL_SECONDS, left))

    def _folder(self, path: str) -> Path:
        return self.directory.joinpath("records", *split_path(path))

    def _newest(self, folder: Path) -> tuple[int, bytes | None]:
        """The newest version there was (0: none) and its value; None: there is no record."""
        while True:
            version = max(_versions(folder), default=0)
            if version == 0:
                self._check_available()
                return 0, None
            try:
                content = (folder / _name(version)).read_bytes()
            except FileNotFoundError:
                continue  # a newer version was written, and this one removed
            return version, content[1:] if content[:1] == b"+" else None

    def _has_record(self, folder: Path) -> bool:
        return self._newest(folder)[1] is not None or any(map(self._has_record, _list_folders(folder)))

    def _change(self, path: str, expected: int | None, content: bytes) -> int | None:
        folder = self._folder(path)
        with self._translate_errors():
            self._check_available()
            make_private(folder)
            while True:
                draft = folder / f"{_DRAFT}{uuid.uuid4().hex}"
                self._write(draft, content)  # write the draft before reading: see the module's docstring
                try:
                    version, value = self._newest(folder)
                    if (None if value is None else version) != expected:
                        return None
                    os.link(draft, folder / _name(version + 1))
                except FileExistsError:
                    return None
                except FileNotFoundError:
                    continue  # our draft was removed: read again
                finally:
                    draft.unlink(missing_ok=True)
                if self._durable:
                    sync_directory(folder)
                self._prune(folder, version + 1)
                return version + 1

    def _write(self, draft: Path, content: bytes) -> None:
        with open(draft, "xb", opener=open_private) as file:
            file.write(content)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())

    def _prune(self, folder: Path, newest: int) -> None:
        versions = _versions(folder)
        if len(versions) <= _OLD_VERSIONS:
            return
        for name in os.listdir(folder):
            if name.startswith(_DRAFT):
                (folder / name).unlink(missing_ok=True)
        for version in versions:
            if version < newest:
                (folder / _name(version)).unlink(missing_ok=True)

    # -- sessions and members --------------------------------------------------------------------

    def start_session(self, timeout_seconds: float = TIMEOUT_SECONDS) -> Session:
        session = FileSession(self, timeout_seconds)
        with contextlib.suppress(OSError):
            self._remove_abandoned(self._session_path(session.id).stat().st_mtime)
        return session

    def _remove_abandoned(self, now: float) -> None:
        """Remove the sessions of processes that were killed long ago, by the clock of the file system."""
        with os.scandir(self.directory / "sessions") as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat()
                    # one that was set to live longer than that has heartbeats further apart
                    if now - facts.st_mtime > max(_ABANDONED_SECONDS, 10 * _timeout_of(Path(entry.path))):
                        os.unlink(entry.path)

    def is_alive(self, session: str) -> bool:
        path = self._session_path(session)
        with self._translate_errors():
            before = clock()
            try:
                count, timeout = path.read_bytes().split()
            except FileNotFoundError:
                self._check_available()
                with self._lock:
                    self._pulses.pop(session, None)
                return False
            except ValueError:  # being written just now
                return True
            with self._lock:
                pulse = self._pulses.get(session)
                if pulse is None or pulse[0] != int(count):
                    self._pulses[session] = (int(count), clock())
                    return True
                if before - pulse[1] < float(timeout):
                    return True
                del self._pulses[session]
            path.unlink(missing_ok=True)
        return False

    def end_session(self, session: str) -> None:
        with self._translate_errors():
            self._session_path(session).unlink(missing_ok=True)

    def members(self, group: str) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        folder = self._group(group)
        with self._translate_errors():
            for name in _list_visible(folder):
                owner, value = self._member(folder / name)
                if owner is None:
                    continue
                if self.is_alive(owner):
                    found[name] = value
                else:
                    _remove_member(folder / name, owner)
        return found

    def describe(self) -> str:
        return str(self.directory)

    def close(self) -> None:
        pass

    def _session_path(self, session: str) -> Path:
        (name,) = split_path(session)
        return self.directory / "sessions" / name

    def _group(self, group: str) -> Path:
        return self.directory / "members" / "@".join(split_path(group))

    def _member(self, path: Path) -> tuple[str | None, bytes]:
        try:
            head, _, value = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None, b""
        return str(json.loads(head)), value

    def _check_available(self) -> None:
        """Distinguish an unavailable store (a file system that is not mounted) from an empty one."""
        os.stat(self.directory / "sessions")

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise store_unavailable(self.describe(), failure) from failure


class FileSession(Session):
    """A file with a counter. The session lives while the file exists."""

    def __init__(self, store: FileStore, timeout_seconds: float) -> None:
        self._store = store
        self._count = 0
        self._joined: set[tuple[str, str]] = set()
        super().__init__(uuid.uuid4().hex, timeout_seconds)
        self._path = store._session_path(self.id)
        with store._translate_errors():
            store._check_available()  # do not create a store that is unavailable
            write_once(self._path, self._pulse())
        self._thread.start()

    def join(self, group: str, name: str, value: bytes) -> bool:
        (name,) = split_path(name)
        path = self._store._group(group) / name
        content = json.dumps(self.id).encode() + b"\n" + value
        with self._store._translate_errors():
            self._store._check_available()
            while not write_once(path, content):
                owner, _ = self._store._member(path)
                if owner == self.id:
                    write_whole(path, content)
                    break
                if owner is not None and self._store.is_alive(owner):
                    return False
                _remove_member(path, owner)
        self._joined.add((group, name))
        return True

    def leave(self, group: str, name: str) -> None:
        path = self._store._group(group) / name
        with self._store._translate_errors():
            if self._store._member(path)[0] == self.id:
                _remove_member(path, self.id)
        self._joined.discard((group, name))

    def _pulse(self) -> bytes:
        return f"{self._count:020d} {self.timeout_seconds}\n".encode()

    def _send_heartbeat(self) -> bool:
        self._count += 1
        with self._store._translate_errors():
            try:
                handle = os.open(self._path, os.O_WRONLY)  # never recreated
            except FileNotFoundError:
                self._store._check_available()
                return False
            try:
                os.pwrite(handle, self._pulse(), 0)
                return os.fstat(handle).st_nlink > 0
            finally:
                os.close(handle)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        for group, name in list(self._joined):
            with contextlib.suppress(Exception):
                self.leave(group, name)


def _remove_member(path: Path, owner: str | None) -> None:
    """Remove a member of this session; restore it if it turns out to be another session's."""
    renamed = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, renamed)
        head = renamed.read_bytes().partition(b"\n")[0]
        if owner is not None and json.loads(head) != owner:
            with contextlib.suppress(FileExistsError):
                os.link(renamed, path)
        renamed.unlink(missing_ok=True)


def _timeout_of(path: Path) -> float:
    """The timeout of a session; 0 if it cannot be read."""
    try:
        return float(path.read_bytes().split()[1])
    except (ValueError, IndexError):
        return 0.0


def _name(version: int) -> str:
    return f"@{version:012d}"


def _versions(folder: Path) -> list[int]:
    return [int(name[1:]) for name in _list_all(folder) if name[0] == "@" and name[1:].isdigit()]


def _list_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def _list_visible(folder: Path) -> list[str]:
    return [name for name in _list_all(folder) if name[0] != "."]


def _list_all(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []

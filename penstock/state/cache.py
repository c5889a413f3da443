"""The host's cache of runs: uncompressed Arrow files in shared memory, which every worker of the host maps.

Runs that no manifest names any more are forgotten by the driver on its own host. Elsewhere nobody says so: whoever adds
a run evicts those that no process of the host has used for longest. The time of a file is that of its last use.

Guarantees: `get` returns what was put under that name (run names are never reused), without a copy, and it stays
readable when the run is evicted. A directory that another user could have prepared or can change is not used. What was
used a moment ago is not evicted: where the runs in use need more than the cache has, some of them stay in it, instead
of each pushing out the next.
Does not guarantee that anything stays: any run may be removed at any time.
On failure, or without room, it caches nothing; it never fails an epoch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl
import pyarrow as pa

from penstock.state.durable import make_private, open_private
from penstock.state.ipc import dense_table, from_table, read_table, write_file
from penstock.state.private import find_others

SHARED_MEMORY = Path("/dev/shm")


def default_cache_root() -> Path:
    """A directory in shared memory if there is any and nobody else has taken the name, else in the temporary one."""
    name, temporary = f"penstock-{os.getuid()}", Path(os.environ.get("TMPDIR", "/tmp"))
    if os.access(SHARED_MEMORY, os.W_OK) and find_others(SHARED_MEMORY / name) is None:
        return SHARED_MEMORY / name
    return temporary / name


#: the file with the id of the process whose engine uses a cache directory
_OWNER = "owner"
#: prefix of a file that exists while a cleaner waits for a process to end
_CLEANER_MARK = "ends-with-"
#: between the name of a run and the name of a part of it
PART = "@"
#: the directory of parts of runs, and the prefix of the directories of executors
_PARTS, _EXECUTOR = "parts", "executor-"
#: a run that was used within so many seconds is not evicted
IN_USE_SECONDS = 60.0
#: one that was not used for so long is evicted although there is room: no manifest is likely to name it
_UNUSED_SECONDS = 3600.0
#: a use of a run is noted so often at most
_NOTE_SECONDS = 10.0
#: of so many runs a process remembers when it noted their use
_NOTED = 10_000


#: waits for a process to end, then removes its cache directory, unless that has another owner by then, and the parent
#: directory if that is empty. A SIGTERM to the whole process group must not end it before the process
_CLEANER = """
import os, select, shutil, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pid, directory = sys.argv[1:]
try:
    ended = select.poll()
    ended.register(os.pidfd_open(int(pid)), select.POLLIN)
    ended.poll()
except ProcessLookupError:
    pass
try:
    mine = open(os.path.join(directory, "owner")).read() == pid
    if mine:
        shutil.rmtree(directory, ignore_errors=True)
        os.rmdir(os.path.dirname(directory))
except OSError:
    pass
"""


def _is_alive(owner: Path) -> bool:
    try:
        os.kill(int(owner.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _file_name(run: str) -> str:
    return run.replace("/", "_")


@dataclass(frozen=True)
class _CachedFile:
    """A file of a cache: when it was used last, by the clock of its file system, and whether it may be removed."""

    used_at: float
    path: Path
    bytes: int
    is_evictable: bool


class HostCache:
    """The cache of one state directory on one host, with at most `limit_bytes`."""

    def __init__(self, directory: Path, limit_bytes: int, *, in_use_seconds: float = IN_USE_SECONDS) -> None:
        self.directory = directory
        self._limit_bytes, self._in_use_seconds = limit_bytes, in_use_seconds
        #: when the use of a run was noted last, by the monotonic clock
        self._noted: dict[str, float] = {}

    def claim(self, pid: int | None = None) -> None:
        """Mark the directory as used by this process (or `pid`), and remove those of processes that have ended. Beside
        the directories of executors, spilled frames have no owner."""
        if not self._is_private:
            return
        with contextlib.suppress(OSError):
            make_private(self.directory, durable=False)
            with open(self.directory / _OWNER, "w", opener=open_private) as file:
                file.write(str(os.getpid() if pid is None else pid))
            executor = self.directory.name.startswith(_EXECUTOR)
            for other in self.directory.parent.glob(f"{_EXECUTOR}*" if executor else "*"):
                if other.is_dir() and not _is_alive(other / _OWNER):
                    shutil.rmtree(other, ignore_errors=True)

    def remove_after(self, pid: int) -> None:
        """Remove the directory when its owner, the process `pid`, has ended, however it ends: no other process may ever
        come to this host to do it. Starts a process that waits, once for each owner."""
        with contextlib.suppress(OSError):
            (self.directory / f"{_CLEANER_MARK}{pid}").touch(mode=0o600, exist_ok=False)
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CLEANER, str(pid), str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            ).returncode = 0  # nobody waits for it: it outlives this process

    def put(self, name: str, frame: pl.DataFrame | pa.Table) -> None:
        """Cache a frame, or the table that was made of it, under a run's name, if there is room or can be made."""
        path = self._path(name)
        if not self._is_private:
            return
        with contextlib.suppress(OSError, pa.ArrowException, pl.exceptions.PolarsError):
            table = dense_table(frame) if isinstance(frame, pl.DataFrame) else frame
            if path.exists() or not self._make_room(table.nbytes):
                return
            make_private(path.parent, durable=False)
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            try:
                write_file(table, str(temporary))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)  # a partial file would use up the rest of the room

    def get(self, name: str) -> pl.DataFrame | None:
        """The cached frame of a run, mapped, or None."""
        table = self.table(name)
        return None if table is None else from_table(table)

    def table(self, name: str) -> pa.Table | None:
        """The cached table of a run, mapped, or None. It takes no memory of this process."""
        if not self._is_private:
            return None
        try:
            with pa.memory_map(str(self._path(name))) as mapped:
                table = read_table(mapped)
        except (OSError, pa.ArrowException):
            return None
        self.note_use(name)
        return table

    def note_use(self, name: str) -> None:
        """Note that a run is in use by this process, which may have it mapped since long ago."""
        now = time.monotonic()
        if now - self._noted.get(name, -_NOTE_SECONDS) < min(_NOTE_SECONDS, self._in_use_seconds / 4):
            return
        if len(self._noted) >= _NOTED:
            self._noted.clear()
        self._noted[name] = now
        with contextlib.suppress(OSError):
            os.utime(self._path(name))

    def has(self, name: str) -> bool:
        """Whether a run is cached."""
        return self._is_private and self._path(name).exists()

    def for_executor(self, executor: str) -> HostCache:
        """The cache of an executor that has its own, below this one."""
        return HostCache(self.directory / f"{_EXECUTOR}{executor}", self._limit_bytes)

    def executor_caches(self) -> list[HostCache]:
        """The caches of all executors of this host."""
        found = self.directory.glob(f"{_EXECUTOR}*")
        return [HostCache(path, self._limit_bytes) for path in found]

    def forget(self, *names: str) -> None:
        """Remove runs that no manifest needs any more, and their parts."""
        for name in names:
            self._path(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            gone = {_file_name(name) for name in names}
            for file in os.listdir(self.directory / _PARTS):
                if file.partition(PART)[0] in gone:
                    (self.directory / _PARTS / file).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the whole cache."""
        shutil.rmtree(self.directory, ignore_errors=True)

    @cached_property
    def _is_private(self) -> bool:
        """Whether nobody else can change the directory. It is created first: then nobody else can create it."""
        try:
            make_private(self.directory, durable=False)
            return find_others(self.directory) is None
        except OSError:
            return False

    def _path(self, name: str) -> Path:
        folder = self.directory / _PARTS if PART in name else self.directory
        return folder / f"{_file_name(name)}.arrow"

    def _make_room(self, size: int) -> bool:
        """Evict runs that are not in use until there is room for so many bytes; returns whether there is."""
        make_private(self.directory, durable=False)
        space = os.statvfs(self.directory)
        files = sorted(self._list_files(), key=lambda file: file.used_at)
        held = sum(file.bytes for file in files)
        most = min(self._limit_bytes, held + space.f_bavail * space.f_frsize // 2) - size
        if most < 0:
            return False
        now = time.time()
        for file in files:
            unused_seconds = now - file.used_at
            is_needed = held > most and unused_seconds >= self._in_use_seconds
            if file.is_evictable and (is_needed or unused_seconds >= _UNUSED_SECONDS):
                file.path.unlink(missing_ok=True)  # whoever has it mapped still reads it
                held -= file.bytes
        return held <= most

    def _list_files(self) -> list[_CachedFile]:
        """The files of the cache. Those of a writer that was killed may be removed too, once they are old."""
        found = []
        for folder in (self.directory, self.directory / _PARTS):
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # evicted by another process meanwhile
                        facts = entry.stat()
                        is_evictable = entry.name.endswith((".arrow", ".tmp"))
                        found.append(
                            _CachedFile(facts.st_mtime, Path(entry.path), facts.st_size, is_evictable)
                        )
        return found

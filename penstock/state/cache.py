"""The host's cache of runs: uncompressed Arrow files in shared memory, which every worker of the host maps.

Guarantees: `get` returns what was put under that name (run names are never reused), without a copy. A directory that
another user could have prepared or can change is not used.
Does not guarantee that anything stays: any run may be removed at any time.
On failure, or without room, it caches nothing; it never fails an epoch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
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


class HostCache:
    """The cache of one state directory on one host, with at most `limit_bytes`."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self._limit_bytes = limit_bytes

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
        """Cache a frame, or the table that was made of it, under a run's name, if there is room."""
        path = self._path(name)
        if not self._is_private:
            return
        with contextlib.suppress(OSError, pa.ArrowException, pl.exceptions.PolarsError):
            table = dense_table(frame) if isinstance(frame, pl.DataFrame) else frame
            if path.exists() or table.nbytes > self._room():
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
                return read_table(mapped)
        except (OSError, pa.ArrowException):
            return None

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

    def _room(self) -> int:
        make_private(self.directory, durable=False)
        space = os.statvfs(self.directory)
        held = 0
        for folder in (self.directory, self.directory / _PARTS):
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
                held += sum(file.stat().st_size for file in files)
        return min(self._limit_bytes - held, space.f_bavail * space.f_frsize // 2)

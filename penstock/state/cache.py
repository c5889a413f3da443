"""The host's cache of hot runs: uncompressed Arrow files in shared memory, mapped by every worker of the host.

Receives frames as runs are written or first read; hands them back without copying.

Guarantees: what it gives is what was put under that name (run names are never reused). May forget anything
at any time. Never fails an epoch: when it has no room it declines.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa

from penstock.state.ipc import dense_table, from_table, table_of, write_file


def default_cache_root() -> Path:
    """Shared memory where there is some, else the temporary directory."""
    shared = Path("/dev/shm")
    root = shared if os.access(shared, os.W_OK) else Path(os.environ.get("TMPDIR", "/tmp"))
    return root / f"penstock-{os.getuid()}"


#: names the process whose engine uses a cache directory
_OWNER = "owner"
#: begins the name of a file that is there when somebody waits for a process, to remove the directory
_KEPT = "ends-with-"
#: stands between the name of a run and that of a part of it
PART = "@"
#: where parts of runs are, and the caches of executors
_PARTS, _EXECUTOR = "parts", "executor-"


#: waits for a process to end and removes the directory, unless that has another owner by then; then the one above it,
#: if nothing else is there. Who ends a whole group of processes asks first (SIGTERM), and this must come last
_KEEPER = """
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


def _alive(owner: Path) -> bool:
    try:
        os.kill(int(owner.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _file_name(run: str) -> str:
    return run.replace("/", "_")


class HostCache:
    """One directory of the host, one per state directory; `limit_bytes` bounds what it may hold."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self._limit_bytes = limit_bytes

    def claim(self, pid: int | None = None) -> None:
        """Say that this process (or that of `pid`) uses the directory, and clear those of processes that are gone.
        Beside those of executors lie frames on their way, which are nobody's."""
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.directory / _OWNER).write_text(str(os.getpid() if pid is None else pid))
            executor = self.directory.name.startswith(_EXECUTOR)
            for other in self.directory.parent.glob(f"{_EXECUTOR}*" if executor else "*"):
                if other.is_dir() and not _alive(other / _OWNER):
                    shutil.rmtree(other, ignore_errors=True)

    def ends_with(self, pid: int) -> None:
        """Have the directory removed when its owner, the process `pid`, has ended, however that ends: nobody else may
        come to this host who would. It takes a process of its own; one, whoever asks for it."""
        with contextlib.suppress(OSError):
            (self.directory / f"{_KEPT}{pid}").touch(exist_ok=False)
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER, str(pid), str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            ).returncode = 0  # it is not waited for: it outlives us

    def put(self, name: str, frame: pl.DataFrame | pa.Table) -> None:
        """Keep a frame, or the table that was made of it, under a run's name, unless there is no room."""
        path = self._path(name)
        with contextlib.suppress(OSError, pa.ArrowException, pl.exceptions.PolarsError):
            table = dense_table(frame) if isinstance(frame, pl.DataFrame) else frame
            if path.exists() or table.nbytes > self._room():
                return
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            try:
                write_file(table, str(temporary))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)  # cut short for want of room, it would take the rest of it

    def get(self, name: str) -> pl.DataFrame | None:
        """The frame kept under a run's name, mapped, or None."""
        table = self.table(name)
        return None if table is None else from_table(table)

    def table(self, name: str) -> pa.Table | None:
        """The table kept under a run's name, mapped, or None: to have it takes no memory."""
        try:
            with pa.memory_map(str(self._path(name))) as mapped:
                return table_of(mapped)
        except (OSError, pa.ArrowException):
            return None

    def has(self, name: str) -> bool:
        """Whether a run is kept."""
        return self._path(name).exists()

    def of(self, executor: str) -> HostCache:
        """The cache of an executor that has one of its own, below this."""
        return HostCache(self.directory / f"{_EXECUTOR}{executor}", self._limit_bytes)

    def executors(self) -> list[HostCache]:
        """The caches of all executors of this host."""
        found = self.directory.glob(f"{_EXECUTOR}*")
        return [HostCache(path, self._limit_bytes) for path in found]

    def forget(self, *names: str) -> None:
        """Drop runs that no manifest needs any more, and their parts."""
        for name in names:
            self._path(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            gone = {_file_name(name) for name in names}
            for file in os.listdir(self.directory / _PARTS):
                if file.partition(PART)[0] in gone:
                    (self.directory / _PARTS / file).unlink(missing_ok=True)

    def clear(self) -> None:
        """Drop everything."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self, name: str) -> Path:
        folder = self.directory / _PARTS if PART in name else self.directory
        return folder / f"{_file_name(name)}.arrow"

    def _room(self) -> int:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        space = os.statvfs(self.directory)
        held = 0
        for folder in (self.directory, self.directory / _PARTS):
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
                held += sum(file.stat().st_size for file in files)
        return min(self._limit_bytes - held, space.f_bavail * space.f_frsize // 2)

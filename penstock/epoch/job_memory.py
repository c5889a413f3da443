"""Bounds the memory of each job's own code in a worker, and finds the jobs that workers died with.

Native code cannot be interrupted, and the kernel ends a process that takes too much. So a worker marks whose code it
executes in a file that outlives it, and watches its own memory: a job that takes more than its bound ends the worker.
The driver reads the marks and executes the epoch again: at once without a job that took more than its bound, and
without one in whose code workers died twice in the same epoch, whatever ended them.

    MARKS/HOST-PID-START   the number of the job whose code the process executes; once that exceeds its bound, also
                           the bytes that it has taken

Guarantees: a job is blamed only for what happened while its own code was executing.
Does not guarantee that a worker ends before the kernel ends it: memory is looked at some 50 times a second, and not
while code holds the interpreter's lock. Then the same job must be found twice.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.errors import PenstockError, UserError

#: how often a worker looks at its memory while a job's own code executes, and how long it looks after that, in seconds
_LOOK_SECONDS, _LINGER_SECONDS = 0.02, 0.5
#: growth that is worth reporting
_LEAST_BYTES = 10_000_000
#: in so many deaths of workers in one epoch a job must be found that has not exceeded its bound
_DEATHS = 2
#: the exit status of a worker that a job ended
EXIT_STATUS = 113
_MARK = struct.Struct("<qq")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class JobMemory:
    """How much memory a job's own code may take in a task, in bytes (None: `default_job_bytes` of the worker's host),
    and the directory of marks."""

    bytes: int | None
    marks: str


def default_job_bytes() -> int:
    """Half of this host's memory, shared between the tasks that its cores execute side by side."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    with contextlib.suppress(OSError, ValueError):  # a container's limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total // 2 // (os.cpu_count() or 1)


# -- in a worker -----------------------------------------------------------------------------------------


class JobWatch:
    """Watches the memory of this process while a job's own code executes."""

    def __init__(self, memory: JobMemory) -> None:
        self._limit = default_job_bytes() if memory.bytes is None else memory.bytes
        #: of the process at the last look, and at the last look before the present job
        self._size = self._before = own_bytes()
        self._growth: dict[int, int] = {}
        self._job: int | None = None
        self._looked_at: int | None = None
        self._wake = threading.Event()
        os.makedirs(memory.marks, mode=0o700, exist_ok=True)
        self.file = Path(memory.marks) / _process_name(os.getpid())
        with open(self.file, "w+b") as file:
            file.write(_MARK.pack(0, 0))
            file.flush()
            self._mark = mmap.mmap(file.fileno(), _MARK.size)
        with contextlib.suppress(OSError):  # the kernel ends a worker rather than the driver
            Path("/proc/self/oom_score_adj").write_text("500")
        threading.Thread(target=self._look, name="penstock-job-memory", daemon=True).start()

    @contextlib.contextmanager
    def watch(self, job: int) -> Iterator[None]:
        """Watch while the own code of a job executes."""
        outer, self._job = self._job, job
        _MARK.pack_into(self._mark, 0, job, 0)
        if not self._wake.is_set():
            self._size = own_bytes()
            self._wake.set()
        try:
            yield
        finally:
            self._job = outer
            _MARK.pack_into(self._mark, 0, outer or 0, 0)

    def take_growth(self) -> dict[int, int]:
        """By how many bytes the process has grown in each job's code, where it is worth reporting."""
        growth, self._growth = self._growth, {}
        return {job: size for job, size in growth.items() if size >= _LEAST_BYTES}

    def _look(self) -> None:
        """Look while jobs execute, and a little longer: the next one mostly follows."""
        last_seen = 0.0
        while True:
            self._wake.wait()
            job, now, size = self._job, time.monotonic(), own_bytes()
            if job is None or job != self._looked_at:
                self._looked_at, self._before = job, self._size
            self._size = size
            if job is None:
                if now - last_seen > _LINGER_SECONDS:
                    self._wake.clear()
                    if self._job is not None:  # it started meanwhile, and saw that nobody sleeps
                        self._wake.set()
            else:
                last_seen = now
                grown = size - self._before
                self._growth[job] = max(self._growth.get(job, 0), grown)
                if grown > self._limit and job == self._job:
                    _MARK.pack_into(self._mark, 0, job, grown)
                    os._exit(EXIT_STATUS)
            time.sleep(_LOOK_SECONDS)


_watches: dict[JobMemory, JobWatch] = {}


def job_watch(memory: JobMemory) -> JobWatch:
    """The watch of this worker, whose mark an engine that starts removes."""
    watch = _watches.get(memory)
    if watch is None or not watch.file.exists():
        watch = _watches[memory] = JobWatch(memory)
    return watch


def own_bytes() -> int:
    """The memory of this process that it shares with no other."""
    with open("/proc/self/statm", "rb") as file:
        resident, shared = map(int, file.read().split()[1:3])
    return (resident - shared) * _PAGE


def _process_name(pid: int) -> str:
    """A name that no other process of any host had or gets: numbers of processes are used again."""
    return f"{socket.gethostname()}-{pid}-{_started_at(pid)}"


def _started_at(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


# -- in the driver ---------------------------------------------------------------------------------------


class WorkerDeaths:
    """The jobs in whose code workers have died in the epoch under way. `memory`: None where nothing is bounded."""

    def __init__(self, memory: JobMemory | None) -> None:
        self._memory = memory
        self._epoch = -1
        self._deaths: Counter[int] = Counter()
        #: the marks of processes that lived when a Spark job failed: Spark ends those of cancelled tasks later
        self._cancelled: set[str] = set()
        if memory is not None:
            shutil.rmtree(memory.marks, ignore_errors=True)

    def blame(self, epoch: int) -> dict[int, PenstockError] | None:
        """After a Spark job has failed: the jobs, by number, without which to execute the epoch again. None: no worker
        died in a job's code; empty: execute it again as it was."""
        if self._memory is None:
            return None
        if epoch != self._epoch:
            self._epoch, self._deaths = epoch, Counter()
        errors: dict[int, PenstockError] = {}
        dead, living = _read_marks(Path(self._memory.marks))
        blamed = [mark for mark in dead if mark.exceeding_bytes or mark.name not in self._cancelled]
        self._cancelled = living
        for mark in blamed:
            if mark.exceeding_bytes:
                errors[mark.job] = _memory_error(mark.exceeding_bytes)
        self._deaths.update({mark.job for mark in blamed})
        for job in {mark.job for mark in blamed} - errors.keys():
            if self._deaths[job] >= _DEATHS:
                errors[job] = _death_error()
        return errors if blamed else None


class _Mark(NamedTuple):
    """What a dead process has left: the job in whose code it died, and the bytes that this took beyond its bound."""

    name: str
    job: int
    exceeding_bytes: int


def _read_marks(marks: Path) -> tuple[list[_Mark], set[str]]:
    """The marks of processes that died in a job's code, which are removed, and the names of those that live in one. A
    process of another host is taken to be alive unless it has marked that its job exceeded its bound."""
    host, dead, living = socket.gethostname(), [], set()
    for path in sorted(marks.glob("*")):
        job, exceeding = _MARK.unpack(path.read_bytes().ljust(_MARK.size, b"\0")[: _MARK.size])
        name, _, started = path.name.rpartition("-")
        name, _, pid = name.rpartition("-")
        if exceeding or (name == host and _started_at(int(pid)) != started):
            path.unlink(missing_ok=True)
            if job:
                dead.append(_Mark(path.name, job, exceeding))
        elif job:
            living.add(path.name)
    return dead, living


def _memory_error(taken: int) -> PenstockError:
    return UserError(
        "JOB_OUT_OF_MEMORY",
        f"the job's own code took more memory than a job may take: {taken / 1e6:,.0f} MB in a task of an epoch",
        hint="Let it match or keep less, for instance with a tighter join condition or a shorter window, or give jobs "
        "more with job_memory_bytes; then resume it.",
    )


def _death_error() -> PenstockError:
    return UserError(
        "JOB_ENDED_WORKER",
        f"{_DEATHS} worker processes ended in the job's own code in one epoch",
        detail="Most likely the kernel ended them for want of memory, or native code that the job calls crashed.",
        hint="Alter the job so that it takes less memory, then resume it.",
    )

"""Starts processes that outlive the command that started them, and finds and stops them later. Linux only: reads /proc.

Invariants:
- A process is identified by its number *and* its start time: a number that the system has reused is never signalled.
- Every process started here has a mark in its environment, which its children inherit. So all of them are found, even
  when their parent is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ExternalError, UserError
from penstock.state.durable import open_private

#: the variable that says to which cluster, and to which part of it, a process belongs
MARK = "PENSTOCK_CLUSTER"
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process: its number, and when it started (the boot, and ticks since then); stored in the cluster's record."""

    pid: int
    began: str


def check_system() -> None:
    """Refuse a system on which processes cannot be identified."""
    if not (_PROC / "self" / "stat").exists() or not hasattr(os, "pidfd_open"):
        raise UserError(
            "CLUSTER_NEEDS_LINUX",
            "a local cluster needs Linux 5.4 or newer with /proc",
            hint='Use --master "local[*]" here.',
        )


def find_process(pid: int) -> Process | None:
    """The process with this number; None if there is none or it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except (OSError, ValueError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may have any characters
    state, ticks = fields[0], fields[19]
    return None if state in ("Z", "X") else Process(pid, f"{boot}/{ticks}")


def is_alive(process: Process) -> bool:
    """Whether this process, and not a later one of its number, is running."""
    return find_process(process.pid) == process


def find_marked(mark: str) -> list[Process]:
    """All processes with a mark, or with one that starts with it and a slash."""
    exact, below = f"{MARK}={mark}".encode(), f"{MARK}={mark}/".encode()
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := find_process(int(entry.name))):
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(v == exact or v.startswith(below) for v in variables) and is_alive(process):
                    found.append(process)
    return found


def start(
    command: Sequence[str], environment: Mapping[str, str], mark: str, log: Path, cpus: Iterable[int] | None
) -> Process:
    """Start a process in a session of its own, pinned to processors, with its output in a file."""
    before = os.sched_getaffinity(0)
    with open(log, "ab", opener=open_private) as file:
        try:
            if cpus is not None:
                os.sched_setaffinity(0, cpus)  # of this thread; the process inherits it
            started = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**environment, MARK: mark},
                start_new_session=True,
                close_fds=True,
                umask=0o077,  # Spark's files have rows in them
            )
        except OSError as failure:
            raise ExternalError(
                "PROCESS_NOT_STARTED", f"{command[0]} did not start", detail=str(failure)
            ) from failure
        finally:
            os.sched_setaffinity(0, before)
    started.returncode = 0  # nobody waits for it: it outlives this process
    process = find_process(started.pid)
    if process is not None:
        _wait_for_mark(process)
    return process or Process(started.pid, "ended")


def _wait_for_mark(process: Process, seconds: float = 5.0) -> None:
    """Wait until a process that was started shows its mark: the kernel reports the start of a program a moment before
    others can read its environment, and who looks in between would not find it."""
    deadline = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if f"{MARK}=".encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                return
        time.sleep(0.001)


def end(processes: Iterable[Process], deadline_seconds: float = 10.0) -> None:
    """Terminate processes; kill those that are left at the deadline. Returns when they are gone."""
    all_ = list(processes)
    _signal(all_, signal.SIGTERM)
    kill(_wait(all_, deadline_seconds))


def kill(processes: Iterable[Process], deadline_seconds: float = 10.0) -> None:
    """Kill processes, as a power loss would. Returns when they are gone."""
    left = list(processes)
    _signal(left, signal.SIGKILL)
    if remaining := _wait(left, deadline_seconds):
        raise ExternalError(
            "PROCESS_STAYS",
            f"{len(remaining)} processes do not end though they were killed",
            detail=f"Their numbers are {', '.join(str(p.pid) for p in remaining)}.",
        )


def _signal(processes: Iterable[Process], which: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError), _handle(process) as handle:
            signal.pidfd_send_signal(handle, which)


def _wait(processes: list[Process], deadline_seconds: float) -> list[Process]:
    """Wait until all have ended; returns those that are left at the deadline."""
    deadline = time.monotonic() + deadline_seconds
    for process in processes:
        with contextlib.suppress(ProcessLookupError), _handle(process) as handle:
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
    _reap(processes)
    return [process for process in processes if is_alive(process)]


@contextlib.contextmanager
def _handle(process: Process) -> Iterator[int]:
    """A handle on this process: its number cannot be reused while the handle is open."""
    handle = os.pidfd_open(process.pid)
    try:
        if not is_alive(process):
            raise ProcessLookupError
        yield handle
    finally:
        os.close(handle)


def _reap(processes: Iterable[Process]) -> None:
    """Reap those that are children of this process, so that they do not remain as zombies."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.waitpid(process.pid, os.WNOHANG)

"""Processes of this machine that outlive the command that started them, and how they are found and ended again.

Receives commands to start; hands their identity, which can be written down. Works on Linux: it reads /proc.

Invariants:
- A process is known by its number *and* the moment it began: a number that the system has given to somebody
  else is never signalled.
- Every process started here carries a mark in its environment, which those it starts inherit. So all of them
  are found again, also when their parent is gone.
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

#: the variable that says to which cluster, and to which part of it, a process belongs
MARK = "PENSTOCK_CLUSTER"
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process: its number, and when it began (the boot, and ticks since then)."""

    pid: int
    began: str


def check_system() -> None:
    """Refuse a system whose processes we cannot tell apart."""
    if not (_PROC / "self" / "stat").exists() or not hasattr(os, "pidfd_open"):
        raise UserError(
            "CLUSTER_NEEDS_LINUX",
            "a local cluster needs Linux 5.4 or newer with /proc",
            hint='Use --master "local[*]" here.',
        )


def identity(pid: int) -> Process | None:
    """The process with this number now, or None where there is none or it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except (OSError, ValueError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    state, ticks = fields[0], fields[19]
    return None if state in ("Z", "X") else Process(pid, f"{boot}/{ticks}")


def alive(process: Process) -> bool:
    """Whether this very process still runs."""
    return identity(process.pid) == process


def marked(mark: str) -> list[Process]:
    """All processes that carry a mark, or one that begins with it and a slash."""
    exact, below = f"{MARK}={mark}".encode(), f"{MARK}={mark}/".encode()
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := identity(int(entry.name))):
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(v == exact or v.startswith(below) for v in variables) and alive(process):
                    found.append(process)
    return found


def start(
    command: Sequence[str], environment: Mapping[str, str], mark: str, log: Path, cpus: Iterable[int] | None
) -> Process:
    """Start a process in a session of its own, pinned, with what it prints in a file."""
    before = os.sched_getaffinity(0)
    with open(log, "ab") as file:
        try:
            if cpus is not None:
                os.sched_setaffinity(0, cpus)  # of this thread; what it starts inherits it
            started = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**environment, MARK: mark},
                start_new_session=True,
                close_fds=True,
            )
        except OSError as failure:
            raise ExternalError(
                "PROCESS_NOT_STARTED", f"{command[0]} did not start", detail=str(failure)
            ) from failure
        finally:
            os.sched_setaffinity(0, before)
    started.returncode = 0  # we do not wait for it: it is meant to outlive us
    process = identity(started.pid)
    return process or Process(started.pid, "ended")


def end(processes: Iterable[Process], deadline_seconds: float = 10.0) -> None:
    """Ask processes to end; those that have not by the deadline are killed. Returns when they are gone."""
    open_ = list(processes)
    _signal(open_, signal.SIGTERM)
    left = _wait(open_, deadline_seconds)
    kill(left)


def kill(processes: Iterable[Process], deadline_seconds: float = 10.0) -> None:
    """End processes at once, as a power loss would. Returns when they are gone."""
    left = list(processes)
    _signal(left, signal.SIGKILL)
    if stay := _wait(left, deadline_seconds):
        raise ExternalError(
            "PROCESS_STAYS",
            f"{len(stay)} processes do not end though they were killed",
            detail=f"Their numbers are {', '.join(str(p.pid) for p in stay)}.",
        )


def _signal(processes: Iterable[Process], which: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError), _handle(process) as handle:
            signal.pidfd_send_signal(handle, which)


def _wait(processes: list[Process], deadline_seconds: float) -> list[Process]:
    """Wait until all have ended; returns those that have not by the deadline."""
    deadline = time.monotonic() + deadline_seconds
    for process in processes:
        with contextlib.suppress(ProcessLookupError), _handle(process) as handle:
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
    _reap(processes)
    return [process for process in processes if alive(process)]


@contextlib.contextmanager
def _handle(process: Process) -> Iterator[int]:
    """A handle on this very process: no other can take its number while it is open."""
    handle = os.pidfd_open(process.pid)
    try:
        if not alive(process):
            raise ProcessLookupError
        yield handle
    finally:
        os.close(handle)


def _reap(processes: Iterable[Process]) -> None:
    """Take leave of those that were our own children, so that they do not stay as zombies."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.waitpid(process.pid, os.WNOHANG)

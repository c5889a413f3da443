"""A program in a process of its own, its whole tree of processes watched for memory.

Receives a command; hands how it ended, how long it took, the most memory it held, and how many cores everything else
on the machine took meanwhile. Nothing of it is left behind.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import TICKS, descendants, stat

_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class Watched:
    """How a process ended. `code` is None if it was stopped because its time was up.

    `others`: the cores that were busy with anything else meanwhile, or that the machine's host kept for itself.
    """

    code: int | None
    wall: float
    peak_bytes: int
    cpu_seconds: float
    others: float


def watched(
    command: Sequence[str], env: Mapping[str, str], log: Path, limit_seconds: float, folder: Path
) -> Watched:
    """Run a command to its end, or until the time is up."""
    with open(log, "wb") as printed:
        started_at, busy, reaped = time.perf_counter(), busy_seconds(), _reaped_seconds()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
        peak, spent, over = [0], [0.0], threading.Event()

        def watch() -> None:
            while not over.wait(_EVERY_SECONDS):
                memory, cpu = tree(process.pid)
                peak[0], spent[0] = max(peak[0], memory), max(spent[0], cpu)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            code: int | None = process.wait(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            wall, busy = time.perf_counter() - started_at, busy_seconds() - busy
            over.set()
            watcher.join()
            for pid in descendants(process.pid, session=True):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    cpu = max(spent[0], _reaped_seconds() - reaped)
    return Watched(code, wall, peak[0], cpu, max(0.0, busy - cpu) / wall)


def busy_seconds() -> float:
    """Seconds since the machine's start in which its cores did anything, waiting for disks left out."""
    user, nice, system, _idle, _waits, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(rest)) / TICKS


def _reaped_seconds() -> float:
    """Processor time of the children that have ended: exact, but without what outlived them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree(root: int) -> tuple[int, float]:
    """Bytes of memory and seconds of processor time of a process and all that it started."""
    memory, ticks = 0, 0
    for pid in descendants(root, session=True):
        with contextlib.suppress(OSError, IndexError, ValueError):
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            ticks += sum(int(text) for text in stat(pid)[11:15])
    return memory, ticks / TICKS

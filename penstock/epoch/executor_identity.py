"""Where a task runs: the executor whose Python worker this process is, and how much memory its processes hold.

Spark does not tell a Python worker its executor. But the worker's ancestors are the executor's Java process, whose
command line has the executor's number wherever Spark started it (standalone, YARN, Kubernetes).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: set where tasks of several executors are played in one process
_PLAYED: ContextVar[str | None] = ContextVar("executor", default=None)


@dataclass(frozen=True)
class Whereabouts:
    """An executor's number and its process. Of tasks that run in the driver: `driver`, and this process."""

    executor: str
    pid: int


def whereabouts() -> Whereabouts:
    """Where this task runs."""
    played = _PLAYED.get()
    return Whereabouts(played, os.getpid()) if played is not None else _found()


#: process number: bytes that are its own, and bytes that others may have mapped too
Memory = dict[int, tuple[int, int]]


def memory() -> Memory:
    """What this process holds in memory, and the executor's Java process above it; empty where that is not told."""
    return {pid: found for pid in {os.getpid(), whereabouts().pid} if (found := _held(pid)) is not None}


def _held(pid: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = map(int, file.read().split()[1:3])
        return (resident - shared) * _PAGE, shared * _PAGE
    return None


@contextlib.contextmanager
def standing_at(executor: str | None) -> Iterator[None]:
    """Have the tasks of this thread believe that they run on an executor; None: where they do."""
    token = _PLAYED.set(executor)
    try:
        yield
    finally:
        _PLAYED.reset(token)


@functools.cache
def _found() -> Whereabouts:
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        for _ in range(8):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return Whereabouts(words[words.index("--executor-id") + 1], pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return Whereabouts("driver", os.getpid())

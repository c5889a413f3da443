"""Finds the executor that a task runs on, and how much memory its processes hold.

Spark does not give a Python worker the number of its executor. But the worker's ancestors are the executor's Java
process, whose command line has the number wherever Spark started it (standalone, YARN, Kubernetes).
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
#: set where one process simulates the tasks of several executors
_SIMULATED: ContextVar[str | None] = ContextVar("executor", default=None)
#: process number: bytes that are its own, and bytes that other processes may have mapped too
Memory = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class ExecutorIdentity:
    """An executor's number and its process. Of tasks that run in the driver: `driver`, and this process."""

    executor: str
    pid: int


def current_executor() -> ExecutorIdentity:
    """The executor that this task runs on."""
    simulated = _SIMULATED.get()
    return _find_executor() if simulated is None else ExecutorIdentity(simulated, os.getpid())


def measure_memory() -> Memory:
    """The memory of this process and of the executor's Java process above it; empty where the system has no /proc."""
    pids = {os.getpid(), current_executor().pid}
    return {pid: memory for pid in pids if (memory := _process_memory(pid)) is not None}


def _process_memory(pid: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = map(int, file.read().split()[1:3])
        return (resident - shared) * _PAGE, shared * _PAGE
    return None


@contextlib.contextmanager
def running_as(executor: str | None) -> Iterator[None]:
    """Simulate that the tasks of this thread run on an executor; with None they run where they do."""
    token = _SIMULATED.set(executor)
    try:
        yield
    finally:
        _SIMULATED.reset(token)


@functools.cache
def _find_executor() -> ExecutorIdentity:
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        for _ in range(8):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return ExecutorIdentity(words[words.index("--executor-id") + 1], pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ExecutorIdentity("driver", os.getpid())

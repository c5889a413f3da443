"""The processes of a benchmark: how they are started, measured, found and ended.

Also the environment to start one with, its CPU and memory, and its descendants.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from penstock.cluster.processes import Process, end, find_process, kill
from penstock.errors import InternalError

#: the checkout, which processes of a benchmark need on their path
ROOT = Path(__file__).resolve().parents[1]
#: of the figures in `stat`, in a second
TICKS = os.sysconf("SC_CLK_TCK")
Memory = Literal["VmRSS", "VmHWM", "RssAnon"]
_END_SECONDS = 30.0
#: for what a process has left behind
_LEFT_SECONDS = 10.0


def environment(**more: str) -> dict[str, str]:
    """The variables of a process that imports benchmarks or Penstock."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **more}


def stat(pid: int) -> list[str]:
    """The fields after the name of a process, which may have blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """What a process has taken of cores so far."""
    return sum(int(text) for text in stat(pid)[11:13]) / TICKS


def memory_bytes(pid: int | Literal["self"] = "self", what: Memory = "VmRSS") -> int:
    """The memory of a process: all that it holds now, at most so far, or what is its own alone."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise InternalError(
        "BENCH_FAILED", f"the process {pid} is gone, or its system does not report its memory"
    )


def descendants(root: int, *, session: bool = False) -> list[int]:
    """The processes that a process started, and those that these started; `session`: it leads a session, and its
    members count too, whoever their parent is now, and so does it. None where there is no /proc."""
    parents, found = {}, set[int]()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = stat(int(name))
                parents[int(name)] = int(fields[1])
                if session and root in (int(fields[3]), int(name)):
                    found.add(int(name))
    while more := {pid for pid, parent in parents.items() if parent == root or parent in found} - found:
        found |= more
    return sorted(found)


def end_descendants(root: int, seconds: float) -> None:
    """End whatever is below a process with SIGTERM, then with SIGKILL, until none is left."""
    if found := _identities(descendants(root)):
        end(found, seconds)
    while found := _identities(descendants(root)):
        kill(found)  # what they started meanwhile


def end_tree(process: subprocess.Popen[bytes], seconds: float = _END_SECONDS) -> None:
    """End a process with SIGTERM, so that it ends what it has started; then end what it has left, a JVM perhaps that
    is removing its files. What has not ended in time is killed."""
    below = _identities(descendants(process.pid, session=True))
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    end({*below, *_identities(descendants(process.pid, session=True))}, _LEFT_SECONDS)
    process.wait()


def _identities(pids: Sequence[int]) -> list[Process]:
    """Those that still run; a number that another process has meanwhile is no other's."""
    return [found for found in map(find_process, pids) if found is not None]

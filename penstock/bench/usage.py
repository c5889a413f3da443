"""What processes use: CPU, memory and bytes written, of each one with everything it has started. Linux only.

Receives process numbers; hands figures at a moment, of which the differences count.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Seconds of CPU so far, bytes written to files so far, bytes of memory now (shared pages in equal parts)."""

    cpu_seconds: float = 0.0
    written_bytes: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds + other.cpu_seconds,
            self.written_bytes + other.written_bytes,
            self.memory_bytes + other.memory_bytes,
        )


def usage(pid: int) -> Usage:
    """What a process and its descendants use; nothing if it is gone."""
    found = Usage()
    for one in (pid, *descendants(pid)):
        found += _own(one)
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (facts := _stat(int(name))) is not None:
            children.setdefault(int(facts[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        of = children.get(waiting.pop(), [])
        found += of
        waiting += of
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of a process from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _own(pid: int) -> Usage:
    facts = _stat(pid)
    if facts is None:
        return Usage()
    # its own, and those of children that have ended
    ticks = sum(int(value) for value in facts[11:15])
    return Usage(ticks / _TICKS, _figure(pid, "io", "write_bytes"), _figure(pid, "smaps_rollup", "Pss") << 10)


def _figure(pid: int, file: str, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0

"""What an engine takes of its machine: CPU and memory of its process and of all that it started. Linux: reads /proc.

Receives a process that leads a session of its own, as every engine of a unit does; hands figures of the session.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SESSION, _USER, _SYSTEM = 3, 11, 12


@dataclass(frozen=True)
class Taken:
    """CPU seconds since they began, of the processes that are up; bytes of memory that are theirs alone; bytes that
    they have had written to disks."""

    cpu_seconds: float = 0.0
    memory_bytes: float = 0.0
    written_bytes: float = 0.0


def taken(session: int) -> Taken:
    """What the processes of a session take; nothing where that cannot be seen."""
    cpu, pages, written = 0, 0, 0
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return Taken()
    for name in names:
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[_SESSION]) != session:
                continue
            resident, shared = map(int, Path(f"/proc/{name}/statm").read_text().split()[1:3])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        cpu += int(fields[_USER]) + int(fields[_SYSTEM])
        pages += max(resident - shared, 0)
        written += _written(name)
    return Taken(cpu / _TICKS, float(pages * _PAGE), float(written))


def _written(process: str) -> int:
    """The bytes a process has had written; 0 where that cannot be seen."""
    try:
        said = Path(f"/proc/{process}/io").read_text()
        return int(said.partition("\nwrite_bytes:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return 0

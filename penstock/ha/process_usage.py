"""Measures CPU, memory and disk writes of an engine: of all processes of its session. Linux only: reads /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SESSION, _USER, _SYSTEM = 3, 11, 12


@dataclass(frozen=True)
class ProcessUsage:
    """CPU seconds of the processes that are up, since their start; bytes of memory that they do not share; bytes that
    they wrote to disk."""

    cpu_seconds: float = 0.0
    memory_bytes: float = 0.0
    written_bytes: float = 0.0


def measure_usage(session: int) -> ProcessUsage:
    """The usage of a session's processes; zeros if /proc cannot be read."""
    cpu, pages, written = 0, 0, 0
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return ProcessUsage()
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
        written += _written_bytes(name)
    return ProcessUsage(cpu / _TICKS, float(pages * _PAGE), float(written))


def _written_bytes(process: str) -> int:
    try:
        text = Path(f"/proc/{process}/io").read_text()
        return int(text.partition("\nwrite_bytes:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return 0

"""Spare capacity: an engine that does not lead leaves the machine to the one that does.

Receives how far the primary is behind; hands the secondary's priority, and whether it pauses.

A secondary's processes have a lower priority, where that can be undone when it comes to lead. On the primary's host it
pauses while the primary is behind with its input, and afterwards catches up: by repeating the epochs, or by taking over
the state if there are many (see `behind`).
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

#: how much lower a secondary's priority is
NICE = 10
#: a secondary pauses when the primary is behind by more than this, in seconds, and goes on when by less than that
PAUSE_SECONDS = 2.0
RESUME_SECONDS = 0.5
_CAP_SYS_NICE = 1 << 23


def behind_seconds(units: Mapping[str, int], seconds: float, waiting: Mapping[str, int]) -> float:
    """How long an engine needs for what waits, as fast as its last epoch was; 0 where that had nothing."""
    done = sum(units.values())
    return sum(waiting.values()) * seconds / done if done else 0.0


def pauses(paused: bool, behind: float | None) -> bool:
    """Whether a secondary is to pause, by whether it does and how far the primary is behind; None: nobody leads."""
    return behind is not None and behind > (RESUME_SECONDS if paused else PAUSE_SECONDS)


class Priority:
    """The priority of this process and all it has started."""

    def __init__(self) -> None:
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self.lowered = False

    def lower(self) -> bool:
        """Have a lower priority, if the usual one can be had again; whether that is so."""
        if not self.lowered and may_rise(self._usual):
            self.lowered = self._set(min(self._usual + NICE, 19))
        return self.lowered

    def restore(self) -> None:
        """Have the usual priority."""
        if self.lowered:
            self._set(self._usual)
            self.lowered = False

    def _set(self, nice: int) -> bool:
        """Every thread has a priority of its own on Linux, and hands it down to what it starts."""
        done = False
        for thread in _threads():
            with contextlib.suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, thread, nice)
                done = True
        return done


def may_rise(to: int) -> bool:
    """Whether this process may get such a priority again after it had a lower one. Linux asks for a right to that."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    capable = int(status.partition("CapEff:")[2].split()[0], 16) & _CAP_SYS_NICE
    least = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
    return bool(capable) or least <= to


def _threads() -> Iterator[int]:
    """The threads of this process and of those it has started."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        with contextlib.suppress(OSError):
            yield from map(int, os.listdir(f"/proc/{process}/task"))

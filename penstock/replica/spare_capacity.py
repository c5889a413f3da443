"""Leaves the machine to the leader: lowers the priority of an engine that does not lead, and decides when it pauses.

The priority is lowered where that can be undone at a promotion. On the leader's host a follower pauses while the leader
is behind with its input. Afterwards it repeats the epochs or, if there are many, copies the state (see `lag`).
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

#: how much lower the priority is
NICE = 10
#: a follower pauses when the leader is behind by more than this, in seconds, and continues when by less than that
PAUSE_SECONDS = 2.0
RESUME_SECONDS = 0.5
_CAP_SYS_NICE = 1 << 23


def behind_seconds(units: Mapping[str, int], seconds: float, backlog: Mapping[str, int]) -> float:
    """Seconds of work in a backlog, at the speed of the last epoch; 0 if that was empty."""
    done = sum(units.values())
    return sum(backlog.values()) * seconds / done if done else 0.0


def should_pause(is_paused: bool, behind: float | None) -> bool:
    """Whether a follower should pause, by the seconds that the leader of its host is behind; None: there is none."""
    return behind is not None and behind > (RESUME_SECONDS if is_paused else PAUSE_SECONDS)


class Priority:
    """The priority of this process and of all that it has started."""

    def __init__(self) -> None:
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        self.lowered = False

    def lower(self) -> bool:
        """Lower the priority if it can be restored later; returns whether it is lowered."""
        if not self.lowered and can_restore_priority(self._usual):
            self.lowered = self._set(min(self._usual + NICE, 19))
        return self.lowered

    def restore(self) -> None:
        """Restore the usual priority."""
        if self.lowered:
            self._set(self._usual)
            self.lowered = False

    def _set(self, nice: int) -> bool:
        """On Linux every thread has its own priority, and what it starts inherits it."""
        is_set = False
        for thread in _threads():
            with contextlib.suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, thread, nice)
                is_set = True
        return is_set


def can_restore_priority(to: int) -> bool:
    """Whether this process may return to a priority from a lower one, which Linux allows only to some."""
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

"""The faults of a soak: each sink goes away and comes back, one of them for a long time.

pushed          its receiver refuses everything from a half to two thirds of the run
pushed, often   the receiver is killed and started again
big             its disk is full (where a small file system can be mounted), its database is locked
filed           a file stands where its folder was: the job fails, and is resumed later
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.soak_jobs import Jobs
from bench.soak_receiver import Receiver
from penstock.catalogue.program import Program

#: how often each fault returns, in ticks, when in that time, and how long it lasts
_KILLED, _LOCKED, _FULL, _BROKEN = (1_000, 150, 60), (700, 400, 40), (900, 600, 50), (1_500, 1_100, 80)
_DISK = "16m"


@contextlib.contextmanager
def small_disk(place: Path, size: str = _DISK) -> Iterator[bool]:
    """Mount a small file system at `place`; yield whether that was possible."""
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock-soak", str(place)]
    try:
        mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True, timeout=20).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True, timeout=20)


def fill_disk(place: Path) -> Path:
    """Write a file until the disk is full; returns it."""
    ballast = place / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while file.write(b"\0" * 4_096) == 4_096:
            pass
    return ballast


class Faults:
    """Injects the faults of a soak of so many ticks, by one thread; `heal` undoes them."""

    def __init__(self, folder: Path, receiver: Receiver, jobs: Jobs, ticks: int, *, can_fill: bool) -> None:
        self._folder, self._receiver, self._jobs = folder, receiver, jobs
        self._long = (ticks // 2, ticks * 2 // 3)
        self._can_fill = can_fill
        self._lock: sqlite3.Connection | None = None

    def tick(self, program: Program, tick: int, written: int) -> None:
        """Start and end what is due."""
        if tick in self._long:
            self._receiver.set_away("/pushed", tick == self._long[0])
        match _phase(tick, *_KILLED):
            case "start":
                self._receiver.kill()
            case "end":
                self._receiver.start()
        match _phase(tick, *_LOCKED):
            case "start":
                self._hold_lock()
            case "end":
                self._release_lock()
        match _phase(tick, *_FULL):
            case "start" if self._can_fill:
                fill_disk(self._folder / "full")
            case "end":
                self._empty_disk()
        match _phase(tick, *_BROKEN):
            case "start":
                self._break_folder(written)
            case "end":
                self._repair_folder(program, written)

    def heal(self, program: Program, written: int) -> None:
        """End all faults."""
        self._receiver.set_away("/pushed", False)
        self._receiver.start()
        self._release_lock()
        self._empty_disk()
        self._repair_folder(program, written)

    def close(self) -> None:
        """Release what the faults hold."""
        self._release_lock()
        self._receiver.kill()

    def _hold_lock(self) -> None:
        self._lock = sqlite3.connect(self._folder / "out" / "big.db", isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _empty_disk(self) -> None:
        (self._folder / "full" / "ballast").unlink(missing_ok=True)

    def _break_folder(self, written: int) -> None:
        out = self._folder / "out" / "filed"
        out.rename(out.with_name("filed.away"))
        out.touch()
        self._jobs.note_broken(written)

    def _repair_folder(self, program: Program, written: int) -> None:
        out = self._folder / "out" / "filed"
        if out.is_file():
            out.unlink()
            out.with_name("filed.away").rename(out)
            self._jobs.repair(program, written)


def _phase(tick: int, period: int, start: int, length: int) -> str | None:
    """Whether a fault that returns starts or ends with a tick."""
    return {start: "start", start + length: "end"}.get(tick % period)

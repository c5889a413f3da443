"""A soak test: a unit under load while engines and the coordinator are killed and paused, the disk is full, the store
is unavailable, and the scheme changes; at the end the output is that of an undisturbed run, event for event.

The faults and their times follow from a seed:

    PENSTOCK_SOAK_SECONDS=1800 PENSTOCK_SOAK_SEED=7 ./run test -m soak tests/ha/test_soak.py

`PENSTOCK_SOAK_MASTER=local[1]` runs it on Spark. Disks are filled where a small file system can be mounted (root).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.ha.schemes import SCHEMES, Scheme
from tests.ha.unit_kit import Kit

LEASE_SECONDS = 2.5
#: how long the short soak injects faults
SHORT_SECONDS = 45.0
#: lines a second that the feeder appends to each of two files
LINES = 30
_DISK = "24m"


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """Mount a small file system at `place`; yield whether that was possible."""
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "penstock-soak", str(place)]
    try:
        mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True, timeout=20).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True, timeout=20)


class Soak:
    """Injects faults into a unit; `heal` undoes them."""

    def __init__(self, kit: Kit, draw: random.Random, disk: Path | None) -> None:
        self._kit, self._draw, self._disk = kit, draw, disk
        self._paused: set[int] = set()
        self._store = Path(kit.unit.launch.coordination)
        self.done: list[str] = []
        self._faults: dict[str, Callable[[], None]] = {
            "kill the leader": lambda: self._kill(leads=True),
            "kill the follower": lambda: self._kill(leads=False),
            "kill all engines": self._kill_all,
            "kill the coordinator": kit.kill_coordinator,
            "pause the leader": lambda: self._pause(leads=True),
            "pause the follower": lambda: self._pause(leads=False),
            "take the store away": self._move_store_away,
            "change the scheme": lambda: kit.unit.switch_scheme(draw.choice([*SCHEMES])) and None,
        }
        if disk is not None:
            self._faults["fill the disk"] = self._fill_disk

    def run(self, seconds: float) -> None:
        """Inject faults for so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._draw.uniform(0.5, 4.0))
            name = self._draw.choice([*self._faults])
            self.done.append(f"{time.time():.1f} {name}")
            # a fault may be impossible in the midst of another
            with contextlib.suppress(PenstockError, OSError, KeyError):
                self._faults[name]()
            self._operate()
        self.heal()

    def heal(self) -> None:
        """Undo the faults that last; start a coordinator if there is none."""
        for pid in list(self._paused):
            self._resume(pid)
        if self._store.with_name("away").exists():
            self._bring_store_back()
        if self._disk is not None:
            (self._disk / "ballast").unlink(missing_ok=True)
        self._operate()

    def _operate(self) -> None:
        """Start the coordinator again if it has ended, as a service manager does."""
        if self._kit.coordinator is None or self._kit.coordinator.poll() is not None:
            with contextlib.suppress(PenstockError):
                self._kit.unit.change(lambda now: replace(now, phase="running", errors=()))
            self._kit.start_coordinator()

    # -- faults ----------------------------------------------------------------------------------

    def _pid(self, leads: bool) -> int:
        leader = self._kit.record().leader
        return next(one.pid for name, one in self._kit.engines().items() if (name == leader) is leads)

    def _kill(self, leads: bool) -> None:
        with contextlib.suppress(StopIteration):
            os.kill(self._pid(leads), signal.SIGKILL)

    def _kill_all(self) -> None:
        for engine in self._kit.engines().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGKILL)

    def _pause(self, leads: bool) -> None:
        with contextlib.suppress(StopIteration):
            pid = self._pid(leads)
            os.kill(pid, signal.SIGSTOP)
            self._paused.add(pid)
            time.sleep(self._draw.uniform(0.1, 2 * LEASE_SECONDS))
            self._resume(pid)

    def _resume(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._paused.discard(pid)

    def _move_store_away(self) -> None:
        self._store.rename(self._store.with_name("away"))
        try:
            time.sleep(self._draw.uniform(0.1, 2 * LEASE_SECONDS))
        finally:
            self._bring_store_back()

    def _bring_store_back(self) -> None:
        # a process that looked just before may have created a folder in its place, as below an unmounted path
        shutil.rmtree(self._store, ignore_errors=True)
        self._store.with_name("away").rename(self._store)

    def _fill_disk(self) -> None:
        assert self._disk is not None
        ballast = self._disk / "ballast"
        try:
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 65_536)
            time.sleep(self._draw.uniform(0.2, 3.0))
        finally:
            ballast.unlink()


def run_soak(folder: Path, seconds: float, seed: int, master: str) -> None:
    """Run one soak."""
    draw = random.Random(seed)
    with small_disk(folder / "disk") as mounted:
        (folder / "disk" / "out").mkdir()
        (folder / "unit").mkdir()
        (folder / "unit" / "out").symlink_to(folder / "disk" / "out")
        kit = Kit(
            folder / "unit",
            Scheme.active_standby,
            count=int((seconds + 30) * LINES),
            pause_seconds=3 / LINES,
            master=master,
            lease_seconds=LEASE_SECONDS,
            state=folder / "disk" / "state",
            coordination=str(folder / "store" / "coordination"),
        )
        soak = Soak(kit, draw, folder / "disk" if mounted else None)
        try:
            kit.feeder.start()
            kit.wait_until("an engine leads", kit.leader)
            soak.run(seconds)
            kit.finish(180)
        except BaseException:
            print("\n".join([f"seed {seed}", *soak.done]))
            raise
        finally:
            soak.heal()
            kit.close()


@pytest.mark.soak
@pytest.mark.kill
@pytest.mark.timeout(400)
def test_a_short_soak_leaves_the_output_undisturbed(tmp_path: Path) -> None:
    run_soak(tmp_path, SHORT_SECONDS, seed=1, master="inline")


@pytest.mark.soak
@pytest.mark.kill
@pytest.mark.timeout(0)
def test_a_soak_leaves_the_output_undisturbed(tmp_path: Path) -> None:
    run_soak(
        tmp_path,
        float(os.environ.get("PENSTOCK_SOAK_SECONDS", "600")),
        int(os.environ.get("PENSTOCK_SOAK_SEED", "2")),
        os.environ.get("PENSTOCK_SOAK_MASTER", "inline"),
    )

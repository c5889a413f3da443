"""The engine process of the run with every fault, and its feeder: how they are started, killed, paused and watched."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.fault_app import state_of
from bench.processes import descendants, end_tree, environment
from bench.soak_load import LogFiles
from penstock.engine.job_client import JobClient
from penstock.errors import InternalError, PenstockError
from penstock.settings import INLINE
from penstock.state.directory import StateDirectory

#: a busy machine takes long to start Spark
PATIENCE_SECONDS = 120.0
_TICK_SECONDS, _ROTATION_TICKS = 0.5, 160


def wait_until(what: str, is_reached: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> float:
    """Wait for a condition; returns the seconds that took."""
    started = time.monotonic()
    while not is_reached():
        if time.monotonic() - started > seconds:
            raise InternalError("BENCH_FAILED", f"waited in vain until {what}")
        time.sleep(0.05)
    return time.monotonic() - started


class Feeder:
    """Writes a tick of events each half second and rotates the files, in a thread, until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.files = LogFiles(folder / "in")
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """How many events are written."""
        return self.files.written

    def _feed(self) -> None:
        tick = 0
        while not self._stop.wait(_TICK_SECONDS):
            tick += 1
            with self._lock:
                if tick % _ROTATION_TICKS == 0:
                    self.files.rotate()
                self.files.write_tick()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing within a `with` block."""
        with self._lock:
            yield

    def close(self) -> None:
        """Write nothing more."""
        self._stop.set()
        self._thread.join()


class FaultEngine:
    """The engine, which is started again whenever it has ended."""

    def __init__(self, folder: Path, arguments: list[str], feeder: Feeder) -> None:
        self._folder, self._arguments, self._feeder = folder, arguments, feeder
        #: whether it runs on Spark
        self.has_spark = arguments[0] != INLINE
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "engine.log"
        self._log_start = 0
        self.state = state_of(folder)
        self.starts = 0

    # -- the process -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def start(self, **variables: str) -> None:
        """Start it, with variables in its environment."""
        self.starts += 1
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.fault_app", str(self._folder), *self._arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment(**variables),
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def wait_until_ended(self) -> str:
        """Wait until it has ended by itself; returns what it has said since its start, and ends what it has left."""
        wait_until("the engine has ended", self.has_ended)
        self._sweep()
        return self.said()

    def said(self) -> str:
        """What it has written since its start."""
        with open(self._log, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill it as a power loss does, and what it has started."""
        os.kill(self.pid, signal.SIGKILL)
        self._sweep()

    def _sweep(self) -> None:
        assert self._process is not None
        for pid in descendants(self.pid, session=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Let it end."""
        if self._process is not None:
            end_tree(self._process)

    def workers(self) -> list[int]:
        """Spark's Python processes."""
        found = []
        for pid in descendants(self.pid, session=True):
            with contextlib.suppress(OSError):
                # not the JVM, whose arguments name pyspark too
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    # -- what it does ----------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Execute statements in it."""
        with JobClient(self.state) as client:
            client.execute(sql)

    def job(self, name: str) -> str:
        """What SHOW JOBS says of a job; empty if there is none, or nobody answers."""
        try:
            with JobClient(self.state) as client:
                rows = [row for reply in client.execute("SHOW JOBS") for row in reply.rows]
        except PenstockError:
            return ""
        return next((str(dict(row)) for row in rows if row.get("job") == name), "")

    def last_epoch(self) -> int:
        """The last committed epoch."""
        return max(StateDirectory(self.state).manifests.epochs(), default=-1)

    def newest(self) -> int:
        """The newest event in the table of a job that no fault concerns; -1 before the first."""
        path = self._folder / "out" / "big.db"
        if not path.exists():
            return -1
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            try:
                return int(database.execute("SELECT COALESCE(MAX(number), -1) FROM big").fetchone()[0])
            except sqlite3.OperationalError:
                return -1

    def wait_until_delivered(self, what: str) -> float:
        """Wait until what is written now has been delivered; returns the seconds that took."""
        return self.wait_until_delivered_event(self._feeder.written, what)

    def wait_until_delivered_event(self, target: int, what: str = "") -> float:
        """Wait until an event, or a later one, has been delivered; returns the seconds that took."""

        def is_reached() -> bool:
            if self.has_ended():
                raise InternalError(
                    "BENCH_FAILED", f"the engine has ended: {what}", detail=self.said()[-3_000:]
                )
            return self.newest() >= target

        return wait_until(f"events are delivered: {what}", is_reached)

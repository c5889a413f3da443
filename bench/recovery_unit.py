"""A unit under load for the recovery benchmark: the real command, real engines, a sink that is watched.

For each kill of the leader it measures the gap at the sink and its parts.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.benchmark import ShowProgress
from bench.processes import end_tree, environment
from bench.recovery_load import Feeder, write_app
from penstock.errors import ExternalError, InternalError
from penstock.ha.process_usage import ProcessUsage, measure_usage
from penstock.ha.schemes import SCHEMES, Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord, kind_of
from penstock.state.directory import StateDirectory

_PATIENCE_SECONDS, _END_SECONDS = 600.0, 45.0
_LOOK_SECONDS = 0.005
_READY = ("ready", "following")
#: a secondary that runs epochs is warm after so many of its own, and has caught up when at most so many are missing
_WARM_EPOCHS, _MISSING_EPOCHS = 20, 3


@dataclass(frozen=True)
class Kill:
    """One kill of the primary, in seconds: the gap at the sink, what of it came after the kill, and its detection.

    `detected`: until another had the lease; where none was there to have it, until the coordinator knew.
    """

    gap: float
    after: float
    detected: float
    #: what the unit's controller had estimated before
    estimated: float


class SinkWatch(threading.Thread):
    """When each file of a sink appeared, by the wall clock."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self._out = out
        self._stop = threading.Event()
        self.seen: dict[str, float] = {}

    def run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            now = time.time()
            try:
                names = os.listdir(self._out)
            except FileNotFoundError:
                continue
            for name in names:
                if name.endswith(".jsonl") and name[0] != "." and name not in self.seen:
                    self.seen[name] = now

    def close(self) -> None:
        self._stop.set()
        self.join()

    def times(self) -> list[float]:
        return sorted(self.seen.values())


class LoadedUnit:
    """A running unit with the given options; close it at the end."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        *,
        visitors: int,
        rate: float,
        master: str,
        show_progress: ShowProgress,
        seed: int = 1,
    ) -> None:
        self._show_progress, self._draw = show_progress, random.Random(seed)
        self._folder = folder
        #: the epoch from which each follower, by its process, has followed
        self._start_epochs: dict[int, int] = {}
        self.feeder = Feeder(folder / "in", visitors, rate, seed)
        self.sink = SinkWatch(folder / "out")
        self.root = folder / "state"
        write_app(folder / "app.py", folder / "in", folder / "out")
        self._command = self._start_command(options, master)
        try:
            self.unit = self._open_unit()
        except BaseException:
            end_tree(self._command)
            raise
        self.sink.start()

    def _start_command(self, options: Sequence[str], master: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from penstock.cli.commands import main; main()", "run", "app.py"]
        with open(self._folder / "coordinator.log", "ab") as log:
            return subprocess.Popen(
                [*command, "--ha", *options, "--state", str(self.root), "--master", master],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )

    def _open_unit(self) -> Unit:
        self.until("the unit is there", (self.root / "ha" / "unit.json").exists)
        unit = Unit.at(self.root)

        def has_record() -> bool:
            try:
                return unit.record() is not None
            except ExternalError:
                return False

        self.until("the unit has a record", has_record)
        return unit

    def close(self) -> None:
        """Stop everything; what does not end by itself is killed."""
        self.feeder.close()
        end_tree(self._command, _END_SECONDS)
        if self.sink.ident is not None:
            self.sink.close()
        self.unit.close()

    # -- looking ---------------------------------------------------------------------------------

    def until(self, what: str, condition: Callable[[], Any], seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait for a condition; fail after the deadline."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline or self._command.poll() is not None:
                log_text = (self._folder / "coordinator.log").read_text(errors="replace")[-3000:]
                raise InternalError("BENCH_FAILED", f"waited in vain until {what}", detail=log_text)
            time.sleep(0.02)

    @property
    def state_bytes(self) -> int:
        """The size of the state in force."""
        return StateDirectory(Path(self.unit.record().directory)).manifests.latest().state_bytes()

    def is_ready(self, scheme: Scheme) -> bool:
        """Whether there is a leader, and the follower that a scheme needs is as far as it gets."""
        record, engines = self.unit.record(), self.unit.engines()
        leader = engines.get(record.leader or "")
        if leader is None or leader.phase != "primary":
            return False
        others = [engine for name, engine in engines.items() if name != record.leader]
        kind = kind_of(scheme)
        if kind is None:
            return not others
        return len(others) == 1 and others[0].kind == kind and self._has_caught_up(scheme, record, others[0])

    def _has_caught_up(self, scheme: Scheme, record: UnitRecord, second: UnitEngine) -> bool:
        if second.phase not in _READY or scheme is Scheme.deployed:
            return second.phase in _READY
        done = StateDirectory(Path(record.directory)).manifests.epochs()
        if not done or second.epoch < 0:
            return False
        started_at = self._start_epochs.setdefault(second.pid, second.epoch)
        warm = not SCHEMES[scheme].runs_epochs or second.epoch - started_at >= _WARM_EPOCHS
        return warm and done[-1] - second.epoch <= _MISSING_EPOCHS

    def results(self, count: int) -> None:
        """Wait for so many further results."""
        have = len(self.sink.seen)
        self.until("results come", lambda: len(self.sink.seen) >= have + count)

    def pids(self) -> dict[str, int]:
        """The processes: the coordinator, the primary and the secondary."""
        record, engines = self.unit.record(), self.unit.engines()
        found = {"coordinator": self._command.pid}
        for name, engine in engines.items():
            found["primary" if name == record.leader else "secondary"] = engine.pid
        return found

    # -- measuring -------------------------------------------------------------------------------

    def switch_scheme(self, scheme: Scheme) -> None:
        """Switch to a scheme, and wait until it is ready and results come."""
        self.unit.switch_scheme(scheme)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the scheme in force is ready and results come."""
        self.until("the scheme is ready", lambda: self.is_ready(self.unit.record().scheme))
        self.until("the controller has an estimate", lambda: self.unit.controller().get("loads"))
        self.results(5)

    def measure_usage_of(self, seconds: float) -> tuple[dict[str, ProcessUsage], list[float]]:
        """Measure what each process uses for some time, and the times between results meanwhile."""
        pids = self.pids()
        before, started_at = {name: measure_usage(pid) for name, pid in pids.items()}, time.time()
        time.sleep(seconds)
        after = {name: measure_usage(pid) for name, pid in pids.items()}
        found = {
            name: ProcessUsage(
                now.cpu_seconds - before[name].cpu_seconds,
                now.memory_bytes,
                now.written_bytes - before[name].written_bytes,
            )
            for name, now in after.items()
        }
        times = [at for at in self.sink.times() if at >= started_at]
        return found, [late - early for early, late in pairwise(times)]

    def kill(self, scheme: Scheme) -> Kill:
        """Kill the leader at a random moment; wait until results come again."""
        time.sleep(self._draw.uniform(0.0, 1.0))
        record = self.unit.record()
        leader = record.leader or ""
        pid = self.unit.engines()[leader].pid
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        self.until("another leads", lambda: self.unit.record().leader != leader)
        # what the lost one wrote and what is repeated of it come first: new is what the next leader has decided
        self.until("it has had its first results", lambda: self._recovery_done(leader))
        self.results(2)
        after = self.unit.record()
        done = next(one for one in after.recoveries if one.lost == leader)
        last, first = outage(self.sink.times(), killed_at)
        seen_at = done.lease_at if kind_of(scheme) is not None else after.lost.get(leader, done.lease_at)
        estimated = done.estimated_seconds or 0.0
        return Kill(first - last, first - killed_at, max(seen_at - killed_at, 0.0), estimated)

    def _recovery_done(self, lost: str) -> bool:
        recoveries = [one for one in self.unit.record().recoveries if one.lost == lost]
        return any(one.first_result_at and one.estimated_seconds for one in recoveries)


def outage(times: list[float], killed_at: float) -> tuple[float, float]:
    """The longest time without a result from the last one before a kill on: when it started and when it ended."""
    first_pair = max((number for number, at in enumerate(times) if at <= killed_at), default=0)
    pairs = list(pairwise(times[first_pair:]))
    return max(pairs, key=lambda pair: pair[1] - pair[0])


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one unit."""
    return tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True)

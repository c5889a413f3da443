"""Every fault in one run on Spark, one after another and some at once, and output that is equal event for event.

An engine of SQL jobs and of functions reads files that rotate and writes to SQLite, files, HTTP and, where it is
installed, PostgreSQL. Each fault ends in one of three ways: the engine goes on by itself, it goes on without a guilty
job, or it stops with an error that names the command with which it goes on, which the run then executes.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark import Benchmark, ShowProgress
from bench.fault_app import BIG
from bench.fault_cases import FaultCases
from bench.fault_engine import FaultEngine, Feeder
from bench.findings import Finding
from bench.soak_checks import Oracle, compare_rows, numbers_of, window_rows
from bench.soak_faults import small_disk
from bench.soak_jobs import JobChanges
from bench.soak_load import make_events
from bench.soak_receiver import Receiver
from penstock.testing import postgres_server

_BENCH = "faults"
_END_SECONDS = 120.0


@dataclass(frozen=True)
class Size:
    """How long faults are injected: each once, and then at random until the time is over."""

    minutes: float = 30.0
    master: str = "local[2]"
    seed: int = 1
    #: only the faults of a short look
    quick: bool = False
    #: only those whose names contain this
    only: str = ""


QUICK = Size(minutes=2.0, quick=True)


@dataclass(frozen=True)
class FaultResult:
    """What happened after a fault, and how long it took until later events were delivered."""

    name: str
    outcome: str
    seconds: float


class Faults(Benchmark):
    """One run with every fault."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size
        self.results: list[FaultResult] = []

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        return {"every-fault": self._run}

    def _run(self) -> Iterator[Finding]:
        folder = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
        self._show_progress(f"in {folder}")
        with ExitStack() as stack:
            run = self._start(folder, stack)
            self._inject(run)
            rows = self._finish(folder, run)
        shutil.rmtree(folder, ignore_errors=True)  # after a failure it stays, for who looks for the cause
        for result in self.results:
            name = f"{result.name}: {result.outcome}"
            yield Finding(_BENCH, "every-fault", "penstock", name, "s", (result.seconds,))
        for what, count in rows.items():
            name = f"rows as the oracle: {what}"
            yield Finding(_BENCH, "every-fault", "penstock", name, "rows", (float(count),))

    def _start(self, folder: Path, stack: ExitStack) -> FaultCases:
        """Start servers, feeder and engine; all of them end with the stack."""
        can_fill = stack.enter_context(small_disk(folder / "disk", "64m"))
        (folder / "out").mkdir()
        (folder / "spans").mkdir()
        receiver = Receiver(folder / "received.jsonl")
        receiver.start()
        stack.callback(receiver.kill)
        why_not = postgres_server.why_not()
        postgres = None
        if why_not is None:
            postgres = postgres_server.PostgresServer()
            stack.callback(postgres.remove)
            postgres.start()
        else:
            self._show_progress(f"without PostgreSQL: {why_not}")
        feeder = Feeder(folder)
        stack.callback(feeder.close)
        address = "" if postgres is None else postgres.address
        engine = FaultEngine(folder, [self._size.master, receiver.url, address], feeder)
        stack.callback(engine.stop)
        self._show_progress("starting the engine")
        engine.start()
        engine.wait_until_delivered("at the start")
        draw = random.Random(self._size.seed)
        return FaultCases(folder, engine, feeder, receiver, postgres, draw, can_fill=can_fill)

    def _inject(self, run: FaultCases) -> None:
        """Each fault once, in a random order, then more of them until the time is over."""
        started, draw = time.monotonic(), random.Random(self._size.seed)
        all_faults = run.quick() if self._size.quick else run.all()
        all_faults = {name: fault for name, fault in all_faults.items() if self._size.only in name}
        names = draw.sample([*all_faults], len(all_faults))
        while names or time.monotonic() - started < 60 * self._size.minutes:
            name = names.pop(0) if names else draw.choice([*all_faults])
            time.sleep(draw.uniform(0.0, 3.0))
            self._show_progress(f"{name} ...")
            begun = time.monotonic()
            outcome = all_faults[name]()
            result = FaultResult(name, outcome, time.monotonic() - begun)
            self.results.append(result)
            self._show_progress(f"{name}: {outcome} ({result.seconds:.1f} s)")

    def _finish(self, folder: Path, run: FaultCases) -> dict[str, int]:
        """Wait until all is delivered, and compare it with the oracle."""
        self._show_progress("waiting for the last events")
        run.feeder.close()
        run.settle(_END_SECONDS)
        run.engine.stop()
        self._show_progress("comparing the output with the oracle")
        count = run.feeder.written
        oracle = Oracle(folder, run.receiver, JobChanges(), count, 0)
        twice = list(oracle.sqlite("twice", "number, other"))
        big = [event.number for event in make_events(count) if event.bytes >= BIG]
        compare_rows("twice", twice, [(number, 2 * number) for number in big])
        rows = {
            "counts in SQLite": oracle.check_counts(
                "counts in SQLite", oracle.sqlite("counts", "window_start, key, n, total")
            ),
            "counts in files": oracle.check_counts(
                "counts in files", window_rows(oracle.files("out/counts"))
            ),
            "big in SQLite": oracle.check_all("big in SQLite", oracle.numbers("big"), BIG),
            "big in files": oracle.check_all("big in files", numbers_of(oracle.files("out/big")), BIG),
            "twice": len(twice),
            "pushed": oracle.check_all("pushed", numbers_of(run.receiver.rows("/pushed")), BIG),
            "spans": run.check_spans(),
            "changed": run.check_changed(),
        }
        if run.postgres is not None:
            rows["stored in PostgreSQL"] = oracle.check_all("stored", run.stored(), BIG)
        return rows

"""The faults of the run with every fault. Each injects one, waits until later events are delivered, and says what
happened: it recovered by itself, a guilty job was left out, or the engine stopped and went on after the command that
its error names.

Left out: a restored backup of the state directory, a gateway with idle connections and a cloned agent's spool; these
have tests of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.fault_app import CHANGED, make_program
from bench.fault_engine import FaultEngine, Feeder, wait_until
from bench.processes import ROOT, environment
from bench.soak_checks import compare_rows
from bench.soak_faults import fill_disk
from bench.soak_load import make_event, make_events
from bench.soak_receiver import Receiver
from penstock.epoch.kill_points import STEPS
from penstock.errors import InternalError
from penstock.state.directory import StateDirectory
from penstock.testing.postgres_server import PostgresServer

_SPAN_LINES = 20
#: how long a sink or a disk is away, in seconds
_AWAY_SECONDS = 8.0
_SKEW_SECONDS = 3 * 86_400
#: of an engine that has to stop by itself
_STOP_SECONDS = 120.0

Fault = Callable[[], str]


class FaultCases:
    """The faults by name; and what has to be known of them at the end."""

    def __init__(
        self,
        folder: Path,
        engine: FaultEngine,
        feeder: Feeder,
        receiver: Receiver,
        postgres: PostgresServer | None,
        draw: random.Random,
        *,
        can_fill: bool,
    ) -> None:
        self._folder, self.engine, self.feeder, self.receiver = folder, engine, feeder, receiver
        self.postgres, self._draw, self._can_fill = postgres, draw, can_fill
        self._guilty = 0
        #: events of the stream of spans: how many are written, and those that nobody could read
        self._span_events, self._lost = 0, set[int]()

    def all(self) -> dict[str, Fault]:
        """Every fault by its name."""
        return {
            **self.quick(),
            **{f"kill -9 of the engine at {step}": self._kill_at(step) for step in STEPS},
            "crash in an epoch, then ALTER JOB": self._changed(
                f"ALTER JOB changed SET WHERE bytes >= {CHANGED} AND number >= 0"
            ),
            "crash in an epoch, then DROP and CREATE": self._changed(
                f"DROP JOB changed; CREATE JOB changed AS SELECT number FROM events WHERE bytes >= {CHANGED} "
                f"INTO sqlite('{self._folder}/out/changed.db', 'changed')"
            ),
            **({"a result too large for Spark": self._large_result} if self.engine.has_spark else {}),
            "a span that is gone": self._gone_span,
            "damaged runs": self._damaged_runs,
            "rotation between record and read": self._rotated_files,
            "a wall clock days ahead": lambda: self._skewed_clock(_SKEW_SECONDS),
            "a wall clock days behind": lambda: self._skewed_clock(-_SKEW_SECONDS),
            **({} if self.postgres is None else self._of_postgres(self.postgres)),
        }

    def quick(self) -> dict[str, Fault]:
        """The faults of a short look: of most no new start of Spark."""
        return {
            "kill -9 of the engine at random": self._kill,
            **({"kill -9 of Spark's workers": self._kill_workers} if self.engine.has_spark else {}),
            "a job that raises": lambda: self._guilty_job("failing", "failure"),
            "a job that takes too much memory": lambda: self._guilty_job("hogging", "memory"),
            "a slow sink": self._slow_sink,
            "a sink away": self._sink_away,
            "a locked SQLite file": self._locked,
            **({"a full disk": self._full_disk} if self._can_fill else {}),
        }

    def _of_postgres(self, server: PostgresServer) -> dict[str, Fault]:
        return {
            "PostgreSQL paused": lambda: self._postgres_paused(server),
            "PostgreSQL crashed": lambda: self._postgres_away(server, kills=False),
            "PostgreSQL crashed, and kill -9 of the engine": lambda: self._postgres_away(server, kills=True),
        }

    # -- the engine is killed --------------------------------------------------------------------

    def _kill(self) -> str:
        self.engine.kill()
        return self._restart()

    def _restart(self, **variables: str) -> str:
        self.engine.start(**variables)
        return f"recovered in {self.engine.wait_until_delivered('after a restart'):.1f} s"

    def _kill_at(self, step: str) -> Fault:
        def kill_at() -> str:
            self.engine.kill()
            self._crash(step, self.engine.last_epoch() + 3)
            return self._restart()

        return kill_at

    def _crash(self, step: str, epoch: int) -> None:
        """Start the engine, and have it killed at a step of an epoch."""
        self.engine.start(PENSTOCK_KILL_AT=f"{step}:{epoch}")
        self.engine.wait_until_ended()

    def _changed(self, sql: str) -> Fault:
        def change() -> str:
            self.engine.kill()
            self._crash(self._draw.choice(["recorded", "emitted"]), self.engine.last_epoch() + 3)
            program = make_program(self._folder, self.receiver.url, self._address)
            program.execute(sql)
            program.close()
            return self._restart()

        return change

    @property
    def _address(self) -> str:
        return "" if self.postgres is None else self.postgres.address

    def _kill_workers(self) -> str:
        workers = self.engine.workers()
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"{len(workers)} killed, {self._delivered()}"

    def _delivered(self) -> str:
        return f"recovered in {self.engine.wait_until_delivered('beside the fault'):.1f} s"

    # -- a job is guilty -------------------------------------------------------------------------

    def _guilty_job(self, function: str, what: str) -> str:
        name = self._create_guilty(function)
        with self._wanted(what):
            seconds = wait_until(f"the job {name} is left out", lambda: "failed" in self.engine.job(name))
            self.engine.wait_until_delivered("beside a guilty job")
        self.engine.execute(f"DROP JOB {name}")
        return f"left out after {seconds:.1f} s, the others went on"

    def _create_guilty(self, function: str) -> str:
        self._guilty += 1
        name = f"guilty{self._guilty}"
        self.engine.execute(f"CREATE JOB {name} AS SELECT {function}(number) AS number FROM events")
        return name

    @contextlib.contextmanager
    def _wanted(self, what: str) -> Iterator[None]:
        marker = self._folder / f"wants-{what}"
        marker.touch()
        try:
            yield
        finally:
            marker.unlink()

    def _large_result(self) -> str:
        name = self._create_guilty("enlarged")
        with self._wanted("size"):
            said = self._wait_for_stop("exclude-job")
        self._penstock("recover", "exclude-job", str(self.engine.state), name)
        outcome = self._restart()
        self.engine.execute(f"DROP JOB {name}")
        return f"stopped with {condition_of(said)}, after `penstock recover exclude-job` {outcome}"

    # -- what is outside is away -----------------------------------------------------------------

    def _slow_sink(self) -> str:
        self.receiver.set_slow("/pushed", True)
        outcome = self._delivered()
        time.sleep(_AWAY_SECONDS)
        self.receiver.set_slow("/pushed", False)
        return f"the others: {outcome}"

    def _sink_away(self) -> str:
        self.receiver.kill()
        outcome = self._delivered()
        time.sleep(_AWAY_SECONDS)
        self.receiver.start()
        return f"the others: {outcome}"

    def _locked(self) -> str:
        with contextlib.closing(
            sqlite3.connect(self._folder / "out" / "changed.db", isolation_level=None)
        ) as held:
            held.execute("BEGIN IMMEDIATE")
            outcome = self._delivered()
        return f"the others: {outcome}"

    def _full_disk(self) -> str:
        ballast = fill_disk(self._folder / "disk")
        time.sleep(_AWAY_SECONDS)
        ballast.unlink()
        return self._delivered()

    def _postgres_paused(self, server: PostgresServer) -> str:
        server.pause()
        try:
            outcome = self._delivered()
            time.sleep(_AWAY_SECONDS)
        finally:
            server.resume()
        return f"the others: {outcome}"

    def _postgres_away(self, server: PostgresServer, *, kills: bool) -> str:
        server.stop()
        try:
            outcome = self._kill() if kills else self._delivered()
        finally:
            server.start()
        return f"the others: {outcome}"

    def _skewed_clock(self, seconds: int) -> str:
        self.engine.kill()
        outcome = self._restart(PENSTOCK_BENCH_SKEW_SECONDS=str(seconds))
        self.engine.kill()
        return f"{outcome}; with the right clock again {self._restart()}"

    # -- logs and state --------------------------------------------------------------------------

    def _next_recorded(self) -> int:
        """The number of the next epoch that has no record yet."""
        return StateDirectory(self.engine.state).records.newest_epoch() + 1

    def _rotated_files(self) -> str:
        """The engine is paused after it has recorded an epoch; the files are rotated before it reads them."""
        self.engine.kill()
        epoch = self._next_recorded() + 2
        self.engine.start(PENSTOCK_STOP_AT=f"recorded:{epoch}")
        wait_until("the engine is paused", lambda: _is_stopped(self.engine.pid))
        with self.feeder.paused():
            self.feeder.files.rotate()
            self.feeder.files.write_tick()
        os.kill(self.engine.pid, signal.SIGCONT)
        return self._delivered()

    def _gone_span(self) -> str:
        self.engine.kill()
        path = self._write_span()
        lost = set(range(self._span_events - _SPAN_LINES, self._span_events))
        self._crash("recorded", self._next_recorded())
        path.unlink()
        self.engine.start()
        said = self._wait_for_stop("span")
        shown = self._penstock("recover", "show", str(self.engine.state))
        found = re.search(r"spans +(\S+)", shown)
        if found is None:
            raise InternalError("BENCH_FAILED", "`penstock recover show` lists no span", detail=shown)
        self._penstock(
            *("recover", "skip-span", str(self.engine.state), "--stream", "spans", "--partition", found[1])
        )
        self._lost |= lost
        names = "which it names" if "skip-span" in said else "which its error DOES NOT NAME"
        outcome = self._restart()
        self._write_span()
        return f"stopped with {condition_of(said)}, after `penstock recover skip-span`, {names}, {outcome}"

    def _write_span(self) -> Path:
        path = self._folder / "spans" / f"part{self._span_events}.log"
        numbers = range(self._span_events, self._span_events + _SPAN_LINES)
        events = (make_event(number)._asdict() for number in numbers)
        path.write_text("".join(f"{json.dumps(event, default=str)}\n" for event in events))
        self._span_events += _SPAN_LINES
        return path

    def _damaged_runs(self) -> str:
        self.engine.kill()
        state = StateDirectory(self.engine.state)
        newest = state.manifests.latest()
        older = state.manifests.read(newest.epoch - 1).runs()
        runs = [run for run in newest.runs() if run not in older]
        for run in runs:
            _damage(state.runs / run)
        self.engine.start()
        said = self._wait_for_stop("rollback")
        self._penstock("state", "rollback", str(self.engine.state))
        outcome = self._restart()
        return f"{len(runs)} damaged, stopped with {condition_of(said)}, after `penstock state rollback` {outcome}"

    def _wait_for_stop(self, command: str) -> str:
        """Wait until the engine has stopped with an error that names a command; returns what it said."""
        wait_until(f"the engine stops and names {command}", self.engine.has_ended, _STOP_SECONDS)
        return self.engine.wait_until_ended()

    def _penstock(self, *arguments: str) -> str:
        """Execute a command as a person would; returns what it says."""
        done = subprocess.run(
            [sys.executable, "-c", "from penstock.cli.commands import main; main()", *arguments],
            cwd=ROOT,
            env=environment(COLUMNS="200"),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise InternalError(
                "BENCH_FAILED", f"penstock {' '.join(arguments)} failed", detail=done.stdout + done.stderr
            )
        return done.stdout

    # -- at the end ------------------------------------------------------------------------------

    def settle(self, seconds: float) -> None:
        """Wait until every sink has what is written, or that time is over: then the oracle says what is missing."""
        big = max(event.number for event in make_events(self.feeder.written) if event.bytes >= 900)
        self.engine.wait_until_delivered_event(big)

        def is_delivered() -> bool:
            numbers = [row["number"] for row in self.receiver.rows("/pushed")]
            return big in numbers and (self.postgres is None or big in self.stored())

        with contextlib.suppress(InternalError):
            wait_until("all sinks have everything", is_delivered, seconds)

    def stored(self) -> list[int]:
        """The rows in PostgreSQL."""
        import psycopg

        with psycopg.connect(self._address) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM stored")]

    def _rows(self, name: str) -> list[int]:
        with contextlib.closing(sqlite3.connect(self._folder / "out" / f"{name}.db")) as database:
            try:
                return [number for (number,) in database.execute(f"SELECT number FROM {name}")]
            except sqlite3.OperationalError:
                return []

    def check_spans(self) -> int:
        """All events of the stream of spans but those that nobody could read."""
        found = self._rows("spans")
        compare_rows("spans", found, set(range(self._span_events)) - self._lost)
        return len(found)

    def check_changed(self) -> int:
        """All events of the job that is changed after crashes."""
        found = self._rows("changed")
        events = make_events(self.feeder.written)
        compare_rows("changed", found, [event.number for event in events if event.bytes >= CHANGED])
        return len(found)


def condition_of(said: str) -> str:
    """The condition of the last error in what an engine has said."""
    found = re.findall(r"^\[([A-Z_]+)\]", said, re.MULTILINE)
    return str(found[-1]) if found else "an error without a condition"


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _damage(path: Path) -> None:
    """Overwrite the middle of a file."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * min(64, size - size // 2))

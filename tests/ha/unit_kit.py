"""Runs a unit of real engine processes over two files that grow.

The engines run without Spark (`master="inline"`) by default: then an engine starts in a second or two, and
everything but Spark is as it is. The coordinator is a process of its own: `tests.ha.coordinating`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.load_app import load
from penstock.errors import ExternalError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord, unit_name
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine, run_inline
from penstock.testing.three_ways import Rows, rows_below
from tests import golden_query as golden

APP = """
import polars as pl
import penstock as ps

decoder = ps.Delimited(
    {{"time": pl.Datetime("us", "UTC"), "user": pl.String(), "page": pl.String(), "amount": pl.Float64()}},
    times={{"time": "%Y-%m-%dT%H:%M:%S%.f%:z"}},
)
events = ps.stream("events", ps.files({pattern!r}), decoder, time="time", lateness="5s", idle_after=None)
counts = events.key_by("page").window("10s").count("visits")
paths = events.key_by("user").last(3, "page").map(path=ps.col("page").list.join(">"))
app = ps.app(
    "golden",
    ps.output("paths", paths.select("user", "path"), ps.jsonl({out!r} + "/paths")),
    ps.output("counts", counts, ps.jsonl({out!r} + "/counts"), ps.sqlite({out!r} + "/out.db", "counts")),
)
"""
#: the same events for managed jobs; `risky` raises in the process whose id is in a file, or in all others
JOBS = """
import os
import pathlib
import polars as pl
import penstock as ps

decoder = ps.Delimited(
    {{"time": pl.Datetime("us", "UTC"), "user": pl.String(), "page": pl.String(), "amount": pl.Float64()}},
    times={{"time": "%Y-%m-%dT%H:%M:%S%.f%:z"}},
)
events = ps.stream("events", ps.files({pattern!r}), decoder, time="time", lateness="5s", idle_after=None)
out = {out!r}
marked = pathlib.Path({pattern!r}).parents[1] / "fails"


def risky(values: pl.Series) -> pl.Series:
    mark, own = marked.read_text() if marked.exists() else "", str(os.getpid())
    if mark == own or (mark.startswith("not ") and mark != f"not {{own}}"):
        raise ValueError("not in this process")
    return values


SQL = f'''
CREATE JOB everything AS SELECT time, user, page, amount FROM events INTO jsonl('{{out}}/everything');
CREATE JOB counts AS SELECT page, window_end, COUNT(*) AS visits FROM events GROUP BY page WINDOWING 10 SECONDS
    INTO jsonl('{{out}}/counts'), sqlite('{{out}}/out.db', 'counts');
CREATE JOB sessions RECOVERY gap AS SELECT user, window_end, COUNT(*) AS n, SUM(amount) AS sum FROM events
    GROUP BY user WINDOWING SESSION 2 SECONDS INTO jsonl('{{out}}/sessions');
CREATE JOB totals AS SELECT page, SUM(visits) AS visits FROM counts GROUP BY page WINDOWING 1 MINUTE
    INTO jsonl('{{out}}/totals')
'''
functions = {{"risky": lambda user: user.map_batches(risky, return_dtype=pl.String)}}
app = ps.jobs_app("golden", SQL, streams={{"events": events}}, functions=functions)
"""
#: longer than a busy machine stalls; the coordinator sees at once when a process that it started ends
LEASE_SECONDS = 6.0
#: how long a test waits for a condition, on a busy machine
PATIENCE_SECONDS = 60.0


class Feeder:
    """Appends a few lines to the files at a time, as a live source does."""

    def __init__(
        self, folder: Path, count: int, pause_seconds: float, at_once: int = 3, second: Path | None = None
    ) -> None:
        self._lines = golden.lines(count=count)
        #: the second copy lags behind the first and interleaves the files' lines in the other order
        self.folders = [folder] if second is None else [folder, second]
        for copy in self.folders:
            copy.mkdir(parents=True)
            for name in self._lines:
                (copy / f"{name}.log").touch()
        self._pause, self._at_once = pause_seconds, at_once
        self._appending = threading.Lock()
        if second is not None:  # else the file that is seen first would decide their identity
            for copy in self.folders:
                self._append(copy, list(self._lines), 0)
        self._started = threading.Event()
        self._hurry = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def start(self) -> None:
        self._started.set()

    def stop(self) -> None:
        """Append nothing more."""
        self._over.set()
        self._hurry.set()
        self._started.set()
        self._thread.join()

    def remove_copy(self, copy: int) -> None:
        """Remove a copy for good."""
        with self._appending:
            shutil.rmtree(self.folders[copy])

    def finish(self) -> None:
        """Append the rest at once."""
        self._hurry.set()
        self._started.set()
        self._thread.join()

    def _feed(self) -> None:
        self._started.wait()
        longest = max(map(len, self._lines.values()))
        for first in range(0 if len(self.folders) == 1 else self._at_once, longest, self._at_once):
            if self._over.is_set():
                return
            self._append(self.folders[0], list(self._lines), first)
            if len(self.folders) == 1:
                self._hurry.wait(self._pause)
                continue
            self._hurry.wait(self._pause / 2)
            self._append(self.folders[1], list(self._lines)[::-1], first)
            self._hurry.wait(self._pause / 2)

    def _append(self, folder: Path, names: list[str], first: int) -> None:
        with self._appending:
            for name in names if folder.exists() else ():
                with open(folder / f"{name}.log", "a") as file:
                    file.writelines(f"{line}\n" for line in self._lines[name][first : first + self._at_once])


class Kit:
    """A unit under test; call `close` at the end."""

    def __init__(
        self,
        folder: Path,
        scheme: Scheme,
        *,
        count: int = 1_500,
        pause_seconds: float = 0.2,
        master: str = "inline",
        lease_seconds: float = LEASE_SECONDS,
        recovery: dict[str, Any] | None = None,
        coordination: str | None = None,
        environment: Mapping[str, str] | None = None,
        state: Path | None = None,
        copies: bool = False,
        blind: str | None = None,
        app: str = APP,
        **settings: Any,
    ) -> None:
        self.folder, self.out = folder, folder / "out"
        second = folder / "second" if copies else None
        self.feeder = Feeder(folder / "in", count, pause_seconds, second=second)
        self._environment = dict(environment or {})
        self.root = state or folder / "state"
        self.root.mkdir()
        first, last = self.feeder.folders[0], self.feeder.folders[-1]
        for name, out, read in (
            ("app.py", self.out, self.feeder.folders),
            ("straight.py", folder / "straight", [last, last]),
        ):
            text = app.format(pattern=str(first / "*.log"), out=str(out))
            if copies:
                # the blind engine reads folders of its own, which link to the files that it sees
                logs = ", ".join(f"ps.files({str(one)!r} + HERE + '/*.log')" for one in read)
                text = text.replace(f"ps.files({str(first / '*.log')!r})", f"ps.replicated({logs})")
                text = f"import sys\nHERE = '-blind' if {blind!r} in sys.argv else ''\n{text}"
            (folder / name).write_text(text)
        launch = Launch(
            unit_name("golden", self.root),
            coordination or str(self.root / "ha" / "coordination"),
            str(folder / "app.py"),
            str(folder),
            master=master,
            lease_seconds=lease_seconds,
            recovery=recovery or {},
            settings={
                "job_share": 0.0,
                "first_epoch_units": 3_000,
                "epoch_interval_seconds": 0.05,
                **settings,
            },
        )
        self.unit = Unit.create(self.root, launch)
        controlled = "threshold_seconds" in launch.recovery
        self.unit.create_record(
            UnitRecord(
                scheme,
                str(self.unit.root),
                controlled=controlled,
                checkpoint_every=settings.get("checkpoint_every", 1),
            )
        )
        self.coordinator: subprocess.Popen[bytes] | None = None
        self.start_coordinator()

    # -- actions ----------------------------------------------------------------------------------

    def start_coordinator(self) -> None:
        with open(self.folder / "coordinator.log", "ab") as log:
            self.coordinator = subprocess.Popen(
                [sys.executable, "-m", "tests.ha.coordinating", str(self.root)],
                cwd=Path(__file__).parents[2],
                env=os.environ
                | self._environment
                | {
                    "PYTHONPATH": os.pathsep.join(
                        filter(None, [self._environment.get("PYTHONPATH"), *sys.path])
                    )
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill_coordinator(self) -> None:
        assert self.coordinator is not None
        self.coordinator.kill()
        self.coordinator.wait()

    def kill(self, name: str) -> None:
        """SIGKILL to an engine's process."""
        os.kill(self.engines()[name].pid, signal.SIGKILL)

    def replace_leader(self, seconds: float = PATIENCE_SECONDS) -> str:
        """Kill the leader and wait for another one; return that one's name."""
        first = self.leader()
        assert first is not None
        self.kill(first)
        found = self.wait_until(
            "another leads", lambda: self.leader() not in (None, first) and self.leader(), seconds
        )
        return str(found)

    def close(self) -> None:
        """Stop everything; kill by process id what does not stop."""
        self.feeder.stop()
        engines = self.engines()
        self.unit.change(lambda now: UnitRecord(**vars(now) | {"phase": "stopping"}))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.engines():
            time.sleep(0.1)
        for engine in {**engines, **self.engines()}.values():
            try:
                os.kill(engine.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if self.coordinator is not None:
            try:
                self.coordinator.wait(10)
            except subprocess.TimeoutExpired:
                self.kill_coordinator()
        self.unit.close()

    # -- observations ---------------------------------------------------------------------------

    def record(self) -> UnitRecord:
        return self.unit.record()

    def engines(self) -> dict[str, UnitEngine]:
        return self.unit.engines()

    def leader(self) -> str | None:
        """The engine that leads, once it reports so itself."""
        record, engines = self.record(), self.engines()
        name = record.leader
        return name if name in engines and engines[name].phase == "primary" else None

    def follower(self, *phases: str) -> str | None:
        """The engine that does not lead, if it is in one of these phases."""
        leader = self.leader()
        for name, engine in self.engines().items():
            if leader is not None and name != leader and engine.phase in (phases or ("ready", "following")):
                return name
        return None

    def epoch(self) -> int:
        """The last epoch that is recorded."""
        return max(self.unit.shared_records.epochs(), default=-1)

    def wait_until(self, what: str, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ExternalError):  # the store may be away for a while, for us as well
                if found := condition():
                    return found
            if time.monotonic() >= deadline:
                raise AssertionError(f"waited {seconds:g} s until {what}\n{self.read_logs()}")
            time.sleep(0.05)

    def wait_for_epochs(self, epochs: int = 3) -> None:
        """Wait until so many further epochs are recorded."""
        start = self.epoch()
        self.wait_until("epochs continue", lambda: self.epoch() >= start + epochs)

    def read_logs(self) -> str:
        """The logs of all processes, after the unit's record."""
        logs = sorted([*(self.root / "ha" / "logs").glob("*.log"), self.folder / "coordinator.log"])
        shown = "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in logs if log.exists())
        return f"{self.record()}\n{self.engines()}\n{shown}"

    def expected_output(self) -> Rows:
        """The output of an undisturbed run, an app's in one epoch; the files must be complete."""
        app, state = load(self.folder / "straight.py"), self.folder / "straight-state"
        if isinstance(app, JobsApp):
            engine = InlineEngine(app.on(state), state, epoch_units=12_000)
            for _ in engine.steps():
                pass
            engine.close()
        else:
            run_inline(app, state)
        return rows_below(self.folder / "straight") | side_output(self.folder / "straight-state")

    def output(self) -> Rows:
        return rows_below(self.out) | side_output(self.root)

    def finish(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Append the rest of the input and check that the output is that of an undisturbed run."""
        self.feeder.finish()
        expected = self.expected_output()
        deadline = time.monotonic() + seconds
        while (found := self.output()) != expected:
            short = {name: (len(found.get(name, [])), len(rows)) for name, rows in expected.items()}
            assert time.monotonic() < deadline, f"found, expected: {short}\n{self.read_logs()}"
            time.sleep(0.2)
        state = StateDirectory(Path(self.record().directory))
        generations = [state.manifests.read(epoch).generation for epoch in state.manifests.epochs()]
        assert generations == sorted(generations)


def side_output(state: Path) -> Rows:
    """Dead letters and late events."""
    return {
        f"{why}-{name}": rows for why in ("dead", "late") for name, rows in rows_below(state / why).items()
    }

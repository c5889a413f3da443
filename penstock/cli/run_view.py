"""Views of a running engine: a live screen for a terminal, plain lines for a pipe, or next to nothing.

Receives phases and epoch reports from the engine's threads; hands text to the standard output.

Invariant: a view never stops the stream; when nobody reads the pipe any more, it falls silent.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.status import Status

from penstock.cli.formatting import amount, seconds, size
from penstock.cli.screen import Facts, screen
from penstock.engine.engine import Engine
from penstock.engine.gauges import Gauges
from penstock.epoch.runner import EpochReport
from penstock.sinks.console import Console as ConsoleSink

#: a pipe gets a line this often, in seconds
LINE_SECONDS = 5.0
#: and, during an epoch that takes long, this often
LONG_SECONDS = 10.0
_PHASES = {
    "starting Spark": "starting Spark (ten seconds or so)",
    "warming up": "warming up the Python workers",
    "running": "ready",
}


def view_for(engine: Engine, console: Console, for_seconds: float | None) -> Lines | Screen:
    """The view that fits the console and the app's own sinks."""
    shows_itself = any(isinstance(s, ConsoleSink) for out in engine.plan.outputs.values() for s in out.sinks)
    if console.is_interactive and not shows_itself:
        return Screen(engine, console, for_seconds)
    return Lines(engine, console, quiet=shows_itself)


class Lines:
    """A line now and then."""

    def __init__(self, engine: Engine, console: Console, *, quiet: bool = False) -> None:
        self.gauges = Gauges()
        self._engine = engine
        self._console = console
        self._quiet = quiet
        self._told_at = 0.0
        self._began = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def phase(self, name: str) -> None:
        self._tell(f"{self._passed()}  {_PHASES.get(name, name)}")
        if name == "running":
            self.gauges.began()
            if not self._quiet:
                threading.Thread(target=self._tell_long_epochs, name="penstock-view", daemon=True).start()

    def epoch(self, report: EpochReport) -> None:
        self.gauges.add(report)
        if not self._quiet and time.monotonic() - self._told_at >= LINE_SECONDS:
            self._told_at = time.monotonic()
            self._tell(self._line(report))

    def _tell_long_epochs(self) -> None:
        """Say now and then that an epoch is still under way, until the view ends."""
        epoch, since, told = -1, 0.0, 0
        while not self._ended.wait(LONG_SECONDS / 10):
            admission, now = self._engine.admission, time.monotonic()
            admitted = -1 if admission is None else admission.last_admitted
            if admitted <= self._engine.last_epoch or admitted != epoch:
                epoch, since, told = admitted, now, 0
            elif now - since >= LONG_SECONDS * (told + 1):
                told += 1
                self._tell(f"{self._passed()}  epoch {epoch} has been under way for {now - since:.0f} s")

    def _line(self, report: EpochReport) -> str:
        latency = self.gauges.latency(recent=True)
        parts = [
            f"epoch {report.epoch}",
            f"{self.gauges.events:,} events",
            f"{self.gauges.rate():,.0f}/s",
            f"latency p50 {seconds(latency.p50)} p99 {seconds(latency.p99)}" if latency else "",
            *(f"backlog {name} {amount(count, unit)}" for name, count, unit in backlog(self._engine)),
            f"state {size(report.state_bytes)}",
            f"{self.gauges.late:,} late" if self.gauges.late else "",
            f"{self.gauges.bad:,} dead" if self.gauges.bad else "",
        ]
        return f"{self._passed()}  " + "  ".join(part for part in parts if part)

    def _passed(self) -> str:
        return f"{time.monotonic() - self._began:6.1f} s"

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
            self._console.file.flush()


class Screen:
    """The live screen, drawn anew four times a second."""

    def __init__(self, engine: Engine, console: Console, for_seconds: float | None) -> None:
        self.gauges = Gauges()
        self._engine = engine
        self._console = console
        self._for_seconds = for_seconds
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._status: Status | None = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
        if self._live is not None:
            self._live.stop()

    def phase(self, name: str) -> None:
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        if name != "running":
            self._status.update(_PHASES.get(name, name))
            return
        self._status.stop()
        self._console.print(f"[dim]ready after {time.monotonic() - self._began:.0f} s[/]", highlight=False)
        self.gauges.began()
        self._began = time.monotonic()
        self._live = Live(self, console=self._console, refresh_per_second=4, vertical_overflow="crop")
        self._live.start()

    def epoch(self, report: EpochReport) -> None:
        with self._lock:
            self.gauges.add(report)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            yield self._drawn(options.max_width, console.height)

    def _drawn(self, width: int, height: int) -> RenderableType:
        plan = self._engine.plan
        waiting = list(backlog(self._engine))
        facts = Facts(
            name=plan.name,
            phase="running",
            passed_seconds=time.monotonic() - self._began,
            for_seconds=self._for_seconds,
            backlog={name: count for name, count, _ in waiting},
            units={name: unit for name, _, unit in waiting},
            target_seconds=self._engine.settings.epoch_seconds,
            outputs=tuple(plan.outputs),
        )
        return screen(self.gauges, facts, width, height)


def backlog(engine: Engine) -> Iterator[tuple[str, int, str]]:
    """How much waits in the log of each stream that is read, and in which unit."""
    scans = engine.plan.scans  # of the epoch that was last carried out: jobs come and go
    if engine.admission is not None:
        for name, count in dict(engine.admission.backlog).items():
            if name in scans:
                yield name, count, scans[name].stream.log.unit

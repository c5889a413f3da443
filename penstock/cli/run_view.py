"""Shows a running engine: a live screen on a terminal, lines in a pipe, or hardly anything if the app prints itself.

A view never stops the stream: when nobody reads the pipe any more, it prints nothing.
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

from penstock.cli.screen import Facts, draw_screen
from penstock.engine.engine import Engine
from penstock.engine.gauges import Gauges
from penstock.epoch.runner import EpochReport
from penstock.formatting import amount, seconds, size
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


def view_for(engine: Engine, console: Console, for_seconds: float | None) -> LineView | ScreenView:
    """The view that fits the console and the app's own sinks."""
    app_prints = any(isinstance(s, ConsoleSink) for out in engine.plan.outputs.values() for s in out.sinks)
    if console.is_interactive and not app_prints:
        return ScreenView(engine, console, for_seconds)
    return LineView(engine, console, quiet=app_prints)


class LineView:
    """Prints a line every few seconds."""

    def __init__(self, engine: Engine, console: Console, *, quiet: bool = False) -> None:
        self.gauges = Gauges()
        self._engine = engine
        self._console = console
        self._quiet = quiet
        self._printed_at = 0.0
        self._started_at = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> LineView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def phase(self, name: str) -> None:
        self._print(f"{self._elapsed()}  {_PHASES.get(name, name)}")
        if name == "running":
            self.gauges.start()
            if not self._quiet:
                threading.Thread(target=self._report_long_epochs, name="penstock-view", daemon=True).start()

    def epoch(self, report: EpochReport) -> None:
        self.gauges.add(report)
        if not self._quiet and time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            self._print(self._line(report))

    def _report_long_epochs(self) -> None:
        """Report now and then that an epoch is still under way, until the view ends."""
        epoch, since, reports = -1, 0.0, 0
        while not self._ended.wait(LONG_SECONDS / 10):
            admission, now = self._engine.admission, time.monotonic()
            admitted = -1 if admission is None else admission.last_admitted
            if admitted <= self._engine.last_epoch or admitted != epoch:
                epoch, since, reports = admitted, now, 0
            elif now - since >= LONG_SECONDS * (reports + 1):
                reports += 1
                self._print(f"{self._elapsed()}  epoch {epoch} has been under way for {now - since:.0f} s")

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
            f"{self.gauges.dead_letters:,} dead" if self.gauges.dead_letters else "",
        ]
        return f"{self._elapsed()}  " + "  ".join(part for part in parts if part)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started_at:6.1f} s"

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
            self._console.file.flush()


class ScreenView:
    """Draws the live screen four times a second."""

    def __init__(self, engine: Engine, console: Console, for_seconds: float | None) -> None:
        self.gauges = Gauges()
        self._engine = engine
        self._console = console
        self._for_seconds = for_seconds
        self._started_at = time.monotonic()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._status: Status | None = None

    def __enter__(self) -> ScreenView:
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
        self._console.print(
            f"[dim]ready after {time.monotonic() - self._started_at:.0f} s[/]", highlight=False
        )
        self.gauges.start()
        self._started_at = time.monotonic()
        self._live = Live(self, console=self._console, refresh_per_second=4, vertical_overflow="crop")
        self._live.start()

    def epoch(self, report: EpochReport) -> None:
        with self._lock:
            self.gauges.add(report)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            yield self._draw(options.max_width, console.height)

    def _draw(self, width: int, height: int) -> RenderableType:
        plan = self._engine.plan
        waiting = list(backlog(self._engine))
        facts = Facts(
            name=plan.name,
            phase="running",
            elapsed_seconds=time.monotonic() - self._started_at,
            for_seconds=self._for_seconds,
            backlog={name: count for name, count, _ in waiting},
            units={name: unit for name, _, unit in waiting},
            target_seconds=self._engine.settings.epoch_seconds,
            outputs=tuple(plan.outputs),
        )
        return draw_screen(self.gauges, facts, width, height)


def backlog(engine: Engine) -> Iterator[tuple[str, int, str]]:
    """How much waits in the log of each stream that is read, with its unit."""
    scans = engine.plan.scans  # of the last executed epoch: jobs come and go
    if engine.admission is not None:
        for name, count in dict(engine.admission.backlog).items():
            if name in scans:
                yield name, count, scans[name].stream.log.unit

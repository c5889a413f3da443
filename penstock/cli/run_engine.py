"""Runs an engine in a terminal, for `run` and `demo`: with a view, Ctrl-C and a summary at the end.

Guarantees: the first Ctrl-C (or SIGTERM) lets the epoch under way end and then returns normally; the second stops at
once. Either way the next start continues where this one stopped.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from rich.console import Console
from rich.text import Text

from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.cli.dashboard_address import dashboard_address, opened_in_browser
from penstock.cli.demo_service import serve_dashboard
from penstock.cli.run_view import view_for
from penstock.cli.summary import failed_jobs, summary
from penstock.engine.engine import Engine
from penstock.engine.job_server import JobServer
from penstock.engine.status_server import StatusServer
from penstock.epoch.runner import EpochReport
from penstock.query.logical import App
from penstock.server.host import Host
from penstock.settings import Settings


def serve(
    app: App | JobsApp,
    settings: Settings,
    *,
    for_seconds: float | None,
    again: str,
    ui: bool = False,
) -> None:
    """Run until the time is up, everything is read, or a signal stops it. `again` is the command that continues the
    run; with `ui` the dashboard is served too."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # do not break lines in a file
    program = program_of(app, settings.state)
    engine = Engine(program, settings)
    stopping = StopSignals(engine)
    is_running = False
    try:
        with (
            stopping.signals(),
            view_for(engine, console, for_seconds) as view,
            contextlib.ExitStack() as listening,
        ):
            hosted = None
            if ui:
                hosted = listening.enter_context(_shown_dashboard(engine, program, console))

            def epoch(report: EpochReport) -> None:
                view.epoch(report)
                if hosted is not None:
                    hosted.add_epoch(report)

            def show_phase(phase: str) -> None:
                nonlocal is_running
                is_running = phase == "running"
                if phase == "starting Spark" and (lines := failed_jobs(program.catalogue)):
                    console.print(lines, markup=False, highlight=False, soft_wrap=True)
                if is_running:
                    listening.enter_context(JobServer(program, settings.state))
                    listening.enter_context(StatusServer(engine))
                if phase != "starting Spark":
                    stopping.take_signals()  # pyspark has replaced our handlers
                if hosted is not None:
                    if hosted.phase == "starting":
                        hosted.open(engine.state.manifests.latest().epoch)
                    hosted.enter_phase(phase)
                view.phase(phase)

            run = engine.run(epoch, for_seconds=for_seconds, on_phase=show_phase)
    except KeyboardInterrupt:
        if not is_running:
            console.print("Stopped before the first epoch.")
            return
        console.print("Stopped at once; the next start repeats the epoch that was under way.")
        raise SystemExit(130) from None
    console.print(summary(engine, run, view.gauges, stopped=stopping.is_requested))
    # one line of any length, so that it can be copied
    console.print(Text(f"continue with: {again}"), soft_wrap=True)


@contextlib.contextmanager
def _shown_dashboard(engine: Engine, program: Program, console: Console) -> Iterator[Host]:
    """Serve the dashboard, print its address and, on a desktop, open it."""
    with serve_dashboard(engine, program) as (server, hosted):
        address = dashboard_address(server, on_terminal=console.is_terminal)
        console.print(f"dashboard: {address}", markup=False, highlight=False, soft_wrap=True)
        with opened_in_browser(address) if console.is_terminal else contextlib.nullcontext():
            yield hosted


class StopSignals:
    """Turns signals into a request to stop the engine."""

    def __init__(self, engine: Engine) -> None:
        self.is_requested = False
        self._engine = engine
        self._ready = False

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within a `with` block, SIGINT and SIGTERM stop the engine."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._install()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def take_signals(self) -> None:
        """Take the signals again; from now on the first one lets the epoch under way end."""
        self._ready = True
        if threading.current_thread() is threading.main_thread():
            self._install()

    def _install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested or not self._ready:
            logging.disable()  # py4j would log the interrupt with a traceback
            raise KeyboardInterrupt
        self.is_requested = True
        # not from here: the main thread may hold the lock that stop() needs
        threading.Thread(target=self._engine.stop).start()

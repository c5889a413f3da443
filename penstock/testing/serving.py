"""Serves an app without Spark: the inline engine on a thread, behind the real API on a port of this machine.

For tests of the API and of clients. Host, server and subscriptions are those of `penstock serve`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.moved import former_parameters
from penstock.query.logical import App
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.limits import Limits
from penstock.server.statement_guard import StatementGuard
from penstock.server.tokens import Tokens
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog


class PushedLog(ListLog):
    """A list of lines that the service can append to."""

    def __init__(self, lines: Sequence[str] = ()) -> None:
        super().__init__(lines, finished=False)
        self._seen: set[tuple[str, int]] = set()

    def take(self, records: Sequence[bytes], producer: str | None, sequence: int | None) -> int:
        if producer is not None and sequence is not None:
            if (producer, sequence) in self._seen:
                return 0
            self._seen.add((producer, sequence))
        self.add("p0", *(record.decode("utf-8", "surrogateescape") for record in records))
        return len(records)


class Serving:
    """A running service. `step` runs an epoch, if the engine does not run by itself."""

    def __init__(self, url: str, service: Service, engine: InlineEngine) -> None:
        self.url, self.service, self.host, self._engine = url, service, service.host, engine

    def step(self) -> bool:
        """Run an epoch if there is a reason for one; returns whether there was."""
        report = self._engine.step()
        if report is not None:
            self.host.add_epoch(report)
        return report is not None

    def remove_old_state(self, keep: int) -> None:
        """Remove old state and results, as an engine does every ten epochs."""
        self._engine.remove_old_state(keep)

    def steps(self) -> None:
        """Run epochs until everything is read for now."""
        while self.step():
            pass


# over 8 parameters: a test sets one or two of them
@former_parameters(program="app")
@contextmanager
def serving(
    app: App | Program,
    state: Path,
    *,
    by_itself: bool = True,
    limits: Limits | None = None,
    token: str | Path | None = None,
    files: Sequence[Path] = (),
    port: int = 0,
    epoch_units: int = 1 << 40,
    pace: Callable[[], bool] = lambda: True,
    code: bool = False,
) -> Iterator[Serving]:
    """Serve an app or a program on a free port. `by_itself`: epochs run on a thread, whenever `pace` returns True.
    `token`: a token, or the path of a file of tokens."""
    program = program_of(app, state) if isinstance(app, App) else app
    host = Host(program, state, StatementGuard(files, state, code=code))
    engine = InlineEngine(program, state, epoch_units=epoch_units)
    stop = threading.Event()
    tokens = Tokens.of_file(token) if isinstance(token, Path) else token and Tokens.of_text(token)
    service = Service(host, limits, tokens or None)
    try:
        host.open(engine.next_epoch - 1)
        with Server(service, "127.0.0.1", port) as server:
            running = Serving(server.url, service, engine)
            host.enter_phase("running")

            def run() -> None:
                while not stop.is_set():
                    if not (pace() and running.step()):
                        stop.wait(0.01)

            thread = threading.Thread(target=run, name="penstock-inline", daemon=True)
            if by_itself:
                thread.start()
            try:
                yield running
            finally:
                stop.set()
                if by_itself:
                    thread.join()
                host.end()
    finally:
        host.close()
        engine.close()

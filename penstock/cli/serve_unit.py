"""`penstock serve --ha`: coordinates an HA unit and serves the results of its engines over HTTP, in one process.

Guarantees: it executes no epochs. A statement is durable in the unit's command log before it is answered, whether there
is a leader or not. If this process is killed, the engines keep running; the next one finds them, and subscribers
continue after the last epoch they have.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.catalogue.coordinators import coordinator as as_coordinator
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.cli.service_options import Door, join_coordinators
from penstock.cli.unit import check_ended, describe_unit, open_unit, stop_by_signal, watch_unit
from penstock.engine.job_server import JobServer
from penstock.errors import PenstockError, UserError
from penstock.ha.claim import prepare_launch
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.nodes import cancel_requests, start_on_node
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit
from penstock.query.logical import App
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.middleware import PAGES
from penstock.server.statement_guard import StatementGuard
from penstock.server.structured_log import log, log_as_json
from penstock.server.unit_follower import UnitFollower
from penstock.state.directory import SHARED, StateDirectory

#: how often it checks whether the first engine has created the state
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Spread:
    """The coordination store at which this process shares the management of jobs, if any, and its name there."""

    where: str | None
    name: str | None


def serve_ha(
    app: App | JobsApp,
    place: Path,
    launch: Launch,
    scheme: Scheme | None,
    *,
    door: Door,
    guard: StatementGuard,
    pages: Callable[[Service], None] | None,
    for_seconds: float | None,
    spread: Spread,
) -> None:
    """Coordinate a unit and serve its results, until it is done or stopped."""
    _refuse_unserved(place)
    program = program_of(app, place, keeps_results=True, follows=True)
    StateDirectory(place).refuse_another(program.fingerprint, program.summary, program.former_fingerprint)
    hosted = Host(program, place, guard)
    hosted.unit_status = watch_unit(place)
    log_as_json()
    with door.server(hosted, pages) as server, open_unit(place, launch, scheme) as unit:
        shown = None if pages is None else f"{server.url}{PAGES}/"
        log("listening", url=server.url, dashboard=shown, state=str(place), token=door.token is not None)
        door.warn()
        log(describe_unit(unit))
        program.join(begin=True)
        coordinator = Coordinator(unit, start_on_node, log, cancel_requests, prepare_launch(unit, scheme))
        stop_by_signal(coordinator)
        try:
            with UnitFollower(Unit.at(place), hosted), _commanded(program, hosted, server, door, spread):
                ended = coordinator.run(for_seconds)
            check_ended(unit, ended)
            if ended.phase == "running":
                log("another coordinator is active; the engines keep running", logging.WARNING)
            log("ended", phase=ended.phase, epochs=hosted.committed + 1, recoveries=len(ended.recoveries))
        except PenstockError as error:
            log("failed", logging.ERROR, condition=error.condition, error=error.text())
            raise
        except KeyboardInterrupt:
            log("stopped at once; the engines keep running", logging.WARNING)
            raise SystemExit(130) from None
        finally:
            hosted.end()


def _refuse_unserved(place: Path) -> None:
    """Refuse a unit whose engines were started without a service: they read no commands and retain no results."""
    if not (place / SHARED / "unit.json").exists():
        return
    unit = Unit.at(place)
    try:
        up = [name for name, member in unit.members().items() if member.seems_up]
        if up and not unit.launch.served:
            raise UserError(
                "UNIT_NOT_SERVED",
                f"these engines of the unit on {place} were started without a service: {', '.join(up)}",
                hint=f"Stop them first: penstock ha stop --state {place}.",
            )
    finally:
        unit.close()


@contextlib.contextmanager
def _commanded(program: Program, hosted: Host, server: Server, door: Door, spread: Spread) -> Iterator[None]:
    """Accept commands at a local socket too, and share the management of jobs if a store is given."""
    me, where, over = as_coordinator(spread.name, server.url), spread.where, threading.Event()

    def share() -> None:
        while not over.wait(_POLL_SECONDS):
            if StateDirectory(hosted.state).read_facts() is not None:  # the first engine creates it
                with join_coordinators(where or "", server, hosted, me, door):
                    over.wait()

    sharing = threading.Thread(target=share, name="penstock-sharing", daemon=True)
    with JobServer(program, hosted.state, me.name):
        if where is not None:
            sharing.start()
        try:
            yield
        finally:
            over.set()
            if where is not None:
                sharing.join(timeout=10)

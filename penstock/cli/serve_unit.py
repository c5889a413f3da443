"""`penstock serve --ha`: coordinates an HA unit and serves the results of its engines over HTTP, in one process.

Guarantees: it executes no epochs. A statement is durable in the unit's command log before it is answered, whether there
is a leader or not. If this process is killed, the engines keep running; the next one finds them, and subscribers
continue after the last epoch they have.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from penstock.catalogue.coordinators import coordinator as as_coordinator
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.cli.service_options import ServiceSettings, join_coordinators
from penstock.cli.unit import check_ended, describe_unit, open_unit, stop_by_signal, watch_unit
from penstock.engine.job_server import JobServer
from penstock.errors import PenstockError, UserError
from penstock.ha.claim import prepare_launch
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.nodes import cancel_requests, start_on_node
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.structured_log import log, log_as_json
from penstock.server.unit_follower import UnitFollower
from penstock.state.directory import SHARED, StateDirectory

#: how often it checks whether the first engine has created the state
_POLL_SECONDS = 0.2


def serve_ha(service: ServiceSettings, launch: Launch, scheme: Scheme | None) -> None:
    """Coordinate a unit and serve its results, until it is done or stopped."""
    _refuse_unserved(service.state)
    program = program_of(service.app, service.state, follows=True)
    StateDirectory(service.state).refuse_another(
        program.fingerprint, program.summary, program.former_fingerprint
    )
    host = Host(program, service.state, service.guard)
    host.unit_status = watch_unit(service.state)
    log_as_json()
    with (
        service.door.server(host, service.pages) as server,
        open_unit(service.state, launch, scheme) as unit,
    ):
        service.log_listening(server)
        log(describe_unit(unit))
        program.join(begin=True)
        coordinator = Coordinator(unit, start_on_node, log, cancel_requests, prepare_launch(unit, scheme))
        stop_by_signal(coordinator)
        try:
            with UnitFollower(Unit.at(service.state), host), _accept_commands(program, host, server, service):
                ended = coordinator.run(service.for_seconds)
            check_ended(unit, ended)
            if ended.phase == "running":
                log("another coordinator is active; the engines keep running", logging.WARNING)
            log("ended", phase=ended.phase, epochs=host.committed + 1, recoveries=len(ended.recoveries))
        except PenstockError as error:
            log("failed", logging.ERROR, condition=error.condition, error=error.text())
            raise
        except KeyboardInterrupt:
            log("stopped at once; the engines keep running", logging.WARNING)
            raise SystemExit(130) from None
        finally:
            host.end()


def _refuse_unserved(place: Path) -> None:
    """Refuse a unit whose engines were started without a service: they read no commands and retain no results."""
    if not (place / SHARED / "unit.json").exists():
        return
    unit = Unit.at(place)
    try:
        up = [name for name, engine in unit.engines().items() if engine.seems_up]
        if up and not unit.launch.served:
            raise UserError(
                "UNIT_NOT_SERVED",
                f"these engines of the unit on {place} were started without a service: {', '.join(up)}",
                hint=f"Stop them first: penstock ha stop --state {place}.",
            )
    finally:
        unit.close()


@contextlib.contextmanager
def _accept_commands(
    program: Program, host: Host, server: Server, service: ServiceSettings
) -> Iterator[None]:
    """Accept commands at a local socket too, and share the management of jobs if a store is given."""
    me, over = as_coordinator(service.name, server.url), threading.Event()

    def share_jobs() -> None:
        while not over.wait(_POLL_SECONDS):
            if StateDirectory(host.state).read_facts() is not None:  # the first engine creates it
                with join_coordinators(service.coordination or "", server, host, me, service.door):
                    over.wait()

    sharing = threading.Thread(target=share_jobs, name="penstock-sharing", daemon=True)
    with JobServer(program, host.state, me.name):
        if service.coordination is not None:
            sharing.start()
        try:
            yield
        finally:
            over.set()
            if service.coordination is not None:
                sharing.join(timeout=10)

"""`penstock coordinator`: manages jobs that an engine or an HA unit in another process executes.

It offers the same HTTP API as `serve` and executes no epochs: commands go into the command log that the engine follows,
results are those that the engine has written.

Guarantees: it works while no engine runs; commands then take effect when an engine is back. When it ends or dies, the
other coordinators manage its jobs.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.catalogue.coordinators import coordinator as as_coordinator
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.cli.load_app import served_app
from penstock.cli.options import State, default_state
from penstock.cli.serve import (
    AllowCode,
    CoordinatorName,
    Empty,
    Files,
    Listen,
    NoToken,
    Rate,
    Reachable,
    Served,
    Subscribers,
    TlsCert,
    TlsKey,
    TokenFile,
)
from penstock.cli.service_options import Door, join_coordinators, token_facts
from penstock.cli.unit import call_on_signal, watch_unit
from penstock.coordination.contract import TIMEOUT_SECONDS
from penstock.engine.job_server import JobServer
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ha.unit import Unit
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.security import check_token_for_code
from penstock.server.statement_guard import AllowedServers, StatementGuard
from penstock.server.structured_log import log, log_as_json
from penstock.server.unit_follower import UnitFollower
from penstock.state.directory import SHARED, StateDirectory

_DEFAULTS = Limits()
#: how often it polls for epochs of the engine
_POLL_SECONDS = 0.05


# over 8 parameters and 60 lines: each parameter is an option
def coordinator(
    coordination: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Coordination store of the coordinators: a directory, or zk://host:port/root.",
        ),
    ],
    file: Served = None,
    empty: Empty = False,
    state: State = None,
    listen: Listen = "127.0.0.1:0",
    name: CoordinatorName = None,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    files: Files = None,
    reach: Reachable = None,
    allow_code: AllowCode = False,
    rate: Rate = _DEFAULTS.requests_per_second,
    subscribers: Subscribers = _DEFAULTS.subscribers,
) -> None:
    """Manage jobs over HTTP that an engine elsewhere executes (`penstock serve --coordination`)."""
    app = served_app(file, empty)
    door = Door.of(listen, token_file, tls_cert, tls_key, rate, subscribers, no_token)
    check_token_for_code(allow_code, no_token=no_token)
    place = state or default_state(app.name)
    directory = StateDirectory(place)
    jobs = program_of(app, place, follows=True)
    identity, of_unit = _check_state(directory, jobs), _is_of_unit(place)
    hosted = Host(
        jobs, place, StatementGuard(files or (), place, AllowedServers(reach or ()), code=allow_code)
    )
    stop = threading.Event()
    call_on_signal(stop.set)
    log_as_json()
    with door.server(hosted, audit_file=f"audit-{socket.gethostname()}.jsonl") as server:
        log("listening", url=server.url, state=str(place), **token_facts(server.service.tokens))
        door.warn()
        jobs.join()
        if not of_unit:
            hosted.open(_last_epoch(directory), ours=False)
        me = as_coordinator(name, server.url)
        with (
            contextlib.ExitStack() as following,
            join_coordinators(coordination, server, hosted, me, door) as coordinators,
            JobServer(jobs, place, me.name),
        ):
            if not coordinators.wait_joined(10 * TIMEOUT_SECONDS):
                raise ExternalError(
                    "NOT_JOINED",
                    f"cannot join the coordinators at {coordination} as {me.name}",
                    hint="Check that the store is reachable and that no other coordinator has this name (--name).",
                )
            if of_unit:
                hosted.unit_status = watch_unit(place)
                following.enter_context(UnitFollower(Unit.at(place), hosted, ours=False))
            else:
                hosted.enter_phase("running")
            log("running", name=me.name)
            try:
                _follow(None if of_unit else jobs, hosted, directory, identity, stop)
            finally:
                following.close()
                hosted.end()
    log("ended")


def _check_state(directory: StateDirectory, jobs: Program) -> str:
    """The identity of the state; raises unless it is that of an engine with these jobs."""
    facts = directory.read_existing_facts()
    if facts.query != jobs.fingerprint:
        raise UserError(
            "STATE_OF_ANOTHER_QUERY",
            f"the state directory {directory.path} belongs to another query",
            detail=f"It has the fingerprint {facts.query}, this file has {jobs.fingerprint}.",
            hint="Use the file that the engine serves, and its state directory.",
        )
    identity = facts.id
    return identity


def _is_of_unit(place: Path) -> bool:
    """Whether an HA unit executes the jobs; raises if its engines do not read commands of coordinators."""
    if not (place / SHARED / "agreed").exists():
        return False
    unit = Unit.at(place)
    unit.close()
    if not unit.launch.served:
        raise UserError(
            "STATE_OF_A_UNIT",
            f"the state directory {place} belongs to an HA unit without a service",
            hint="Start it with `penstock serve --ha --coordination WHERE`.",
        )
    return True


def _follow(
    jobs: Program | None, hosted: Host, directory: StateDirectory, identity: str, stop: threading.Event
) -> None:
    """Report the engine's epochs to the host until it is time to stop; nothing if another thread does (no `jobs`)."""
    seen, logged_at = (-2, -1), 0.0
    while not stop.wait(_POLL_SECONDS if jobs is not None else 1.0):
        try:
            if jobs is not None:
                latest = _last_epoch(directory), jobs.commands
                if latest == seen:
                    continue
                hosted.follow(latest[0], jobs.questions.follow_results(latest[0]))
                seen = latest
            facts = directory.read_facts()
        except PenstockError as error:
            if time.monotonic() - logged_at > 10:
                log("cannot follow", logging.WARNING, condition=error.condition, error=error.text())
                logged_at = time.monotonic()
            continue
        if facts is not None and facts.id != identity:
            raise ExternalError(
                "STATE_REPLACED",
                f"the state in {directory.path} was replaced",
                hint="The engine was started with --fresh; start the coordinator again.",
            )


def _last_epoch(directory: StateDirectory) -> int:
    epochs = directory.manifests.epochs()
    return epochs[-1] if epochs else -1

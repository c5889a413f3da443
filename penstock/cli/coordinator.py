"""`penstock coordinator`: a process that carries masters of jobs which an engine, or an HA unit, elsewhere runs.

Receives the file that the engine serves, its state directory and a coordination store; hands others the same API as
`serve`, without running epochs: what it takes in is in the log that the engine follows, what it answers is what the
engine has told.

Guarantees: it goes on while the engine is away; what it takes in then takes effect when an engine is back. When it ends
or dies, the other coordinators carry its masters.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from pathlib import Path
from types import FrameType
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
    Rate,
    Reachable,
    Served,
    Subscribers,
    TlsCert,
    TlsKey,
    TokenFile,
)
from penstock.cli.service_options import Door, spread_over
from penstock.cli.unit import watched
from penstock.coordination.contract import TIMEOUT_SECONDS
from penstock.engine.job_server import JobServer
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ha.unit import Unit
from penstock.server.allowed_hosts import Reach
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.security import FileGuard, check_code_guarded
from penstock.server.structured_log import log, to_lines
from penstock.server.unit_follower import Follower
from penstock.state.directory import SHARED, StateDirectory

_DEFAULTS = Limits()
#: how often it looks what the engine has done
_LOOK_SECONDS = 0.05


def coordinator(
    coordination: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Where the coordinators of an engine meet: a directory, or zk://host:port/root.",
        ),
    ],
    file: Served = None,
    empty: Empty = False,
    state: State = None,
    listen: Listen = "127.0.0.1:0",
    name: CoordinatorName = None,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    files: Files = None,
    reach: Reachable = None,
    allow_code: AllowCode = False,
    rate: Rate = _DEFAULTS.requests_per_second,
    subscribers: Subscribers = _DEFAULTS.subscribers,
) -> None:
    """Carry masters of the jobs that an engine runs elsewhere (`penstock serve --coordination`), over HTTP."""
    app = served_app(file, empty)
    door = Door.of(listen, token_file, tls_cert, tls_key, rate, subscribers)
    check_code_guarded(allow_code, door.token)
    place = state or default_state(app.name)
    directory = StateDirectory(place)
    jobs = program_of(app, place, keeps_results=True, follows=True)
    identity, of_unit = _checked(directory, jobs), _of_unit(place)
    hosted = Host(jobs, place, FileGuard(files or (), place, Reach(reach or ()), code=allow_code))
    stop = threading.Event()
    _stopped_by_signals(stop)
    to_lines()
    with door.server(hosted) as server:
        log("listening", url=server.url, state=str(place), token=door.token is not None)
        door.warn()
        jobs.join()
        if not of_unit:
            hosted.opened(_committed(directory), ours=False)
        me = as_coordinator(name, server.url)
        with (
            contextlib.ExitStack() as following,
            spread_over(coordination, server, hosted, me, door) as members,
            JobServer(jobs, place, me.name),
        ):
            if not members.wait_joined(10 * TIMEOUT_SECONDS):
                raise ExternalError(
                    "NOT_JOINED",
                    f"cannot join the coordinators at {coordination} as {me.name}",
                    hint="The store may be away, or another that is alive has that name: see --name.",
                )
            if of_unit:
                hosted.unit = watched(place)
                following.enter_context(Follower(Unit.at(place), hosted, ours=False))
            else:
                hosted.entered("running")
            log("running", name=me.name)
            try:
                _follow(None if of_unit else jobs, hosted, directory, identity, stop)
            finally:
                following.close()
                hosted.ended()
    log("ended")


def _checked(directory: StateDirectory, jobs: Program) -> str:
    """The identity of a state; raises unless it is that of an engine with these jobs."""
    facts = directory.existing()
    if facts["query"] != jobs.fingerprint:
        raise UserError(
            "STATE_OF_ANOTHER_QUERY",
            f"the state directory {directory.path} belongs to another query",
            detail=f"it holds {facts['query']}, this is {jobs.fingerprint}",
            hint="Give the file that the engine serves, and its state directory.",
        )
    found: str = facts["id"]
    return found


def _of_unit(place: Path) -> bool:
    """Whether it is an HA unit that runs the jobs; raises unless its engines look for commands of others."""
    if not (place / SHARED / "agreed").exists():
        return False
    unit = Unit.at(place)
    unit.close()
    if not unit.launch.served:
        raise UserError(
            "STATE_OF_A_UNIT",
            f"the state directory {place} belongs to an HA unit that no service is part of",
            hint="Start it with `penstock serve --ha --coordination WHERE`; then its jobs can be shared out.",
        )
    return True


def _follow(
    jobs: Program | None, hosted: Host, directory: StateDirectory, identity: str, stop: threading.Event
) -> None:
    """Tell the host what the engine does, unless another follows it (no `jobs`), until it is time to stop."""
    seen, told_at = (-2, -1), 0.0
    while not stop.wait(_LOOK_SECONDS if jobs is not None else 1.0):
        try:
            if jobs is not None:
                found = _committed(directory), jobs.commands
                if found == seen:
                    continue
                hosted.followed(found[0], jobs.followed(found[0]))
                seen = found
            facts = directory.facts()
        except PenstockError as error:
            if time.monotonic() - told_at > 10:
                log("cannot follow", logging.WARNING, condition=error.condition, error=error.text())
                told_at = time.monotonic()
            continue
        if facts is not None and facts["id"] != identity:
            raise ExternalError(
                "STATE_BEGAN_ANEW",
                f"the state in {directory.path} is another one than before",
                hint="The engine was started with --fresh; start the coordinator again.",
            )


def _committed(directory: StateDirectory) -> int:
    epochs = directory.epochs()
    return epochs[-1] if epochs else -1


def _stopped_by_signals(stop: threading.Event) -> None:
    def received(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, received)

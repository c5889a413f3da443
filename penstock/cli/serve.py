"""`penstock serve`: runs an engine and its HTTP service in one process, or with --ha the coordinator of a unit.

Guarantees: the address is checked and bound before the engine starts. The first SIGINT or SIGTERM lets the epoch under
way end and informs subscribers, which resume when the service is back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.catalogue.coordinators import coordinator
from penstock.catalogue.program_of import program_of
from penstock.cli.load_app import served_app
from penstock.cli.options import (
    CheckpointEvery,
    Conf,
    Costs,
    Elastic,
    Epoch,
    ExecutorCount,
    For,
    Fresh,
    Ha,
    LeaseTimeout,
    ManagerFile,
    Master,
    RecoveryTime,
    Reduced,
    SchemeName,
    SemanticsName,
    Slices,
    State,
    StragglerTime,
    as_engine_settings,
    as_reduced,
    as_seconds,
    default_state,
)
from penstock.cli.run_engine import StopSignals
from penstock.cli.scaling_options import executor_settings
from penstock.cli.serve_unit import serve_ha
from penstock.cli.service_options import Door, ServiceSettings, join_coordinators
from penstock.cli.state import remove_state_directory
from penstock.cli.unit import watch_unit
from penstock.cli.unit_launch import UnitOptions, refuse_executors, refuse_reduced
from penstock.dashboard.mount import mount_dashboard
from penstock.engine.engine import Engine
from penstock.engine.job_server import JobServer
from penstock.engine.status_server import StatusServer, latest_snapshot, status
from penstock.errors import PenstockError, UserError
from penstock.ha.schemes import Semantics
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.security import check_token_for_code
from penstock.server.statement_guard import AllowedServers, StatementGuard
from penstock.server.structured_log import log, log_as_json
from penstock.settings import Settings

_DEFAULTS = Limits()


Served = Annotated[
    Path | None,
    typer.Argument(help="A Python file with one ps.app(...) or ps.jobs_app(...), or a file of SQL (.sql)."),
]
Empty = Annotated[
    bool, typer.Option("--empty", help="Start without a file; create streams and jobs over HTTP.")
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with the token that requests must have, or several with names and roles; required unless the "
        "address is loopback. Without it the service makes a token for itself (`penstock token` prints it)."
    ),
]
NoToken = Annotated[
    bool,
    typer.Option(
        "--no-token",
        help="Require no token: every user of this machine may administer. For the loopback address only.",
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate (PEM), for https.")]
TlsKey = Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).")]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR", help="Allow SQL over HTTP to use files below this directory; may be repeated."
    ),
]
Reachable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Allow SQL over HTTP to use this server (Kafka, Redis, ...); may be repeated.",
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Accept Python code over HTTP (PUT /jobs/NAME/code). It runs with the rights of this user.",
    ),
]
Rate = Annotated[float, typer.Option(min=0.1, help="Maximum requests per second of one client.")]
Subscribers = Annotated[int, typer.Option(min=1, help="Maximum number of open subscriptions.")]
CoordinatorName = Annotated[
    str | None, typer.Option("--name", help="Name of this coordinator.", show_default="HOST:PORT")
]


# over 8 parameters and 60 lines: each parameter is an option
def serve(
    file: Served = None,
    empty: Empty = False,
    state: State = None,
    listen: Listen = "127.0.0.1:8080",
    token_file: TokenFile = None,
    no_token: NoToken = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    files: Files = None,
    reach: Reachable = None,
    allow_code: AllowCode = False,
    rate: Rate = _DEFAULTS.requests_per_second,
    subscribers: Subscribers = _DEFAULTS.subscribers,
    master: Master = "local[*]",
    executors: ExecutorCount = None,
    slices: Slices = None,
    epoch: Epoch = "1s",
    for_: For = None,
    fresh: Fresh = False,
    coordination: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Coordination store, to share the management of jobs with coordinators: a directory, or "
            "zk://host:port/root. With --ha also the unit's store.",
        ),
    ] = None,
    name: CoordinatorName = None,
    ha: Ha = False,
    scheme: SchemeName = None,
    lease_timeout: LeaseTimeout = "2s",
    straggler_time: StragglerTime = "5s",
    recovery_time: RecoveryTime = None,
    cost: Costs = None,
    semantics: SemanticsName = Semantics.precise,
    checkpoint_every: CheckpointEvery = "1",
    elastic: Elastic = None,
    manager: ManagerFile = None,
    unit: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also show the HA unit on this state directory.")
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Serve the dashboard, at /ui on the same port.")
    ] = True,
    reduced: Reduced = None,
    conf: Conf = None,
) -> None:
    """Run an engine and serve its streams, jobs and results over HTTP, until Ctrl-C. With --ha an HA unit."""
    unit_options = UnitOptions(
        scheme, coordination, lease_timeout, straggler_time, recovery_time, cost, semantics, checkpoint_every
    )
    _check_unit(ha, unit_options, unit)
    unit_options.check()
    door = Door.of(listen, token_file, tls_cert, tls_key, rate, subscribers, no_token)
    check_token_for_code(allow_code, no_token=no_token)
    app = as_reduced(served_app(file, empty), reduced)
    place = state or default_state(app.name)
    if ha:
        refuse_executors(elastic, manager, executors)
        refuse_reduced(reduced)
    service = ServiceSettings(
        app,
        place,
        door,
        StatementGuard(files or (), place, AllowedServers(reach or ()), code=allow_code),
        mount_dashboard if ui else None,
        None if for_ is None else as_seconds(for_, "--for"),
        coordination,
        name,
    )
    settings = Settings(
        state=place,
        master=master,
        slices=slices,
        epoch_seconds=as_seconds(epoch, "--epoch"),
        **as_engine_settings(conf),
        **({} if ha else executor_settings(master, executors, elastic, manager)),
    )
    if fresh:
        remove_state_directory(place)
    if ha:
        serve_ha(service, unit_options.launch(app, file, settings, served=True), scheme)
    else:
        _serve_engine(service, settings, unit)


def _check_unit(ha: bool, unit_options: UnitOptions, watched: Path | None) -> None:
    """Refuse options of a unit without --ha, and --unit with it."""
    if not ha and replace(unit_options, coordination=None) != UnitOptions():
        raise UserError(
            "BAD_OPTION",
            "--scheme, --recovery-time, --cost, --semantics, --checkpoint-every, --lease-timeout and "
            "--straggler-time are for an HA unit",
            hint="Add --ha.",
        )
    if ha and watched is not None:
        raise UserError(
            "BAD_OPTION",
            "--unit and --ha exclude each other: with --ha its own unit is shown",
            hint="Leave one out.",
        )


def _serve_engine(service: ServiceSettings, settings: Settings, unit: Path | None) -> None:
    """Run an engine and serve its results; with `unit` also the status of that HA unit."""
    program = program_of(service.app, service.state)
    engine = Engine(program, settings)
    host = Host(program, service.state, service.guard)
    host.backlog = lambda: {} if engine.admission is None else dict(engine.admission.backlog)
    host.engine_status = lambda: status(engine, latest_snapshot(engine))
    if unit is not None:
        host.unit_status = watch_unit(unit)
    log_as_json()
    with service.door.server(host, service.pages) as server, contextlib.ExitStack() as stack:

        def open_host() -> None:
            service.log_listening(server)
            host.open(engine.state.manifests.latest().epoch)
            if service.coordination is not None:
                me = coordinator(service.name, server.url, engine=True)
                stack.enter_context(join_coordinators(service.coordination, server, host, me, service.door))

        _run(engine, host, service.for_seconds, open_host)


def _run(engine: Engine, host: Host, for_seconds: float | None, open_host: Callable[[], None]) -> None:
    """Run an engine behind a host until it ends or a signal stops it."""
    stopping = StopSignals(engine)
    with stopping.signals(), contextlib.ExitStack() as servers:

        def on_phase(phase: str) -> None:
            if host.phase == "starting":  # the first phase: the state is open
                open_host()
            if phase != "starting Spark":
                stopping.take_signals()  # pyspark has replaced our handlers
            if phase == "running":
                servers.enter_context(JobServer(engine.program, engine.settings.state))
                servers.enter_context(StatusServer(engine))
            log(phase)
            host.enter_phase(phase)

        try:
            run = engine.run(host.add_epoch, for_seconds=for_seconds, on_phase=on_phase)
            log("ended", epochs=run.epochs, events=run.events)
        except PenstockError as error:
            log("failed", logging.ERROR, condition=error.condition, error=error.text())
            raise
        except KeyboardInterrupt:
            log("stopped at once; the next start repeats the epoch that was under way", logging.WARNING)
            raise SystemExit(130) from None
        finally:
            host.end()

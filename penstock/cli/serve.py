"""`penstock serve`: an engine and its service in one process; with --ha the coordinator of a unit in its place.

Receives a user's file, or nothing, and an address; hands others the API until it is stopped.

Guarantees: the address is checked, and taken, before the engine is started. The first SIGINT or SIGTERM lets the epoch
under way end, and tells subscribers that the service goes; they resume when it is back.
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
from penstock.catalogue.program import Program
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
    as_reduced,
    as_seconds,
    as_spark_settings,
    default_state,
)
from penstock.cli.run_engine import Stopping
from penstock.cli.scaling_options import following
from penstock.cli.serve_unit import Spread, serve_ha
from penstock.cli.service_options import Door, spread_over
from penstock.cli.state import forget
from penstock.cli.unit import watched
from penstock.cli.unit_launch import UnitOptions, refuse_executors, refuse_reduced
from penstock.dashboard.mount import mount_dashboard
from penstock.engine.engine import Engine
from penstock.engine.job_server import JobServer
from penstock.engine.status_server import StatusServer, measured, status
from penstock.errors import PenstockError, UserError
from penstock.ha.schemes import Semantics
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.middleware import PAGES
from penstock.server.security import check_token_for_code
from penstock.server.statement_guard import AllowedServers, StatementGuard
from penstock.server.structured_log import log, log_as_json
from penstock.settings import Settings

_DEFAULTS = Limits()


Served = Annotated[
    Path | None,
    typer.Argument(help="A Python file with one penstock.App or jobs_app in it, or SQL (.sql)."),
]
Empty = Annotated[
    bool, typer.Option("--empty", help="Begin without a file: streams and jobs come over HTTP.")
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token requests must carry; needed where others reach us."),
]
TlsCert = Annotated[Path | None, typer.Option(help="A certificate (PEM), for https.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its key (PEM).")]
Files = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="SQL over HTTP may name files below this directory; may be repeated."),
]
Reachable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT", help="SQL over HTTP may name this server (Kafka, Redis, ...); may be repeated."
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Take Python over HTTP (PUT /jobs/NAME/code), which can do whatever this user can; needs a token.",
    ),
]
Rate = Annotated[float, typer.Option(min=0.1, help="Requests a second that one client may make.")]
Subscribers = Annotated[int, typer.Option(min=1, help="Subscriptions open at once.")]
CoordinatorName = Annotated[
    str | None, typer.Option("--name", help="What this coordinator is called.", show_default="MACHINE:PORT")
]


def serve(
    file: Served = None,
    empty: Empty = False,
    state: State = None,
    listen: Listen = "127.0.0.1:8080",
    token_file: TokenFile = None,
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
            help="Share the jobs' masters with coordinators that meet here: a directory, or zk://host:port/root. With "
            "--ha the unit's coordination store as well.",
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
        Path | None, typer.Option(metavar="DIR", help="Show the HA unit on this state directory as well.")
    ] = None,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="The dashboard, at /ui on the same port.")] = True,
    reduced: Reduced = None,
    conf: Conf = None,
) -> None:
    """Run an engine, or with --ha a unit of several, and serve streams, jobs and answers over HTTP until it is stopped
    (Ctrl-C)."""
    asked = UnitOptions(
        scheme, coordination, lease_timeout, straggler_time, recovery_time, cost, semantics, checkpoint_every
    )
    _check_unit(ha, asked, unit)
    asked.check()
    spark, for_seconds = as_spark_settings(conf), None if for_ is None else as_seconds(for_, "--for")
    app = as_reduced(served_app(file, empty), reduced)
    door = Door.of(listen, token_file, tls_cert, tls_key, rate, subscribers)
    check_token_for_code(allow_code, door.token)
    place = state or default_state(app.name)
    if ha:
        refuse_executors(elastic, manager, executors)
        refuse_reduced(reduced)
    if fresh:
        forget(place)
    guard = StatementGuard(files or (), place, AllowedServers(reach or ()), code=allow_code)
    pages = mount_dashboard if ui else None
    if ha:
        settings = Settings(
            state=place,
            master=master,
            slices=slices,
            epoch_seconds=as_seconds(epoch, "--epoch"),
            spark=spark,
        )
        launch = asked.launch(app, file, settings, served=True)
        serve_ha(
            app,
            place,
            launch,
            scheme,
            door=door,
            guard=guard,
            pages=pages,
            for_seconds=for_seconds,
            spread=Spread(coordination, name),
        )
        return
    program = program_of(app, place, keeps_results=True)
    settings = Settings(
        state=place,
        master=master,
        slices=slices,
        epoch_seconds=as_seconds(epoch, "--epoch"),
        spark=spark,
        **following(master, executors, elastic, manager),
    )
    engine = Engine(program, settings)
    hosted = Host(program, place, guard)
    hosted.backlog = lambda: {} if engine.admission is None else dict(engine.admission.backlog)
    hosted.engine_status = lambda: status(engine, measured(engine))
    if unit is not None:
        hosted.unit_status = watched(unit)
    log_as_json()
    with door.server(hosted, pages) as server, contextlib.ExitStack() as spread:
        shown = f"{server.url}{PAGES}/" if ui else None

        def opened() -> None:
            log("listening", url=server.url, dashboard=shown, state=str(place), token=door.token is not None)
            door.warn()
            hosted.open(engine.state.manifests.latest().epoch)
            if coordination is not None:
                me = coordinator(name, server.url, engine=True)
                spread.enter_context(spread_over(coordination, server, hosted, me, door))

        _run(engine, program, hosted, for_seconds, opened)


def _check_unit(ha: bool, asked: UnitOptions, watched: Path | None) -> None:
    """Refuse what is said of a unit where there is none, and another one to be watched where there is."""
    if not ha and replace(asked, coordination=None) != UnitOptions():
        raise UserError(
            "BAD_OPTION",
            "--scheme, --recovery-time, --cost, --semantics, --checkpoint-every and the times of engines are for a "
            "unit of engines",
            hint="Add --ha.",
        )
    if ha and watched is not None:
        raise UserError(
            "BAD_OPTION", "with --ha the unit that is shown is its own", hint="Leave out --unit or --ha."
        )


def _run(
    engine: Engine,
    program: Program,
    hosted: Host,
    for_seconds: float | None,
    opened: Callable[[], None],
) -> None:
    stopping = Stopping(engine)
    with stopping.signals(), contextlib.ExitStack() as listening:

        def tell(phase: str) -> None:
            if hosted.phase == "starting":  # the first of all: the state is open
                opened()
            if phase != "starting Spark":
                stopping.take_signals()  # pyspark has put its own handler in our place
            if phase == "running":
                listening.enter_context(JobServer(program, engine.settings.state))
                listening.enter_context(StatusServer(engine))
            log(phase)
            hosted.enter_phase(phase)

        try:
            run = engine.run(hosted.add_epoch, for_seconds=for_seconds, tell=tell)
            log("ended", epochs=run.epochs, events=run.events)
        except PenstockError as error:
            log("failed", logging.ERROR, condition=error.condition, error=error.text())
            raise
        except KeyboardInterrupt:
            log("ended at once; the next start repeats the epoch that was under way", logging.WARNING)
            raise SystemExit(130) from None
        finally:
            hosted.end()

"""`penstock serve`: an engine and its service in one process.

Receives a user's file, or nothing, and an address; hands others the API until it is stopped.

Guarantees: the address is checked, and taken, before the engine is started. The first SIGINT or SIGTERM lets the epoch
under way end, and tells subscribers that the service goes; they resume when it is back.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Annotated

import typer

from penstock.engine.engine import Engine
from penstock.engine.job_server import JobServer
from penstock.engine.kept import Kept
from penstock.engine.settings import Settings
from penstock.http.api import Service
from penstock.http.host import Host
from penstock.http.limits import Limits
from penstock.http.logs import log, to_lines
from penstock.http.security import FileGuard, address, check_guarded, loopback, token_of
from penstock.http.server import Server, Tls
from penstock.jobs.app import JobsApp
from penstock.jobs.program import Jobs
from penstock.query.compile import compiled
from penstock.service.load import load
from penstock.service.options import (
    Conf,
    Epoch,
    For,
    Fresh,
    Master,
    Reduced,
    Slices,
    State,
    as_reduced,
    as_seconds,
    as_spark_settings,
    default_state,
)
from penstock.service.serve import Stopping
from penstock.service.state import forget
from penstock.words.errors import PenstockError, UserError

_DEFAULTS = Limits()


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(help="A Python file with one penstock.App or jobs_app in it, or SQL (.sql)."),
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Begin without a file: streams and jobs come over HTTP.")
    ] = False,
    state: State = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token requests must carry; needed where others reach us."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="SQL over HTTP may name files below this directory; may be repeated."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Requests a second that one client may make.")
    ] = _DEFAULTS.requests_per_second,
    subscribers: Annotated[
        int, typer.Option(min=1, help="Subscriptions open at once.")
    ] = _DEFAULTS.subscribers,
    master: Master = "local[*]",
    slices: Slices = None,
    epoch: Epoch = "1s",
    for_: For = None,
    fresh: Fresh = False,
    reduced: Reduced = None,
    conf: Conf = None,
) -> None:
    """Run an engine and serve its streams, jobs and answers over HTTP until it is stopped (Ctrl-C)."""
    if (file is None) is not empty:
        raise UserError("BAD_OPTION", "say what to serve: a file or --empty", hint="penstock serve jobs.sql")
    host, port = address(listen)
    token = None if token_file is None else token_of(token_file)
    check_guarded(host, token)
    tls = _tls(tls_cert, tls_key)
    spark = as_spark_settings(conf)
    app = as_reduced(JobsApp("service") if file is None else load(file), reduced)
    place = state or default_state(app.name)
    if fresh:
        forget(place)
    program = app.on(place) if isinstance(app, JobsApp) else Kept(compiled(app), place)
    seconds = as_seconds(epoch, "--epoch")
    settings = Settings(state=place, master=master, slices=slices, epoch_seconds=seconds, spark=spark)
    engine = Engine(program, settings)
    limits = Limits(requests_per_second=rate, request_burst=max(1, round(2 * rate)), subscribers=subscribers)
    hosted = Host(program, place, FileGuard(files or (), place))
    hosted.backlog = lambda: {} if engine.admission is None else dict(engine.admission.backlog)
    to_lines()
    with contextlib.closing(hosted), Server(Service(hosted, limits, token), host, port, tls) as server:
        log("listening", url=server.url, state=str(place), token=token is not None)
        if tls is None and not loopback(host):
            log("token and rows travel unencrypted; --tls-cert and --tls-key give https", logging.WARNING)
        _run(engine, program, hosted, None if for_ is None else as_seconds(for_, "--for"))


def _run(engine: Engine, program: Jobs | Kept, hosted: Host, for_seconds: float | None) -> None:
    stopping = Stopping(engine)
    with stopping.signals(), contextlib.ExitStack() as listening:

        def tell(phase: str) -> None:
            if phase == "starting Spark":
                hosted.opened(engine.state.latest().epoch)
            else:
                stopping.take_signals()  # pyspark has put its own handler in our place
            if phase == "running" and isinstance(program, Jobs):
                listening.enter_context(JobServer(program, engine.settings.state))
            log(phase)
            hosted.entered(phase)

        try:
            run = engine.run(hosted.epoch, for_seconds=for_seconds, tell=tell)
            log("ended", epochs=run.epochs, events=run.events)
        except PenstockError as error:
            log("failed", logging.ERROR, condition=error.condition, error=error.text())
            raise
        except KeyboardInterrupt:
            log("ended at once; the next start repeats the epoch that was under way", logging.WARNING)
            raise SystemExit(130) from None
        finally:
            hosted.ended()


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    for path in (certificate, key):
        if path is None or not path.is_file():
            raise UserError(
                "BAD_OPTION", "https needs a certificate and its key", detail=f"there is no {path}"
            )
    assert certificate is not None
    assert key is not None
    return Tls(certificate, key)

"""`penstock demo NAME`: runs an application of `penstock.demos` on a generated log, or on the user's files.

Each demo is a module with `generated` (its log) and `build` (the app over a log).
"""

from __future__ import annotations

import importlib
import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.command_line import resume_command
from penstock.cli.demo_show import Show
from penstock.cli.options import Epoch, Master, Slices, as_seconds
from penstock.cli.run_engine import serve
from penstock.cli.state import remove_state_directory
from penstock.errors import UserError
from penstock.logs import FileLog
from penstock.logs.contract import Log
from penstock.query.logical import App
from penstock.settings import Settings

#: length of a plain demo; events per second of the show before its spike
_PLAIN_SECONDS, _SHOW_RATE = 60.0, 10_000.0


class Name(StrEnum):
    """The demos."""

    clickstream = "clickstream"
    taxi = "taxi"
    calls = "calls"
    wordcount = "wordcount"
    sentiment = "sentiment"
    hibench = "hibench"
    sla = "sla"
    cards = "cards"
    smartgrid = "smartgrid"
    retail = "retail"
    shop = "shop"
    spam = "spam"


class Profile(StrEnum):
    """How the rate of the generated log changes."""

    constant = "constant"
    sine = "sine"
    spike = "spike"
    step = "step"


# over 8 parameters and 60 lines: each parameter is an option
def demo(
    context: typer.Context,
    name: Annotated[Name, typer.Argument(help="The demo.")] = Name.clickstream,
    for_: Annotated[
        str | None,
        typer.Option("--for", help="Stop after this time.", show_default="60s; the show stops at its end"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Events per second of the generated log.", show_default="the demo's own"),
    ] = None,
    profile: Annotated[Profile, typer.Option(help="How that rate changes over time.")] = Profile.constant,
    log: Annotated[str | None, typer.Option(help="Read your own files instead: a glob, in quotes.")] = None,
    cookie: Annotated[
        str | None,
        typer.Option(help="Clickstream with --log: the session cookie, in a field after the user agent."),
    ] = None,
    lateness: Annotated[
        str | None,
        typer.Option(
            help="Allowed lateness: how much older than the newest an event may be.",
            show_default="2s; 60s with --log",
        ),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="With --log: stop when everything is read.")] = False,
    master: Master = "local[*]",
    slices: Slices = None,
    epoch: Epoch = "1s",
    state: Annotated[
        Path | None,
        typer.Option(help="Directory of the state and the results.", show_default=".penstock/demo-NAME"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start from nothing: remove what earlier runs left there.")
    ] = False,
    ui: Annotated[
        bool,
        typer.Option(
            "--ui/--no-ui",
            help="Serve the dashboard (clickstream: with a guided show), or run in this terminal only.",
        ),
    ] = True,
) -> None:
    """Run a demo application.

    Without arguments: click streams of a web shop, on the dashboard, with a show of two minutes in which a job is
    altered, a spike of load adds an executor, and the engine is killed and recovers.
    """
    for_seconds = None if for_ is None else as_seconds(for_, "--for")
    is_customized = (log, cookie, lateness, slices) != (None,) * 4 or profile is not Profile.constant or drain
    if ui and name is Name.clickstream and not is_customized and (master, epoch) == ("local[*]", "1s"):
        _show(state, rate, for_seconds, fresh)
        return
    for_seconds = for_seconds or _PLAIN_SECONDS
    place = state or _default_state(name)
    if fresh:
        remove_state_directory(place)
    app, ends = application(name, place / "results", log, rate, profile, cookie, lateness, drain)
    settings = Settings(
        state=place,
        master=master,
        slices=slices,
        epoch_seconds=as_seconds(epoch, "--epoch"),
        drain=ends,
    )
    serve(
        app,
        settings,
        for_seconds=for_seconds,
        again=resume_command(context, "for_", "fresh") + "   (--fresh starts from nothing)",
        ui=ui,
    )


def _show(state: Path | None, rate: float | None, for_seconds: float | None, fresh: bool) -> None:
    place = state or Path(".penstock/demo")
    if fresh:
        remove_state_directory(place / "state")
    console = Console(highlight=False)
    show = Show(
        place,
        rate or _SHOW_RATE,
        for_seconds,
        lambda line: console.print(Text(line), soft_wrap=True),
        on_terminal=console.is_terminal,
    )
    show.run()


def application(
    name: Name,
    results: Path,
    log: str | None = None,
    rate: float | None = None,
    profile: Profile = Profile.constant,
    cookie: str | None = None,
    lateness: str | None = None,
    drain: bool = False,
) -> tuple[App | JobsApp, bool]:
    """The app of a demo, and whether it ends with its log."""
    module = importlib.import_module(f"penstock.demos.{name.value}")
    source: Log = FileLog(log, finished=drain) if log else module.generated(rate, profile.value)
    options: dict[str, Any] = {}
    if lateness or log:
        options["lateness"] = lateness or "60s"
    if log and "cookie" in inspect.signature(module.build).parameters:
        options["cookie"] = cookie
    elif cookie:
        raise UserError("BAD_OPTION", "--cookie is for access logs given with --log", hint="Leave it out.")
    return module.build(source, results, **options), source.closed()


def _default_state(name: Name) -> Path:
    return Path(f".penstock/demo-{name.value}")

"""`penstock demo`: the click-stream application on a made-up web shop, or on your own access logs."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from apps.clickstream import build
from penstock.engine.settings import Settings
from penstock.logs import FileLog, GeneratedLog
from penstock.logs.contract import Log
from penstock.service.figures import program
from penstock.service.options import Epoch, Master, Slices, as_seconds
from penstock.service.serve import serve
from penstock.service.state import forget

DEFAULT_STATE = Path(".penstock/demo-clickstream")


class Name(StrEnum):
    """The demos there are."""

    clickstream = "clickstream"


class Profile(StrEnum):
    """How the rate of the made-up log changes."""

    constant = "constant"
    sine = "sine"
    spike = "spike"
    step = "step"


def demo(
    name: Annotated[Name, typer.Argument(help="Which demo.")] = Name.clickstream,
    for_: Annotated[str, typer.Option("--for", help="End after this long.")] = "60s",
    rate: Annotated[float, typer.Option(help="Events a second of the made-up log.")] = 20_000,
    profile: Annotated[Profile, typer.Option(help="How that rate changes.")] = Profile.constant,
    log: Annotated[str | None, typer.Option(help="Access logs instead: a glob, in quotes.")] = None,
    cookie: Annotated[
        str | None, typer.Option(help="The logs' session cookie, in a field after the agent.")
    ] = None,
    lateness: Annotated[
        str | None,
        typer.Option(
            help="How much older than the newest an event may be.", show_default="2s; 60s with --log"
        ),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="With --log: end when all is read.")] = False,
    master: Master = "local[*]",
    slices: Slices = None,
    epoch: Epoch = "1s",
    state: Annotated[Path, typer.Option(help="Where the state and the results lie.")] = DEFAULT_STATE,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what earlier starts have left there.")
    ] = False,
) -> None:
    """Watch visitors walk through a web shop: the most frequent rows of three pages, as they happen."""
    for_seconds = as_seconds(for_, "--for")
    if fresh:
        forget(state)
    source: Log = FileLog(log, finished=drain) if log else GeneratedLog(rate=rate, profile=profile.value)
    late = lateness or ("60s" if log else "2s")
    app = build(source, state / "results", cookie=cookie if log else "session", lateness=late)
    settings = Settings(
        state=state,
        master=master,
        slices=slices,
        epoch_seconds=as_seconds(epoch, "--epoch"),
        drain=drain,
    )
    serve(app, settings, for_seconds=for_seconds, again=_again(state, log))


def _again(state: Path, log: str | None) -> str:
    given = ["--log", log] if log else []
    given += ["--state", str(state)] if state != DEFAULT_STATE else []
    return shlex.join([program(), "demo", *given]) + "   (--fresh begins anew)"

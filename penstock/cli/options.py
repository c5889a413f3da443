"""Options that several commands share, each declared once, and the values they parse to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.catalogue.agent_reduction import compile_reduction
from penstock.catalogue.jobs_app import JobsApp
from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.ha.schemes import Scheme, Semantics
from penstock.query.logical import App

AppFile = Annotated[
    Path,
    typer.Argument(help="A Python file with one ps.app(...) or ps.jobs_app(...), or a file of SQL (.sql)."),
]
StateDir = Annotated[Path, typer.Argument(metavar="DIR", help="A state directory.")]
State = Annotated[
    Path | None, typer.Option(help="The state directory.", show_default=".penstock/NAME", metavar="DIR")
]
Master = Annotated[str, typer.Option(help="The Spark master: local[*], local[2], spark://host:port, ...")]
ExecutorCount = Annotated[
    int | None,
    typer.Option(min=1, help="Executors at the start, on a cluster.", show_default="all the cluster has"),
]
For = Annotated[str | None, typer.Option("--for", help="Stop after this time, such as 60s or 5m.")]
Slices = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Slices: tasks that execute the stateful operators in parallel.",
        show_default="one for each core",
    ),
]
Epoch = Annotated[str, typer.Option(help="Target length of an epoch (a micro-batch) under load.")]
Drain = Annotated[bool, typer.Option("--drain", help="Stop when everything in the logs has been read.")]

Ha = Annotated[
    bool, typer.Option("--ha", help="Run an HA unit: several engines, so that the loss of one is survived.")
]
SchemeName = Annotated[
    Scheme | None,
    typer.Option(
        help="What the second engine of a unit does beforehand; see `penstock ha schemes`.",
        show_default="active-standby",
    ),
]
RecoveryTime = Annotated[
    str | None,
    typer.Option(
        help="Let the controller choose the cheapest scheme that recovers within this time.", metavar="TIME"
    ),
]
Costs = Annotated[
    str | None,
    typer.Option(
        "--cost",
        "--costs",
        help="Cost model of the controller: all-costs, cloud-vm, or weights such as cpu=1,engines=2.",
        show_default="all-costs",
    ),
]
SemanticsName = Annotated[
    Semantics, typer.Option(help="Recovery semantics; all but precise may lose or repeat something.")
]
CheckpointEvery = Annotated[
    str,
    typer.Option(
        metavar="N|auto",
        help="Checkpoint interval in epochs; auto: the controller of an HA unit chooses it.",
    ),
]
Coordination = Annotated[
    str | None,
    typer.Option(
        help="Coordination store of the unit: a directory, or zk://host:port/root.", metavar="WHERE"
    ),
]
LeaseTimeout = Annotated[
    str, typer.Option(help="An engine without a heartbeat for this time counts as lost.")
]
StragglerTime = Annotated[
    str,
    typer.Option(help="How long the unit waits for an engine that lacks data of a replicated source."),
]

Elastic = Annotated[
    list[str] | None,
    typer.Option(
        "--elastic",
        metavar="KEY=VALUE",
        help="Let the number of executors follow the load: `on`, or a setting such as most_executors=4; may be "
        "repeated.",
    ),
]
ManagerFile = Annotated[
    Path | None,
    typer.Option(
        "--manager", help="A Python file with an object whose `decide` replaces Penstock's scaling rules."
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start from nothing: remove the state directory first.")]

DropState = Annotated[
    bool,
    typer.Option(
        "--drop-state",
        help="Accept a changed query: unchanged operators keep their state, the state of others is dropped.",
    ),
]

Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A Spark setting, such as spark.executor.memory=2g; may be repeated.",
    ),
]
Reduced = Annotated[
    str | None,
    typer.Option(
        metavar="STREAM",
        help="The stream that agents reduce for the jobs of the file (penstock agent --reduce).",
    ),
]
#: what Penstock sets itself, and the option for it
_OWN = {"spark.master": "--master", "spark.app.name": None}


def as_spark_settings(conf: list[str] | None) -> dict[str, str]:
    """The Spark settings of --conf; the last value of a key counts."""
    settings: dict[str, str] = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark.") or not key.removeprefix("spark.").strip("."):
            raise UserError(
                "BAD_OPTION",
                f"--conf {one!r} is not a Spark setting",
                hint="Write for example spark.executor.memory=2g.",
            )
        if key in _OWN:
            instead = _OWN[key]
            raise UserError(
                "BAD_OPTION",
                f"{key} cannot be set with --conf",
                hint=f"Use {instead}." if instead else "Penstock sets it itself.",
            )
        settings[key] = value
    return settings


def as_reduced(app: App | JobsApp, stream: str | None) -> App | JobsApp:
    """An application, changed so that it reads the reduced stream of agents if one is given."""
    if stream is None:
        return app
    if not isinstance(app, JobsApp) or app.streams or app.queries or app.functions:
        raise UserError(
            "NOT_REDUCIBLE",
            "agents can reduce only for jobs in a file of SQL",
            hint="Give agents and engine the same .sql file.",
        )
    return compile_reduction(app.sql, stream, app.name).engine_app()


def as_seconds(text: str, option: str) -> float:
    """The duration of an option; it must be above 0."""
    amount = float(text) if re.fullmatch(r"\d+(\.\d+)?", text.strip()) else microseconds(text) / 1e6
    if amount <= 0:
        raise UserError("BAD_OPTION", f"{option} must be longer than 0", hint='Write for example "30s".')
    return amount


def as_interval(text: str) -> int | None:
    """The checkpoint interval of an option; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise UserError(
            "BAD_OPTION",
            f"--checkpoint-every {text} is not a number of epochs",
            hint="Use 1 or more, or auto.",
        )
    return int(text)


def default_state(name: str) -> Path:
    """The state directory of an app unless --state is given: below the working directory."""
    return Path(".penstock") / (re.sub(r"[^\w.-]+", "-", name).strip(".-") or "app")

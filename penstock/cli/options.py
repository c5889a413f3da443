"""Options that several commands share, each declared once with its meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.catalogue.agent_reduction import reduction_of
from penstock.catalogue.jobs_app import JobsApp
from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.ha.schemes import Scheme, Semantics
from penstock.query.logical import App

AppFile = Annotated[Path, typer.Argument(help="A Python file with one penstock.App in it, or SQL (.sql).")]
StateDir = Annotated[Path, typer.Argument(metavar="DIR", help="A state directory.")]
State = Annotated[
    Path | None, typer.Option(help="Where the state lies.", show_default=".penstock/NAME", metavar="DIR")
]
Master = Annotated[str, typer.Option(help="Spark's master: local[*], local[2], spark://host:port, ...")]
ExecutorCount = Annotated[
    int | None, typer.Option(min=1, help="Executors to begin with, on a cluster.", show_default="all it has")
]
For = Annotated[str | None, typer.Option("--for", help="End after this long, such as 60s or 5m.")]
Slices = Annotated[int | None, typer.Option(min=1, help="Tasks a slice stage is cut into.")]
Epoch = Annotated[str, typer.Option(help="How long an epoch should take under load.")]
Drain = Annotated[bool, typer.Option("--drain", help="End when all that the logs hold is read.")]

Ha = Annotated[
    bool, typer.Option("--ha", help="Run a unit of several engines that survives the loss of one.")
]
SchemeName = Annotated[
    Scheme | None,
    typer.Option(help="What the second engine of a unit does.", show_default="active-standby"),
]
RecoveryTime = Annotated[
    str | None,
    typer.Option(
        help="Have the controller pick the cheapest scheme that is back within this time.", metavar="TIME"
    ),
]
Costs = Annotated[
    str | None,
    typer.Option(
        "--cost",
        "--costs",
        help="What the controller minds: all-costs, cloud-vm, or weights such as cpu=1,engines=2.",
        show_default="all-costs",
    ),
]
SemanticsName = Annotated[
    Semantics, typer.Option(help="What a recovery has to keep; all but precise lose or repeat something.")
]
CheckpointEvery = Annotated[
    str,
    typer.Option(
        metavar="N|auto",
        help="Epochs from one durable manifest to the next; auto: left to the controller of a unit.",
    ),
]
Coordination = Annotated[
    str | None,
    typer.Option(help="The unit's coordination store: a directory, or zk://host:port/root.", metavar="WHERE"),
]
LeaseTimeout = Annotated[str, typer.Option(help="An engine silent for this long is taken for lost.")]
StragglerTime = Annotated[
    str,
    typer.Option(help="An engine that lacks what others have of a replicated source is waited for so long."),
]

Elastic = Annotated[
    list[str] | None,
    typer.Option(
        "--elastic",
        metavar="KEY=VALUE",
        help="Have the executors of a cluster follow the load; may be said several times, `on` for the defaults.",
    ),
]
ManagerFile = Annotated[
    Path | None,
    typer.Option(
        "--manager", help="A Python file with an object that has `decide`, in place of Penstock's rules."
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Forget what earlier starts have left in the state directory.")
]

DropState = Annotated[
    bool,
    typer.Option(
        "--drop-state",
        help="Start a changed query on its state directory: operators that are unchanged keep their state, that of "
        "others is dropped.",
    ),
]

Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark's, as spark.executor.memory=2g; may be repeated.",
    ),
]
Reduced = Annotated[
    str | None,
    typer.Option(
        metavar="STREAM", help="Agents reduce this stream for the file's jobs (penstock agent --reduce)."
    ),
]
#: what Penstock says itself
_OWN = {"spark.master": "--master", "spark.app.name": None}


def as_spark_settings(conf: list[str] | None) -> dict[str, str]:
    """What --conf said; of a key said twice the last holds."""
    said: dict[str, str] = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark.") or not key.removeprefix("spark.").strip("."):
            raise UserError(
                "BAD_OPTION",
                f"--conf {one!r} is no setting of Spark's",
                hint="As in spark.executor.memory=2g.",
            )
        if key in _OWN:
            instead = _OWN[key]
            raise UserError(
                "BAD_OPTION",
                f"{key} is not set with --conf",
                hint=f"Use {instead}." if instead else "It is Penstock's own.",
            )
        said[key] = value
    return said


def as_reduced(app: App | JobsApp, stream: str | None) -> App | JobsApp:
    """An application as it was loaded, or as it reads a stream that agents have reduced."""
    if stream is None:
        return app
    if not isinstance(app, JobsApp) or app.streams or app.queries or app.functions:
        raise UserError(
            "NOT_REDUCIBLE",
            "agents reduce for jobs in a file of SQL",
            hint="Give agents and engine the same .sql file.",
        )
    return reduction_of(app.sql, stream, app.name).engine_app()


def as_seconds(text: str, option: str) -> float:
    """A duration an option gave; must be more than nothing."""
    amount = microseconds(text) / 1e6 if not _number(text) else float(text)
    if amount <= 0:
        raise UserError("BAD_OPTION", f"{option} needs a time longer than nothing", hint='Such as "30s".')
    return amount


def _number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text.strip()) is not None


def as_interval(text: str) -> int | None:
    """A checkpoint interval that an option gave; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise UserError(
            "BAD_OPTION", f"--checkpoint-every is {text}", hint="Use auto, or a number of epochs, 1 or more."
        )
    return int(text)


def default_state(name: str) -> Path:
    """Where an app's state lies unless somebody says otherwise: beside where one runs."""
    return Path(".penstock") / (re.sub(r"[^\w.-]+", "-", name).strip(".-") or "app")

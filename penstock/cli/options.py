"""Options that several commands share, each declared once, and the values they parse to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.catalogue.agent_reduction import compile_reduction
from penstock.catalogue.jobs_app import JobsApp
from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.ha.schemes import Scheme, Semantics
from penstock.query.logical import App
from penstock.size import byte_count

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
        help="A setting of Spark, such as spark.executor.memory=2g, or a limit, such as "
        "penstock.result_log_bytes=8GB; may be repeated.",
    ),
]
Reduced = Annotated[
    str | None,
    typer.Option(
        metavar="STREAM",
        help="The stream that agents reduce for the jobs of the file (penstock agent --reduce).",
    ),
]
#: the settings of Penstock that --conf takes: limits, which are the same for every engine of a unit
LIMITS = (
    *("job_seconds", "job_memory_bytes", "job_result_bytes", "job_share"),
    *("result_log_bytes", "side_output_bytes", "side_output_days", "manifests_kept", "cache_bytes"),
    *("catch_up_seconds", "catch_up_bytes", "epoch_interval_seconds", "small_epoch_bytes"),
)
_WHOLE = ("manifests_kept",)
_MOST = 1e9
#: what Penstock sets itself, and the option for it
_OWN = {"spark.master": "--master", "spark.app.name": None}


def as_engine_settings(conf: list[str] | None) -> dict[str, Any]:
    """The settings of --conf by their names in `Settings`; Spark's under `spark`. The last value of a key counts."""
    settings: dict[str, Any] = {"spark": {}}
    for one in conf or ():
        key, equals, value = one.partition("=")
        kind, _, name = key.partition(".")
        if equals and kind == "penstock":
            settings[name] = _as_limit(name, value)
        elif equals and kind == "spark" and name.strip("."):
            settings["spark"][key] = _check_not_own(key, value)
        else:
            raise UserError(
                "BAD_OPTION",
                f"--conf {one!r} is neither a setting of Spark nor one of Penstock",
                hint="Write for example spark.executor.memory=2g or penstock.result_log_bytes=8GB.",
            )
    return settings


def _check_not_own(key: str, value: str) -> str:
    if key in _OWN:
        instead = _OWN[key]
        raise UserError(
            "BAD_OPTION",
            f"{key} cannot be set with --conf",
            hint=f"Use {instead}." if instead else "Penstock sets it itself.",
        )
    return value


def _as_limit(name: str, value: str) -> int | float:
    """The value of a limit."""
    if name not in LIMITS:
        raise UserError(
            "BAD_OPTION",
            f"penstock.{name} cannot be set with --conf",
            hint=f"What can: {', '.join(f'penstock.{one}' for one in LIMITS)}.",
        )
    if name.endswith("_bytes"):
        return byte_count(value if not value.isdigit() else int(value))
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MOST or (name in _WHOLE and (number < 1 or number != int(number))):
        what = "a whole number from 1 on" if name in _WHOLE else "a number from 0 on"
        raise UserError("BAD_OPTION", f"--conf penstock.{name}={value}: it is {what}")
    return int(number) if name in _WHOLE else number


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

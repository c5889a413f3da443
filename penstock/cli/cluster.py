"""`penstock cluster`: starts, shows, disturbs and stops a local cluster of real Spark processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.command_line import program_name
from penstock.cluster.local import LocalCluster
from penstock.cluster.topology import PINS, Pin, format_cpu_list
from penstock.errors import UserError

cluster_app = typer.Typer(
    no_args_is_help=True,
    help="Start and stop a local cluster: a Spark master and workers as processes of this machine.",
)

Directory = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="Where the cluster keeps its record, logs and scratch files."),
]
WorkerName = Annotated[str, typer.Argument(metavar="WORKER", help="A worker's name, as `status` shows it.")]
_DEFAULT = Path(".penstock") / "cluster"


@cluster_app.command()
def up(
    workers: Annotated[int, typer.Option(min=1, help="Workers to start.")] = 2,
    cores_per_worker: Annotated[
        int, typer.Option(min=1, help="Tasks that a worker executes at the same time.")
    ] = 1,
    memory: Annotated[str, typer.Option(help="Memory that a worker offers to executors.")] = "1g",
    pin: Annotated[str, typer.Option(help=f"How to pin workers to processors: {', '.join(PINS)}.")] = "cores",
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Give each worker a loopback address of its own, so that Spark treats it as another machine.",
        ),
    ] = False,
    directory: Directory = _DEFAULT,
) -> None:
    """Start a master and workers that listen on loopback only."""
    cluster, console = LocalCluster(directory), Console(highlight=False)
    url = cluster.up(workers, cores_per_worker, parse_megabytes(memory), cast(Pin, pin), apart=apart)
    console.print(Text(f"up: {url}", style="green"), soft_wrap=True)
    console.print(f"use it: {program_name()} run app.py --master {url}", soft_wrap=True)


@cluster_app.command()
def down(directory: Directory = _DEFAULT) -> None:
    """Stop the cluster: the master, the workers and the executors they started."""
    Console(highlight=False).print(f"down: {LocalCluster(directory).down()} processes stopped")


@cluster_app.command()
def status(directory: Directory = _DEFAULT) -> None:
    """Show the master, the workers and the applications that use them."""
    cluster, console = LocalCluster(directory).status(), Console(highlight=False)
    life = "alive" if cluster.alive else "DEAD"
    console.print(Text(f"{cluster.url}  {life}  {cluster.web_url}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("worker", "", "pid", "cores", "used", "pinned to", "executors"):
        table.add_column(title)
    for worker in cluster.workers:
        table.add_row(
            worker.name,
            Text("alive", style="green") if worker.alive else Text("dead", style="red"),
            str(worker.pid),
            str(worker.cores),
            str(worker.cores_used),
            "-" if worker.cpus is None else format_cpu_list(worker.cpus),
            ", ".join(f"{app}/{executor}" for app, executor in worker.executors) or "-",
        )
    console.print(table)
    for name, cores in cluster.apps:
        console.print(f"{name} uses {cores} cores")


@cluster_app.command()
def kill(worker: WorkerName, directory: Directory = _DEFAULT) -> None:
    """Kill a worker and its executors at once, to try what happens."""
    Console(highlight=False).print(f"killed: {LocalCluster(directory).kill(worker)} processes of {worker}")


@cluster_app.command()
def add(
    workers: Annotated[int, typer.Option(min=1, help="Workers to add.")] = 1, directory: Directory = _DEFAULT
) -> None:
    """Start more workers of the same size."""
    Console(highlight=False).print(f"added: {', '.join(LocalCluster(directory).add(workers))}")


@cluster_app.command()
def remove(worker: WorkerName, directory: Directory = _DEFAULT) -> None:
    """Stop a worker and its executors, and remove it from the cluster."""
    LocalCluster(directory).remove(worker)
    Console(highlight=False).print(f"removed: {worker}")


def parse_megabytes(text: str) -> int:
    """Megabytes of an amount of memory in Spark's notation: 512m, 2g."""
    match = re.fullmatch(r"\s*(\d+)\s*([mg])b?\s*", text.lower())
    if match is None:
        raise UserError(
            "BAD_OPTION", f"--memory {text!r} is not an amount", hint="Write for example 512m or 2g."
        )
    return int(match[1]) * (1024 if match[2] == "g" else 1)

"""`penstock cluster`: a local cluster of real Spark processes, started, looked at, disturbed and ended."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import program
from penstock.cluster.local import LocalCluster
from penstock.cluster.topology import PINS, Pin, written_list
from penstock.errors import UserError

cluster_app = typer.Typer(
    no_args_is_help=True, help="A local cluster: Spark's master and workers as processes of this machine."
)

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where the cluster keeps its facts, logs and scratch.")
]
WorkerName = Annotated[str, typer.Argument(metavar="WORKER", help="A worker's name, as `status` shows it.")]
_DEFAULT = Path(".penstock") / "cluster"


@cluster_app.command()
def up(
    workers: Annotated[int, typer.Option(min=1, help="Workers to start.")] = 2,
    cores_per_worker: Annotated[int, typer.Option(min=1, help="Tasks a worker runs at once.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory a worker offers to executors.")] = "1g",
    pin: Annotated[str, typer.Option(help=f"Bind workers to processors: {', '.join(PINS)}.")] = "cores",
    apart: Annotated[
        bool,
        typer.Option("--apart", help="A loopback address for each worker, as if on machines of their own."),
    ] = False,
    directory: Directory = _DEFAULT,
) -> None:
    """Start a master and workers, bound to loopback."""
    cluster, console = LocalCluster(directory), Console(highlight=False)
    url = cluster.up(workers, cores_per_worker, megabytes(memory), cast(Pin, pin), apart=apart)
    console.print(Text(f"up: {url}", style="green"), soft_wrap=True)
    console.print(f"use it: {program()} run app.py --master {url}", soft_wrap=True)


@cluster_app.command()
def down(directory: Directory = _DEFAULT) -> None:
    """End the cluster: master, workers and the executors they started."""
    Console(highlight=False).print(f"down: {LocalCluster(directory).down()} processes ended")


@cluster_app.command()
def status(directory: Directory = _DEFAULT) -> None:
    """Show the master, the workers and who uses them."""
    found, console = LocalCluster(directory).status(), Console(highlight=False)
    console.print(Text(f"{found.url}  {'alive' if found.alive else 'DEAD'}  {found.web_url}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("worker", "", "pid", "cores", "used", "pinned to", "executors"):
        table.add_column(title)
    for worker in found.workers:
        table.add_row(
            worker.name,
            Text("alive", style="green") if worker.alive else Text("dead", style="red"),
            str(worker.pid),
            str(worker.cores),
            str(worker.cores_used),
            "-" if worker.cpus is None else written_list(worker.cpus),
            ", ".join(f"{app}/{executor}" for app, executor in worker.executors) or "-",
        )
    console.print(table)
    for name, cores in found.apps:
        console.print(f"{name} uses {cores} cores")


@cluster_app.command()
def kill(worker: WorkerName, directory: Directory = _DEFAULT) -> None:
    """Kill a worker and the executors on it at once, to try what happens."""
    Console(highlight=False).print(f"killed: {LocalCluster(directory).kill(worker)} processes of {worker}")


@cluster_app.command()
def add(
    workers: Annotated[int, typer.Option(min=1, help="Workers to add.")] = 1, directory: Directory = _DEFAULT
) -> None:
    """Start further workers of the same size."""
    Console(highlight=False).print(f"added: {', '.join(LocalCluster(directory).add(workers))}")


@cluster_app.command()
def remove(worker: WorkerName, directory: Directory = _DEFAULT) -> None:
    """End a worker and the executors on it, and forget it."""
    LocalCluster(directory).remove(worker)
    Console(highlight=False).print(f"removed: {worker}")


def megabytes(text: str) -> int:
    """An amount of memory as Spark's users write it: 512m, 2g."""
    found = re.fullmatch(r"\s*(\d+)\s*([mg])b?\s*", text.lower())
    if found is None:
        raise UserError("BAD_OPTION", f"--memory {text!r} is not an amount", hint="Such as 512m or 2g.")
    return int(found[1]) * (1024 if found[2] == "g" else 1)

"""Runs one engine of an HA unit; the coordinator starts it.

It is not a command of `penstock`: it loads only what an engine needs, which saves a second of its start.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.cli.entry import run_cli
from penstock.cli.load_app import served_app
from penstock.ha.schemes import Semantics
from penstock.ha.unit import Kind, Unit
from penstock.query.logical import App
from penstock.replica.replica import Replica
from penstock.settings import Settings


def engine_process(
    state: Annotated[Path, typer.Option(help="The state directory of the unit.")],
    name: Annotated[str, typer.Option(help="The engine's name in the unit.")],
    kind: Annotated[str, typer.Option(help="passive or active.")] = "passive",
) -> None:
    """One engine of an HA unit; the coordinator starts it."""
    unit = Unit.at(state)
    launch = unit.launch
    app = served_app(Path(launch.file) if launch.file else None, empty=not launch.file)
    settings = Settings(
        state=state,
        master=launch.master,
        slices=launch.slices,
        epoch_seconds=launch.epoch_seconds,
        drain=launch.drain,
    )
    semantics = Semantics(launch.recovery.get("semantics", "precise"))
    settings = replace(settings, semantics=semantics, **launch.settings)
    chosen: Kind = "active" if kind == "active" else "passive"
    Replica(unit, name, chosen, Programs(app, unit.root, served=launch.served), settings, _print_line).run()


class Programs:
    """The program of an app for the engines of a unit on a state directory; an app is compiled once.

    Commands, results and failures lie in the directory that the unit was started on, for all its engines, whichever
    directory they run on. Where it is `served`, the service accepts commands as well.
    """

    def __init__(self, app: App | JobsApp, root: Path, *, served: bool = False) -> None:
        self._app = AppPlan.of(app) if isinstance(app, App) else app
        self._root, self._served = root, served

    def __call__(self) -> Program:
        return program_of(self._app, self._root, shared=self._served)


def _print_line(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    alone = typer.Typer()
    alone.command()(engine_process)
    run_cli(alone)

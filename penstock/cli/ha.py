"""`penstock ha`: shows an HA unit, switches its scheme, stops it; starts a node; lists the schemes.

The simulator of the controller is in `ha_simulate`.
"""

from __future__ import annotations

import contextlib
import json as json_text
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.ha_simulate import JsonOption, simulate, sweep
from penstock.cli.tables import plain_table
from penstock.cli.unit import call_on_signal, print_line, read_unit_facts
from penstock.cli.unit_tables import draw_unit
from penstock.coordination.address import open_store
from penstock.errors import ExternalError, UserError
from penstock.ha.coordinator import wait_for
from penstock.ha.nodes import Node
from penstock.ha.schemes import SCHEMES, SEMANTICS, Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord, kind_of
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_unit
from penstock.server.status_client import request_metrics

ha_app = typer.Typer(
    help="Show, switch and stop HA units; simulate the controller that chooses schemes.",
    no_args_is_help=True,
)
ha_app.command("simulate")(simulate)
ha_app.command("sweep")(sweep)

#: how long the leader may take to answer
_PATIENCE_SECONDS = 2.0

UnitState = Annotated[
    Path, typer.Option(help="The state directory on which the unit was started.", metavar="DIR")
]


@ha_app.command()
def schemes(json: JsonOption = False) -> None:
    """List the six schemes and the four recovery semantics."""
    if json:
        plain = [facts.to_plain() for facts in SCHEMES.values()]
        meanings = {str(name): facts.meaning for name, facts in SEMANTICS.items()}
        print(json_text.dumps({"schemes": plain, "semantics": meanings}))
        return
    table = plain_table("scheme", "second engine", "on failure")
    for scheme in SCHEMES.values():
        table.add_row(str(scheme.scheme), scheme.secondary, ", ".join(scheme.on_failure))
    console = Console(highlight=False)
    console.print(table)
    console.print()
    for name, semantics in SEMANTICS.items():
        console.print(Text(f"{name}: {semantics.meaning}"))


@ha_app.command()
def status(
    state: UnitState,
    json: JsonOption = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print all metrics for Prometheus.")] = False,
) -> None:
    """Show an HA unit: scheme, leader, progress of each engine, past recoveries."""
    with _unit_of(state) as unit:
        facts = read_unit_facts(unit)
    if json:
        print(json_text.dumps(facts, indent=1))
        return
    if metrics:
        print(_export_metrics(facts), end="")
        return
    console = Console(highlight=False) if Console().is_terminal else Console(highlight=False, width=160)
    console.print(draw_unit(facts), soft_wrap=True)


def _export_metrics(unit: dict[str, Any]) -> str:
    """All metrics of a unit and, where it can be reached, of its leader."""
    registry, of_leader = Registry(), ""
    set_unit(registry, unit)
    with contextlib.suppress(ExternalError):  # it is on another host, or busy
        of_leader = request_metrics(Path(unit["directory"]), _PATIENCE_SECONDS)
    return expose(registry) + of_leader


@ha_app.command()
def switch(
    scheme: Annotated[str, typer.Argument(help="The new scheme, or auto to let the controller choose.")],
    state: UnitState,
    wait: Annotated[float, typer.Option(help="Seconds to wait until the switch is complete.")] = 0.0,
) -> None:
    """Switch the scheme of a running unit. The choice stays until `switch auto` returns it to the controller."""
    with _unit_of(state) as unit:
        before = unit.record().scheme
        if scheme == "auto":
            if "threshold_seconds" not in unit.launch.recovery:
                raise UserError(
                    "NO_RECOVERY_TIME",
                    "the controller does not know how long a recovery may take",
                    hint="Start the unit again with --recovery-time; its engines keep running meanwhile.",
                )
            unit.switch_scheme(before, controlled=True)
            print_line(f"{before}; from now on the controller chooses")
            return
        try:
            wanted = Scheme(scheme)
        except ValueError:
            raise UserError(
                "BAD_OPTION", f"there is no scheme {scheme!r}", hint=f"Use auto, {', '.join(Scheme)}."
            ) from None
        unit.switch_scheme(wanted, controlled=False)
        if wait and not wait_for(unit, _is_switch_complete, wait):
            raise ExternalError(
                "SWITCH_UNDER_WAY",
                f"the second engine of {wanted} is not ready after {wait:g} s",
                hint="The switch continues: see `penstock ha status`. If the leader fails meanwhile, the engines that "
                "are up recover.",
            )
        print_line(f"{before} -> {wanted}")


def _is_switch_complete(record: UnitRecord, engines: dict[str, UnitEngine]) -> bool:
    """Whether there is a leader, and a second engine as the scheme needs it."""
    if record.leader not in engines:
        return False
    others = [engine for name, engine in engines.items() if name != record.leader]
    wanted = kind_of(record.scheme)
    if wanted is None:
        return not others
    return [engine.kind for engine in others] == [wanted] and others[0].phase in ("ready", "following")


@ha_app.command()
def stop(state: UnitState) -> None:
    """Stop all engines of a unit, after the epoch under way."""
    with _unit_of(state) as unit:
        unit.change(lambda now: replace(now, phase="stopping") if now.phase == "running" else now)
        if not wait_for(unit, lambda _, engines: not engines, 120):
            raise ExternalError("UNIT_NOT_STOPPED", "engines are still up after two minutes")
        print_line("stopped")


@ha_app.command()
def node(
    coordination: Annotated[
        str, typer.Option(help="The coordination store of the units: a directory, or zk://host:port/root.")
    ],
    name: Annotated[str, typer.Option(help="The node's name.", show_default="the host's name")] = "",
) -> None:
    """Let coordinators of HA units start engines on this host, until Ctrl-C. Engines that were started keep running.

    Whoever can write to the store can run any app of the shared file system here.
    """
    with contextlib.closing(open_store(coordination)) as store:
        node = Node(store, name or socket.gethostname(), report=print_line)
        call_on_signal(node.stop)
        print_line(f"node {node.name}, coordination store {store.describe()}")
        node.run()


@contextlib.contextmanager
def _unit_of(state: Path) -> Iterator[Unit]:
    with contextlib.closing(Unit.at(state)) as unit:
        yield unit

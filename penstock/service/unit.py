"""`penstock run --ha` as its coordinator runs it, and `penstock ha status`, `switch` and `stop` of a unit.

Receives a unit's record and members; hands people a table, or JSON.
"""

from __future__ import annotations

import json as json_text
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.engine.member import refuse_jobs
from penstock.ha.coordinator import Coordinator, wait_for
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Launch, Member, Unit, UnitRecord, kind_of
from penstock.jobs.app import JobsApp
from penstock.query.logical import App
from penstock.service.figures import size
from penstock.state.directory import StateDirectory
from penstock.words.errors import ExternalError, InternalError, PenstockError, UserError

UnitState = Annotated[Path, typer.Option(help="The state directory the unit was started on.", metavar="DIR")]


def serve_unit(
    app: App | JobsApp,
    place: Path,
    launch: Launch,
    scheme: Scheme | None,
    for_seconds: float | None,
    again: str,
) -> None:
    """Coordinate a unit until it is done or somebody stops it. `again` is the command that goes on."""
    first = scheme or (Scheme.passive_hot if isinstance(app, JobsApp) else Scheme.active_standby)
    if isinstance(app, JobsApp):
        refuse_jobs(first)
    unit = Unit.made(place, launch)
    try:
        unit.begun(UnitRecord(first, str(unit.root)))
        unit.change(lambda now: replace(now, phase="running", errors=()))
        if scheme is not None:
            unit.switched(scheme)
        _say(f"unit {launch.unit}, scheme {unit.record().scheme}, coordination store {unit.store.describe()}")
        coordinator = Coordinator(unit, tell=_say)
        _stop_by_signal(coordinator)
        ended = coordinator.run(for_seconds)
    finally:
        unit.close()
    if ended.phase == "failed" and ended.errors:
        _, code, text, _ = ended.errors[-1]
        raise _error(code, text, str(unit.log(ended.errors[-1][0])))
    told = "all is read" if ended.phase == "done" else "stopped"
    _say(f"{told}; {len(ended.recoveries)} recoveries so far. To go on: {again}")


def status(
    state: UnitState,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show an HA unit: scheme, engines, who leads, how far each is, and its recoveries."""
    unit = Unit.at(state)
    try:
        told = facts(unit, unit.record(), {n: m for n, m in unit.members().items() if m.seems_up})
    finally:
        unit.close()
    console = Console(highlight=False) if Console().is_terminal else Console(highlight=False, width=160)
    if json:
        print(json_text.dumps(told, indent=1))
        return
    console.print(
        Text(
            f"unit {told['unit']}  {told['phase']}  scheme {told['scheme']}  generation {told['generation']}"
        )
    )
    console.print(Text(f"last epoch {told['last_epoch']}  state {told['directory']}"), soft_wrap=True)
    console.print(_engines(told))
    if told["recoveries"]:
        console.print(_recoveries(told))
    for name, values in told["measured"].items():
        console.print(
            Text(f"measured {name}: {values[-1]:,.3g} last, {max(values):,.3g} most, {len(values)} times")
        )


def switch(
    scheme: Annotated[Scheme, typer.Argument(help="The scheme from now on.")],
    state: UnitState,
    wait: Annotated[float, typer.Option(help="Wait so many seconds until it is in force.")] = 0.0,
) -> None:
    """Change the scheme of a unit while it runs."""
    unit = Unit.at(state)
    try:
        if unit.launch.file.endswith(".sql"):
            refuse_jobs(scheme)
        before = unit.record().scheme
        unit.switched(scheme)
        if wait and not wait_for(unit, _settled, wait):
            raise ExternalError(
                "SWITCH_UNDER_WAY",
                f"the second engine of {scheme} is not ready after {wait:g} s",
                hint="It goes on: see `penstock ha status`. Whoever is up takes over meanwhile if it must.",
            )
        _say(f"{before} -> {scheme}")
    finally:
        unit.close()


def stop(state: UnitState) -> None:
    """Have all engines of a unit end after the epoch under way."""
    unit = Unit.at(state)
    try:
        unit.change(lambda now: replace(now, phase="stopping") if now.phase == "running" else now)
        if not wait_for(unit, lambda _, members: not members, 120):
            raise ExternalError("UNIT_NOT_STOPPED", "engines are still up after two minutes")
        _say("stopped")
    finally:
        unit.close()


def _settled(record: UnitRecord, members: dict[str, Member]) -> bool:
    """Whether there is a leader, and a secondary as the scheme asks."""
    if record.leader not in members:
        return False
    others = [member for name, member in members.items() if name != record.leader]
    wanted = kind_of(record.scheme)
    if wanted is None:
        return not others
    return [member.kind for member in others] == [wanted] and others[0].phase in ("ready", "following")


def watched(state: Path) -> Callable[[], dict[str, Any] | None]:
    """What there is to say of the unit on a state directory, now and whenever it is asked; None while that cannot be
    read."""

    def look() -> dict[str, Any] | None:
        try:
            unit = Unit.at(state)
        except PenstockError:
            return None
        try:
            return facts(unit, unit.record(), {n: m for n, m in unit.members().items() if m.seems_up})
        except PenstockError:
            return None
        finally:
            unit.close()

    return look


def facts(unit: Unit, record: UnitRecord, members: dict[str, Member]) -> dict[str, Any]:
    """Everything there is to say of a unit, as JSON takes it."""
    epochs = StateDirectory(Path(record.directory)).epochs()
    last = epochs[-1] if epochs else None

    def role(name: str) -> str:
        return "primary" if name == record.leader and members[name].phase == "primary" else "secondary"

    return {
        "unit": unit.launch.unit,
        "phase": record.phase,
        "scheme": str(record.scheme),
        "generation": record.generation,
        "leader": record.leader if record.leader in members else None,
        "directory": record.directory,
        "last_epoch": last,
        "engines": {
            name: asdict(member)
            | {
                "role": role(name),
                "lag": None if last is None or member.epoch < 0 else max(last - member.epoch, 0),
            }
            for name, member in members.items()
        },
        "recoveries": [
            asdict(one) | {"detected_after": one.detected_after, "first_result_after": one.first_result_after}
            for one in record.recoveries
        ],
        "switches": [list(one) for one in record.switches],
        "measured": {name: list(values) for name, values in record.measured.items()},
        "errors": [list(one) for one in record.errors],
    }


def _engines(told: dict[str, Any]) -> Table:
    table = Table("engine", "role", "phase", "kind", "process", "epoch", "lag", "held", "cached")
    for name, one in told["engines"].items():
        lag = "-" if one["lag"] is None or one["role"] == "primary" else str(one["lag"])
        epoch = "-" if one["epoch"] < 0 else str(one["epoch"])
        process = f"{one['pid']} on {one['host']}"
        cells = (name, one["role"], one["phase"], one["kind"], process, epoch, lag, str(one["held"]))
        table.add_row(*cells, size(one["cached_bytes"]))
    return table


def _recoveries(told: dict[str, Any]) -> Table:
    table = Table("lost", "leads", "generation", "scheme", "detected after", "first result after")
    for one in told["recoveries"]:
        times = [
            "not seen" if one[name] is None else f"{one[name]:.2f} s"
            for name in ("detected_after", "first_result_after")
        ]
        table.add_row(one["lost"], one["leader"], str(one["generation"]), one["scheme"], *times)
    return table


def _stop_by_signal(coordinator: Coordinator) -> None:
    """The first Ctrl-C or SIGTERM lets all engines end after their epoch; the second leaves them to themselves."""
    if threading.current_thread() is not threading.main_thread():
        return

    def received(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.default_int_handler)
        coordinator.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, received)


def _error(code: int, text: str, log: str) -> PenstockError:
    """An engine's error, told as ours."""
    headline, *rest = text.splitlines()
    condition, _, primary = headline.strip("[").partition("] ")
    kind = {2: UserError, 3: ExternalError}.get(code, InternalError)
    return kind(condition, primary, detail=" ".join(rest) or None, hint=f"What the engine said is in {log}.")


def _say(line: str) -> None:
    print(line, flush=True)

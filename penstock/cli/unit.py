"""An HA unit as its coordinator begins and ends it, and `penstock ha status`, `switch` and `stop` of it.

Receives a unit's record and members; hands people a table, or JSON.
"""

from __future__ import annotations

import contextlib
import json as json_text
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.cli.unit_tables import drawn
from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.ha.claim import claim_unit, prepare_launch
from penstock.ha.coordinator import Coordinator, wait_for
from penstock.ha.launch import Launch
from penstock.ha.nodes import cancel_requests, start_on_node
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Member, Unit, UnitRecord, kind_of
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_unit
from penstock.server.status_client import request_status
from penstock.state.directory import StateDirectory

#: what a unit's phase comes to when nothing of it is up
_DOWN = {"running": "down", "stopping": "stopped"}

#: how long the engine that leads may take to answer, in seconds
_PATIENCE_SECONDS = 2.0

UnitState = Annotated[Path, typer.Option(help="The state directory the unit was started on.", metavar="DIR")]


def serve_unit(
    place: Path,
    launch: Launch,
    scheme: Scheme | None,
    for_seconds: float | None,
    again: str,
) -> None:
    """Coordinate a unit until it is done or somebody stops it. `again` is the command that goes on."""
    with begun_unit(place, launch, scheme) as unit:
        _say(told(unit))
        coordinator = Coordinator(unit, start_on_node, _say, cancel_requests, prepare_launch(unit, scheme))
        stop_by_signal(coordinator)
        ended = coordinator.run(for_seconds)
    check_ended(unit, ended)
    how = "all is read" if ended.phase == "done" else "stopped"
    _say(f"{how}; {len(ended.recoveries)} recoveries so far. To go on: {again}")


@contextlib.contextmanager
def begun_unit(place: Path, launch: Launch, scheme: Scheme | None) -> Iterator[Unit]:
    """The unit on a state directory, to be coordinated: the one that is there, as it is, or a new one."""
    unit = claim_unit(place, launch, scheme)
    try:
        yield unit
    finally:
        unit.close()


def told(unit: Unit) -> str:
    """A unit, in a line."""
    scheme, store = unit.record().scheme, unit.store.describe()
    return f"unit {unit.launch.unit}, scheme {scheme}, coordination store {store}"


def check_ended(unit: Unit, ended: UnitRecord) -> None:
    """Raise the error of its engines that a unit has ended with, if it has."""
    if ended.phase == "failed" and ended.errors:
        _, code, text, _ = ended.errors[-1]
        raise _error(code, text, str(unit.log(ended.errors[-1][0])))


def status(
    state: UnitState,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="All metrics for Prometheus.")] = False,
) -> None:
    """Show an HA unit: scheme, engines, who leads, how far each is, and its recoveries."""
    unit = Unit.at(state)
    try:
        said = facts(unit, unit.record(), {n: m for n, m in unit.members().items() if m.seems_up})
    finally:
        unit.close()
    if json:
        print(json_text.dumps(said, indent=1))
        return
    if metrics:
        print(exported(said), end="")
        return
    console = Console(highlight=False) if Console().is_terminal else Console(highlight=False, width=160)
    console.print(drawn(said), soft_wrap=True)


def exported(unit: dict[str, Any]) -> str:
    """All metrics of a unit and, where it can be asked, of the engine that leads."""
    registry, of_engine = Registry(), ""
    set_unit(registry, unit)
    with contextlib.suppress(ExternalError):  # it is on another host, or has no time
        of_engine = str(request_status(Path(unit["directory"]), "metrics", _PATIENCE_SECONDS))
    return expose(registry) + of_engine


def switch(
    scheme: Annotated[str, typer.Argument(help="The scheme from now on, or auto: the controller's.")],
    state: UnitState,
    wait: Annotated[float, typer.Option(help="Wait so many seconds until it is in force.")] = 0.0,
) -> None:
    """Change the scheme of a unit while it runs; what people choose stays until they say auto."""
    unit = Unit.at(state)
    try:
        before = unit.record().scheme
        if scheme == "auto":
            if "threshold_seconds" not in unit.launch.recovery:
                raise UserError(
                    "NO_RECOVERY_TIME",
                    "the controller does not know how long a recovery may take",
                    hint="Start the unit again with --recovery-time; its engines go on.",
                )
            unit.switch_scheme(before, controlled=True)
            _say(f"{before}, and what the controller picks from now on")
            return
        wanted = _scheme(scheme)
        unit.switch_scheme(wanted, controlled=False)
        if wait and not wait_for(unit, _settled, wait):
            raise ExternalError(
                "SWITCH_UNDER_WAY",
                f"the second engine of {wanted} is not ready after {wait:g} s",
                hint="It goes on: see `penstock ha status`. Whoever is up takes over meanwhile if it must.",
            )
        _say(f"{before} -> {wanted}")
    finally:
        unit.close()


def _scheme(name: str) -> Scheme:
    try:
        return Scheme(name)
    except ValueError:
        raise UserError(
            "BAD_OPTION", f"there is no scheme {name!r}", hint=f"Use auto, {', '.join(Scheme)}."
        ) from None


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
    epochs = StateDirectory(Path(record.directory)).manifests.epochs()
    durable = epochs[-1] if epochs else None
    leading = members.get(record.leader or "")
    # between two durable manifests the leader knows better
    last = durable if leading is None or leading.epoch < 0 else max(leading.epoch, durable or 0)

    def role(name: str) -> str:
        return "primary" if name == record.leader and members[name].phase == "primary" else "secondary"

    return {
        "unit": unit.launch.unit,
        "phase": record.phase if members or unit.list_up() else _DOWN.get(record.phase, record.phase),
        "scheme": str(record.scheme),
        "generation": record.generation,
        "leader": record.leader if record.leader in members else None,
        "directory": record.directory,
        "last_epoch": last,
        "durable_epoch": durable,
        "checkpoint_every": record.checkpoint_every,
        "controlled": record.controlled,
        #: how long a recovery may take; None where nobody said
        "threshold_seconds": unit.launch.recovery.get("threshold_seconds"),
        "controller": unit.controller(),
        "engines": {
            name: asdict(member)
            | {
                "role": role(name),
                "lag": None if last is None or member.epoch < 0 else max(last - member.epoch, 0),
                "lacks": [] if leading is None else list(leading.passed_over.get(name, ())),
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


def stop_by_signal(coordinator: Coordinator) -> None:
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

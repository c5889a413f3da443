"""Coordinates an HA unit in this process, for `penstock run --ha` and `serve --ha`; collects the facts of a unit."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.ha.claim import claim_unit, prepare_launch
from penstock.ha.coordinator import Coordinator
from penstock.ha.launch import Launch
from penstock.ha.nodes import cancel_requests, start_on_node
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord
from penstock.state.directory import StateDirectory

#: the phase that is shown instead when nothing of a unit is up
_DOWN = {"running": "down", "stopping": "stopped"}


def serve_unit(
    place: Path,
    launch: Launch,
    scheme: Scheme | None,
    for_seconds: float | None,
    resume: str,
) -> None:
    """Coordinate a unit until it is done or stopped. `resume` is the command that continues it."""
    with open_unit(place, launch, scheme) as unit:
        print_line(describe_unit(unit))
        coordinator = Coordinator(
            unit, start_on_node, print_line, cancel_requests, prepare_launch(unit, scheme)
        )
        stop_by_signal(coordinator)
        ended = coordinator.run(for_seconds)
    check_ended(unit, ended)
    how = "everything is read" if ended.phase == "done" else "stopped"
    print_line(f"{how}; {len(ended.recoveries)} recoveries so far. Continue with: {resume}")


@contextlib.contextmanager
def open_unit(place: Path, launch: Launch, scheme: Scheme | None) -> Iterator[Unit]:
    """The unit on a state directory, claimed for this coordinator: the existing one, or a new one."""
    with contextlib.closing(claim_unit(place, launch, scheme)) as unit:
        yield unit


def describe_unit(unit: Unit) -> str:
    """A unit in one line."""
    scheme, store = unit.record().scheme, unit.store.describe()
    return f"unit {unit.launch.unit}, scheme {scheme}, coordination store {store}"


def check_ended(unit: Unit, ended: UnitRecord) -> None:
    """Raise the error of its engines with which a unit has ended, if it has."""
    if ended.phase == "failed" and ended.errors:
        _, code, text, _ = ended.errors[-1]
        raise _engine_error(code, text, str(unit.log(ended.errors[-1][0])))


def watch_unit(state: Path) -> Callable[[], dict[str, Any] | None]:
    """A function that returns the facts of the unit on a state directory, or None while they cannot be read."""

    def read_facts() -> dict[str, Any] | None:
        try:
            with contextlib.closing(Unit.at(state)) as unit:
                return read_unit_facts(unit)
        except PenstockError:
            return None

    return read_facts


def read_unit_facts(unit: Unit) -> dict[str, Any]:
    """The facts of a unit as it is now."""
    engines = {name: engine for name, engine in unit.engines().items() if engine.seems_up}
    return unit_facts(unit, unit.record(), engines)


def unit_facts(unit: Unit, record: UnitRecord, engines: dict[str, UnitEngine]) -> dict[str, Any]:
    """Everything that is known of a unit, as plain values for JSON."""
    epochs = StateDirectory(Path(record.directory)).manifests.epochs()
    durable = epochs[-1] if epochs else None
    leader = engines.get(record.leader or "")
    # between two durable manifests only the leader knows the last epoch
    last = durable if leader is None or leader.epoch < 0 else max(leader.epoch, durable or 0)

    def role(name: str) -> str:
        return "primary" if name == record.leader and engines[name].phase == "primary" else "secondary"

    return {
        "unit": unit.launch.unit,
        "phase": record.phase if engines or unit.list_up() else _DOWN.get(record.phase, record.phase),
        "scheme": str(record.scheme),
        "generation": record.generation,
        "leader": record.leader if record.leader in engines else None,
        "directory": record.directory,
        "last_epoch": last,
        "durable_epoch": durable,
        "checkpoint_every": record.checkpoint_every,
        "controlled": record.controlled,
        #: how long a recovery may take; None if no controller was asked for
        "threshold_seconds": unit.launch.recovery.get("threshold_seconds"),
        "controller": unit.controller(),
        "engines": {
            name: asdict(engine)
            | {
                "role": role(name),
                "lag": None if last is None or engine.epoch < 0 else max(last - engine.epoch, 0),
                "lacks": [] if leader is None else list(leader.passed_over.get(name, ())),
            }
            for name, engine in engines.items()
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

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        coordinator.stop()

    call_on_signal(stop)


def call_on_signal(action: Callable[[], None]) -> None:
    """Call something on SIGINT and SIGTERM, in place of what they do by default."""
    if threading.current_thread() is not threading.main_thread():
        return

    def receive(number: int, frame: FrameType | None) -> None:
        action()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, receive)


def _engine_error(code: int, text: str, log: str) -> PenstockError:
    """The error of an engine, to be raised here."""
    headline, *rest = text.splitlines()
    condition, _, primary = headline.strip("[").partition("] ")
    kind = {2: UserError, 3: ExternalError}.get(code, InternalError)
    return kind(condition, primary, detail=" ".join(rest) or None, hint=f"The log of the engine is {log}.")


def print_line(line: str) -> None:
    print(line, flush=True)

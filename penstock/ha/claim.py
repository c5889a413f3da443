"""Claims the unit on a state directory for a coordinator, and applies what the command line requests of it.

Guarantees: an existing unit is not changed before the new coordinator has its lease. A directory of another
application's unit, or of a unit that is up elsewhere, is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.coordination.address import open_store
from penstock.errors import ExternalError, UserError
from penstock.ha.launch import Launch, read_launch, write_launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord
from penstock.ha.unit_controller import settings_of


def claim_unit(root: Path, launch: Launch, scheme: Scheme | None = None) -> Unit:
    """The unit on a state directory: the existing one, unchanged, or a new one."""
    root = root.resolve()
    existing = read_launch(root)
    if existing is not None:
        _reject_other_unit(root, existing, launch)
    known = existing is not None and (existing.unit, existing.coordination) == (
        launch.unit,
        launch.coordination,
    )
    unit = Unit(root, launch, open_store(launch.coordination)) if known else Unit.create(root, launch)
    first = (settings_of(launch).first_scheme if _is_controlled(launch) else scheme) or Scheme.active_standby
    try:
        unit.create_record(UnitRecord(first, str(unit.root)))
    except BaseException:
        unit.close()
        raise
    return unit


def prepare_launch(unit: Unit, scheme: Scheme | None) -> Callable[[], None]:
    """A function that applies the launch and the scheme to the unit; its coordinator calls it once it has the lease."""
    launch, controlled = unit.launch, _is_controlled(unit.launch)

    def change(now: UnitRecord) -> UnitRecord:
        every = now.checkpoint_every if controlled else 1
        every = launch.settings["checkpoint_every"] if not launch.settings["checkpoint_varies"] else every
        return replace(now, phase="running", errors=(), controlled=controlled, checkpoint_every=every)

    def prepare() -> None:
        write_launch(unit.root, launch)
        unit.change(change)
        if scheme is not None:
            unit.switch_scheme(scheme)

    return prepare


def _is_controlled(launch: Launch) -> bool:
    return "threshold_seconds" in launch.recovery


def _reject_other_unit(root: Path, existing: Launch, wanted: Launch) -> None:
    """Refuse another application's directory, and one whose unit is up under another name or at another store."""
    if _app_name(existing) != _app_name(wanted):
        raise UserError(
            "STATE_OF_ANOTHER_QUERY",
            f"the state directory {root} belongs to another application's unit",
            detail=f"It is {existing.unit}, of {existing.file or 'jobs over HTTP'}; this would be {wanted.unit}.",
            hint="Use another directory with --state; or stop that unit and use --fresh.",
        )
    if (existing.unit, existing.coordination) == (wanted.unit, wanted.coordination):
        return
    if "://" not in existing.coordination and not Path(existing.coordination).is_dir():
        return  # the directory was moved here, or its store is gone
    try:
        store = open_store(existing.coordination)
    except ExternalError:
        return  # without its store no engine of it can lead for long
    unit = Unit(root, existing, store)
    try:
        unit.require_down()
    finally:
        unit.close()


def _app_name(launch: Launch) -> str:
    """The application's part of a unit's name; the rest stands for the directory."""
    return launch.unit.rpartition("-")[0]

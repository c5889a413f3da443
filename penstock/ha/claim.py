"""Who may coordinate a unit on a state directory, and what is asked of the unit when its coordinator begins.

Receives a state directory and what the command line asked for; hands the unit, and a function that has all of it hold.

Guarantees: nothing of a unit that is there is changed before the coordinator that was asked has its lease; a directory
that is another application's unit, or whose unit is up elsewhere, is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.coordination.address import open_store
from penstock.errors import ExternalError, UserError
from penstock.ha.launch import Launch, read_launch, write_launch
from penstock.ha.schemes import Scheme
from penstock.ha.steering import settings_of
from penstock.ha.unit import Unit, UnitRecord


def claim_unit(root: Path, launch: Launch, scheme: Scheme | None = None) -> Unit:
    """The unit on a state directory: the one that is there, as it is, or a new one."""
    root = root.resolve()
    there = read_launch(root)
    if there is not None:
        _reject_other_unit(root, there, launch)
    known = there is not None and (there.unit, there.coordination) == (launch.unit, launch.coordination)
    unit = Unit(root, launch, open_store(launch.coordination)) if known else Unit.create(root, launch)
    first = (settings_of(launch).first_scheme if _is_controlled(launch) else scheme) or Scheme.active_standby
    try:
        unit.create_record(UnitRecord(first, str(unit.root)))
    except BaseException:
        unit.close()
        raise
    return unit


def prepare_launch(unit: Unit, scheme: Scheme | None) -> Callable[[], None]:
    """Has what the unit's launch and a scheme say hold; for its coordinator, once that has the lease."""
    launch, controlled = unit.launch, _is_controlled(unit.launch)

    def change(now: UnitRecord) -> UnitRecord:
        every = now.checkpoint_every if controlled else 1
        every = launch.settings["checkpoint_every"] if not launch.settings["checkpoint_varies"] else every
        return replace(now, phase="running", errors=(), controlled=controlled, checkpoint_every=every)

    def hold() -> None:
        write_launch(unit.root, launch)
        unit.change(change)
        if scheme is not None:
            unit.switch_scheme(scheme)

    return hold


def _is_controlled(launch: Launch) -> bool:
    return "threshold_seconds" in launch.recovery


def _reject_other_unit(root: Path, there: Launch, wanted: Launch) -> None:
    """Refuse another application's directory, and one whose unit is up under another name or at another store."""
    if _app_name(there) != _app_name(wanted):
        raise UserError(
            "STATE_OF_ANOTHER_QUERY",
            f"the state directory {root} belongs to another application's unit",
            detail=f"It is {there.unit}, of {there.file or 'jobs that came over HTTP'}; this would be {wanted.unit}.",
            hint="Choose another directory with --state; or, once nothing of that unit is up, begin anew with --fresh.",
        )
    if (there.unit, there.coordination) == (wanted.unit, wanted.coordination):
        return
    if "://" not in there.coordination and not Path(there.coordination).is_dir():
        return  # it was moved here, or its store is gone
    try:
        store = open_store(there.coordination)
    except ExternalError:
        return  # without its store no engine of it leads for long
    unit = Unit(root, there, store)
    try:
        unit.require_down()
    finally:
        unit.close()


def _app_name(launch: Launch) -> str:
    """The part of a unit's name that is its application's; the rest is the directory's."""
    return launch.unit.rpartition("-")[0]

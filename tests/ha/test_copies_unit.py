"""A unit over two folders that get the same lines: one is lost, then the primary; the output is as if nothing was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.unit import unit_facts
from penstock.cli.unit_tables import draw_unit
from penstock.ha.schemes import Scheme
from penstock.state.epoch_record import Offset
from tests.ha.unit_kit import Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


@pytest.mark.parametrize("scheme", [Scheme.active_standby, Scheme.passive_hot])
def test_a_lost_copy_and_a_lost_primary_change_nothing(scheme: Scheme, tmp_path: Path) -> None:
    kit = Kit(tmp_path / "unit", scheme, copies=True)
    try:
        kit.feeder.go()
        first = kit.until("one leads", kit.leader)
        second = kit.until("there is a second", kit.secondary)
        kit.until("the second has reported", lambda: kit.members()[second].reach.get("events"))
        kit.flowing()
        assert newest(kit).copies
        kit.feeder.lose(0)
        at = newest(kit).at["events"]
        kit.until("the other copy is read", lambda: newest(kit).at["events"] != at)
        kit.until("it is the second", lambda: set(copies(kit).values()) == {1})
        kit.kill(first)
        kit.until("another leads", lambda: kit.leader() not in (None, first))
        kit.flowing()
        kit.finish()
        assert set(copies(kit).values()) <= {1}
    finally:
        kit.close()


@pytest.mark.parametrize("scheme", [Scheme.active_standby, Scheme.passive_hot])
def test_an_engine_that_lacks_a_partition_is_passed_over_told_and_counts_again(
    scheme: Scheme, tmp_path: Path
) -> None:
    """The second engine reaches both copies, but of the second file none, until somebody mends that. Then it is the
    one to take over."""
    blind = [tmp_path / "unit" / f"{copy}-blind" for copy in ("in", "second")]
    for folder in blind:
        folder.mkdir(parents=True)
        (folder / "p0.log").symlink_to(tmp_path / "unit" / folder.name.removesuffix("-blind") / "p0.log")
    kit = Kit(tmp_path / "unit", scheme, copies=True, blind="e2", straggler_seconds=1.0)
    try:
        kit.feeder.go()
        first = kit.until("one leads", kit.leader)
        assert first == "e1"
        kit.until("there is a second", kit.secondary)
        kit.until("it is passed over", lambda: kit.members()[first].passed_over.get("e2"))
        (lacking,) = kit.members()[first].passed_over["e2"]
        assert lacking.startswith("events/")
        kit.flowing(5)
        at = newest(kit).at["events"]
        assert set(at) == {lacking.removeprefix("events/"), *kit.members()["e2"].reach["events"]}
        told = unit_facts(kit.unit, kit.record(), kit.members())
        assert told["engines"]["e2"]["lacks"] == [lacking]
        console = Console(width=200)
        with console.capture() as shown:
            console.print(draw_unit(told))
        assert f"the unit does not wait for e2, which still lacks data of {lacking}" in shown.get()
        assert f"does not wait for e2, which has no copy of {lacking}" in kit.told()
        for folder in blind:
            (folder / "p1.log").symlink_to(tmp_path / "unit" / folder.name.removesuffix("-blind") / "p1.log")
        kit.until("it lacks nothing any more", lambda: not kit.members()[first].passed_over)
        kit.until("it has caught up", lambda: kit.secondary() == "e2" and caught_up(kit, scheme))
        kit.kill(first)
        kit.until("it leads", lambda: kit.leader() == "e2")
        kit.flowing()
        kit.finish()
    finally:
        kit.close()


def caught_up(kit: Kit, scheme: Scheme) -> bool:
    """Whether an engine that repeats epochs has come to the last few."""
    return scheme is not Scheme.active_standby or kit.members()["e2"].epoch >= kit.epoch() - 3


def newest(kit: Kit) -> Offset:
    record = kit.unit.shared_records.read(kit.epoch())
    return Offset() if record is None else record.end


def copies(kit: Kit) -> Mapping[str, int]:
    return newest(kit).copies.get("events", {})

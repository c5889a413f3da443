"""A unit over two folders with the same lines loses one folder, then its leader; the output is undisturbed."""

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
def test_a_lost_copy_and_a_lost_leader_do_not_change_the_output(scheme: Scheme, tmp_path: Path) -> None:
    kit = Kit(tmp_path / "unit", scheme, copies=True)
    try:
        kit.feeder.start()
        first = kit.wait_until("an engine leads", kit.leader)
        follower = kit.wait_until("there is a follower", kit.follower)
        kit.wait_until(
            "the follower has reported its partitions", lambda: kit.engines()[follower].reach.get("events")
        )
        kit.wait_for_epochs()
        assert last_offset(kit).copies
        kit.feeder.remove_copy(0)
        at = last_offset(kit).at["events"]
        kit.wait_until("the other copy is read", lambda: last_offset(kit).at["events"] != at)
        kit.wait_until(
            "all partitions are read from the second copy", lambda: set(copies_read(kit).values()) == {1}
        )
        kit.kill(first)
        kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
        kit.wait_for_epochs()
        kit.finish()
        assert set(copies_read(kit).values()) <= {1}
    finally:
        kit.close()


@pytest.mark.parametrize("scheme", [Scheme.active_standby, Scheme.passive_hot])
def test_an_engine_that_lacks_a_partition_is_reported_and_waited_for_again_once_it_has_it(
    scheme: Scheme, tmp_path: Path
) -> None:
    """The follower reaches both copies of the first file, but none of the second, until that is fixed. Then it takes
    over."""
    blind = [tmp_path / "unit" / f"{copy}-blind" for copy in ("in", "second")]
    for folder in blind:
        folder.mkdir(parents=True)
        (folder / "p0.log").symlink_to(tmp_path / "unit" / folder.name.removesuffix("-blind") / "p0.log")
    kit = Kit(tmp_path / "unit", scheme, copies=True, blind="e2", straggler_seconds=1.0)
    try:
        kit.feeder.start()
        first = kit.wait_until("an engine leads", kit.leader)
        assert first == "e1"
        kit.wait_until("there is a follower", kit.follower)
        kit.wait_until("the leader does not wait for it", lambda: kit.engines()[first].passed_over.get("e2"))
        (lacking,) = kit.engines()[first].passed_over["e2"]
        assert lacking.startswith("events/")
        kit.wait_for_epochs(5)
        at = last_offset(kit).at["events"]
        assert set(at) == {lacking.removeprefix("events/"), *kit.engines()["e2"].reach["events"]}
        facts = unit_facts(kit.unit, kit.record(), kit.engines())
        assert facts["engines"]["e2"]["lacks"] == [lacking]
        console = Console(width=200)
        with console.capture() as shown:
            console.print(draw_unit(facts))
        assert f"the unit does not wait for e2, which still lacks data of {lacking}" in shown.get()
        assert f"does not wait for e2, which has no copy of {lacking}" in kit.read_logs()
        for folder in blind:
            (folder / "p1.log").symlink_to(tmp_path / "unit" / folder.name.removesuffix("-blind") / "p1.log")
        kit.wait_until("it lacks nothing", lambda: not kit.engines()[first].passed_over)
        kit.wait_until("it has caught up", lambda: kit.follower() == "e2" and has_caught_up(kit, scheme))
        kit.kill(first)
        kit.wait_until("an engine leads", lambda: kit.leader() == "e2")
        kit.wait_for_epochs()
        kit.finish()
    finally:
        kit.close()


def has_caught_up(kit: Kit, scheme: Scheme) -> bool:
    """Whether e2, where it executes epochs, has executed all but the last few."""
    return scheme is not Scheme.active_standby or kit.engines()["e2"].epoch >= kit.epoch() - 3


def last_offset(kit: Kit) -> Offset:
    record = kit.unit.shared_records.read(kit.epoch())
    return Offset() if record is None else record.end


def copies_read(kit: Kit) -> Mapping[str, int]:
    return last_offset(kit).copies.get("events", {})

"""Units on Spark: as in `test_unit`, with Spark sessions and the time that their start takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.ha.schemes import SCHEMES, Scheme
from tests.ha.test_unit import is_complete
from tests.ha.unit_kit import Kit

#: two Spark sessions start, one after the other, on a machine that may be busy
LONG = 300.0

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_killed_leader_on_spark_is_replaced_in_each_of_the_six_schemes(tmp_path: Path) -> None:
    """One unit, switched from scheme to scheme while events flow; in each scheme its leader is killed."""
    first, *others = SCHEMES
    kit = Kit(tmp_path / "unit", first, master="local[1]", lease_seconds=6.0, pause_seconds=0.5, count=6_000)
    try:
        kit.feeder.start()
        fail_over(kit, first)
        status = json.loads(
            CliRunner().invoke(cli, ["ha", "status", "--state", str(kit.root), "--json"]).stdout
        )
        assert status["scheme"] == first
        assert sorted(one["role"] for one in status["engines"].values()) == ["primary", "secondary"]
        for scheme in others:
            kit.unit.switch_scheme(scheme)
            fail_over(kit, scheme)
        shown = CliRunner().invoke(cli, ["ha", "status", "--state", str(kit.root)])
        assert shown.exit_code == 0
        assert "first result after" in shown.stdout
        kit.finish(LONG)
        assert [one.scheme for one in kit.record().recoveries] == list(SCHEMES)
        assert kit.record().generation == 1 + len(SCHEMES)
        assert not list(Path(kit.record().directory).glob("spark*")), "records and manifests are the only log"
    finally:
        kit.close()


def fail_over(kit: Kit, scheme: Scheme) -> None:
    """Kill the leader of a complete unit; wait until another one leads, epochs continue and the unit is complete."""
    kit.wait_until(f"{scheme} is complete", lambda: is_complete(kit, scheme), LONG)
    kit.wait_for_epochs(2)
    killed = kit.leader()
    assert killed is not None
    kit.kill(killed)
    kit.wait_until(f"another leads in {scheme}", lambda: kit.leader() not in (None, killed), LONG)
    kit.wait_for_epochs(2)
    kit.wait_until(f"{scheme} is complete again", lambda: is_complete(kit, scheme), LONG)

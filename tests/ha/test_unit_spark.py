"""Units on Spark: as in `test_unit`, with what Spark adds (its session, its checkpoint), one scheme of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.ha.schemes import Scheme
from penstock.state.directory import StateDirectory
from tests.ha.test_unit import stands
from tests.ha.unit_kit import Kit

#: two Spark sessions start, one after the other, on a machine that may be busy
LONG = 300.0

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "scheme", [Scheme.active_standby, pytest.param(Scheme.passive_hot, marks=pytest.mark.soak)]
)
def test_a_killed_primary_on_spark_is_replaced(scheme: Scheme, tmp_path: Path) -> None:
    kit = Kit(tmp_path / "unit", scheme, master="local[1]", lease_seconds=6.0, pause_seconds=0.5)
    try:
        kit.feeder.go()
        kit.until("the unit stands", lambda: stands(kit, scheme), LONG)
        kit.flowing(2)
        told = json.loads(
            CliRunner().invoke(cli, ["ha", "status", "--state", str(kit.root), "--json"]).stdout
        )
        assert told["scheme"] == scheme
        assert sorted(one["role"] for one in told["engines"].values()) == ["primary", "secondary"]
        first = kit.leader()
        assert first is not None
        kit.kill(first)
        kit.until("another leads", lambda: kit.leader() not in (None, first), LONG)
        assert kit.record().generation == 2
        kit.flowing(2)
        shown = CliRunner().invoke(cli, ["ha", "status", "--state", str(kit.root)])
        assert shown.exit_code == 0
        assert "first result after" in shown.stdout
        kit.finish(LONG)
        assert not list(Path(kit.record().directory).glob("spark*")), "records and manifests are the only log"
        assert StateDirectory(Path(kit.record().directory)).newest_generation == 2
    finally:
        kit.close()

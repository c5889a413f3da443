"""The commands of a unit: what they refuse, and what they show of a unit whose engines are down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.unit import open_unit
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery, Unit, UnitRecord, unit_name
from penstock.ha.unit_controller import UnitController, settings_of
from tests.cli.kit import run_command
from tests.metrics.text import parse

APP = """
import penstock as ps
clicks = ps.stream("clicks", ps.generated(total=500, live=False), ps.combined_log(), time="time")
app = ps.app("few", ps.output("all", clicks.select("path"), ps.jsonl("out")))
"""


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    root = tmp_path / "state"
    new_unit = Unit.create(
        root, Launch(unit_name("a b", root), str(tmp_path / "store"), "app.sql", str(tmp_path))
    )
    new_unit.create_record(UnitRecord(Scheme.passive_cold, str(root)))
    return new_unit


def test_options_of_a_unit_need_a_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    code, text = run_command(capsys, "run", "app.py", "--scheme", "deployed")
    assert code == 2
    assert "[BAD_OPTION]" in text
    code, text = run_command(capsys, "ha", "status", "--state", "nowhere")
    assert code == 2
    assert "[NO_UNIT]" in text


def test_jobs_may_have_any_scheme_and_start_with_the_same_default(
    unit: Unit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for scheme in Scheme:
        assert run_command(capsys, "ha", "switch", scheme, "--state", str(unit.root))[0] == 0
        assert unit.record().scheme is scheme
    recovery = {"threshold_seconds": 10.0}
    launch = replace(
        unit.launch,
        unit=unit_name("c", tmp_path / "other"),
        recovery=recovery,
        settings={"checkpoint_every": 1, "checkpoint_varies": False},
    )
    with open_unit(tmp_path / "other", launch, None) as other:
        assert other.record().scheme is Scheme.active_replication
        assert settings_of(other.launch).schemes == tuple(Scheme)


def test_a_unit_without_engines_is_shown_with_its_history(
    unit: Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    recovery = Recovery("e1", "e2", 2, "deployed", lease_at=12.0, failed_at=10.0, first_result_at=13.5)
    unit.change(
        lambda now: UnitRecord(
            Scheme.deployed, now.directory, recoveries=(recovery,), generation=2, leader="e2"
        ).add_measurements(detect=2.0)
    )
    code, text = run_command(capsys, "ha", "status", "--state", str(unit.root))
    assert code == 0
    assert "3.50 s" in text
    assert "measured detect" in text
    code, text = run_command(capsys, "ha", "status", "--state", str(unit.root), "--json")
    output = json.loads(text)
    assert code == 0
    assert output["leader"] is None, "the engine is not up"
    assert output["phase"] == "down"
    assert output["recoveries"][0]["first_result_after"] == 3.5
    code, text = run_command(capsys, "ha", "switch", "passive-hot", "--state", str(unit.root))
    assert "deployed -> passive-hot" in text
    assert unit.record().scheme is Scheme.passive_hot
    assert run_command(capsys, "ha", "stop", "--state", str(unit.root))[0] == 0
    assert unit.record().phase == "stopping"
    assert (
        json.loads(run_command(capsys, "ha", "status", "--state", str(unit.root), "--json")[1])["phase"]
        == "stopped"
    )
    session = unit.store.start_session(60.0)
    unit.register_coordinator(session)
    assert (
        json.loads(run_command(capsys, "ha", "status", "--state", str(unit.root), "--json")[1])["phase"]
        == "stopping"
    )
    session.close()


def test_an_unnoticed_failure_is_measured_from_the_last_result(
    unit: Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader that hangs does not end, but its lease does; the next leader takes it before the failure is noticed."""
    hanging = Recovery("e1", "e2", 2, "deployed", lease_at=12.0, last_result_at=9.0, first_result_at=13.5)
    unit.change(lambda now: UnitRecord(Scheme.deployed, now.directory, recoveries=(hanging,), generation=2))
    assert (hanging.detected_after, hanging.first_result_after) == (3.0, 4.5)
    text = run_command(capsys, "ha", "status", "--state", str(unit.root))[1]
    assert "at most 3.00 s" in text
    assert "at most 4.50 s" in text


def test_a_record_is_read_as_it_was_written(unit: Unit) -> None:
    record = UnitRecord(
        Scheme.active_standby,
        "d",
        pending={"e1": ("passive", 1.0)},
        leaving=("e2",),
        lost={"e0": 2.0},
        errors=(("e0", 3, "[X] y", 4),),
        recoveries=(Recovery("e0", "e1", 1, "deployed", 3.0),),
        switches=((1.0, "a", "b"),),
    ).add_measurements(start=1.5)
    assert UnitRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (["--recovery-time", "10s"], "BAD_OPTION"),  # no unit
        (["--cost", "cloud-vm"], "BAD_OPTION"),
        (["--ha", "--cost", "cloud-vm"], "BAD_OPTION"),  # no controller
        (["--ha", "--checkpoint-every", "auto"], "BAD_OPTION"),
        (["--ha", "--recovery-time", "10s", "--scheme", "deployed"], "BAD_OPTION"),
        (["--ha", "--recovery-time", "0s"], "BAD_OPTION"),
        (["--ha", "--straggler-time", "0s"], "BAD_OPTION"),
        (["--ha", "--recovery-time", "10s", "--cost", "gold=1"], "BAD_COST_WEIGHTS"),
        (["--checkpoint-every", "0"], "BAD_OPTION"),
        (["--checkpoint-every", "often"], "BAD_OPTION"),
        (["--checkpoint-every", "5", "--master", "spark://10.0.0.1:7077"], "CHECKPOINTS_APART"),
    ],
)
def test_invalid_options_of_recovery_are_refused(
    options: list[str],
    condition: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    code, text = run_command(capsys, "run", "app.py", *options)
    assert code == 2
    assert f"[{condition}]" in text


def test_a_manual_switch_turns_the_controller_off_and_auto_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "state"
    recovery = {"threshold_seconds": 10.0}
    launch = Launch(unit_name("c", root), str(tmp_path / "store"), "app.py", str(tmp_path), recovery=recovery)
    unit = Unit.create(root, launch)
    unit.create_record(UnitRecord(Scheme.active_replication, str(root), controlled=True))
    code, _ = run_command(capsys, "ha", "switch", "passive-cold", "--state", str(root))
    assert code == 0
    assert unit.record().scheme is Scheme.passive_cold
    assert not unit.record().controlled
    code, _ = run_command(capsys, "ha", "switch", "auto", "--state", str(root))
    assert code == 0
    assert unit.record().controlled
    code, text = run_command(capsys, "ha", "switch", "fastest", "--state", str(root))
    assert code == 2
    assert "[BAD_OPTION]" in text
    unit.close()


def test_status_shows_the_decision_of_the_controller_and_what_a_recovery_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "state"
    recovery = {"threshold_seconds": 10.0, "semantics": "gap"}
    launch = Launch(unit_name("c", root), str(tmp_path / "store"), "app.py", str(tmp_path), recovery=recovery)
    unit = Unit.create(root, launch)
    lost = Recovery(
        "e1",
        "e2",
        2,
        "deployed",
        12.0,
        10.0,
        13.5,
        estimated_seconds=7.25,
        semantics="gap",
        outcome={"lost_epochs": 3},
    )
    unit.create_record(
        UnitRecord(
            Scheme.active_replication, str(root), controlled=True, recoveries=(lost,), checkpoint_every=5
        )
    )
    UnitController(unit).look(unit.record(), {})
    unit.close()
    code, text = run_command(capsys, "ha", "status", "--state", str(root))
    assert code == 0
    assert "within 10 s, gap: on the safe side" in text
    assert "7.25 s" in text
    assert "epochs lost 3" in text
    assert "durable None, every 5" in text
    code, text = run_command(capsys, "ha", "status", "--state", str(root), "--json")
    assert json.loads(text)["controller"]["decision"]["chosen"] == "active-replication"
    for command in (("ha", "status"), ("status",)):
        code, text = run_command(capsys, *command, "--state", str(root), "--metrics")
        assert code == 0
        metrics = parse(text)
        assert metrics["penstock_unit_recoveries_total", ()] == 1
        assert metrics["penstock_unit_last_recovery_seconds", ()] == 3.5
        assert metrics["penstock_unit_recovery_threshold_seconds", ()] == 10

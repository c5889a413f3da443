"""Units of real engine processes: killed, switched, without a coordinator; the output is that of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.ha.schemes import SCHEMES, Scheme
from penstock.ha.unit import kind_of
from penstock.state.directory import StateDirectory
from penstock.testing.three_ways import rows_below
from tests import golden_query as golden
from tests.ha.unit_kit import APP, Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

Make = Callable[..., Kit]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Create a unit; close it after the test."""
    kits: list[Kit] = []

    def made(scheme: Scheme, **settings: Any) -> Kit:
        kits.append(Kit(tmp_path / "unit", scheme, **settings))
        return kits[-1]

    yield made
    for kit in kits:
        kit.close()


def is_complete(kit: Kit, scheme: Scheme) -> bool:
    """Whether the unit has all engines of its scheme, ready."""
    leader, engines = kit.leader(), kit.engines()
    others = [engine for name, engine in engines.items() if name != leader]
    kind = kind_of(scheme)
    if leader is None or kind is None:
        return leader is not None and not others
    return [engine.kind for engine in others] == [kind] and others[0].phase in ("ready", "following")


def count_epochs_in_memory(kit: Kit) -> int:
    """How many epochs are not in a durable manifest."""
    return kit.epoch() - max(StateDirectory(Path(kit.record().directory)).manifests.epochs(), default=-1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_killed_leader_is_replaced_and_nothing_is_lost_or_repeated(scheme: Scheme, make: Make) -> None:
    kit = make(scheme)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    kit.wait_for_epochs()
    first, before = kit.leader(), kit.record()
    assert first is not None
    kit.kill(first)
    kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
    after = kit.record()
    assert after.generation > before.generation
    assert after.recoveries[-1].lost == first
    kit.wait_for_epochs()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    kit.finish()
    recovery = kit.record().recoveries[-1]
    assert recovery.first_result_after is not None
    assert recovery.detected_after is not None
    if SCHEMES[scheme].runs_epochs:
        assert "replicas" in kit.record().directory


def test_the_controller_picks_a_scheme_that_recovers_within_the_threshold(make: Make) -> None:
    """It starts with active replication, measures, and picks a cheaper scheme, which recovers within the threshold."""
    recovery_settings = {"threshold_seconds": 90.0, "turn_seconds": 0.5, "cool_down_seconds": 2.0}
    kit = make(Scheme.active_replication, recovery=recovery_settings, count=3_000, pause_seconds=0.2)
    kit.wait_until("an engine leads", kit.leader)
    kit.feeder.start()
    kit.wait_until("it has picked a scheme", lambda: kit.record().scheme is not Scheme.active_replication)
    picked = kit.record().scheme
    kit.wait_until("the unit is complete", lambda: is_complete(kit, kit.record().scheme))
    changes = kit.wait_until("it has reported why", lambda: kit.unit.controller().get("changes"))
    assert "saves" in changes[0][1]
    assert kit.unit.controller()["decision"]["suits"]
    kit.wait_for_epochs()
    kit.replace_leader()
    kit.wait_for_epochs()
    recovery = kit.wait_until(
        "the recovery is measured", lambda: [one for one in kit.record().recoveries if one.estimated_seconds]
    )[-1]
    assert recovery.scheme == str(picked) or len(kit.record().switches) > 1
    kit.wait_until(
        "its first result is out", lambda: kit.record().recoveries[-1].first_result_after is not None
    )
    assert kit.record().recoveries[-1].first_result_after <= 90.0
    kit.finish()


@pytest.mark.parametrize(
    "scheme", [Scheme.passive_hot, pytest.param(Scheme.active_standby, marks=pytest.mark.soak)]
)
def test_a_unit_with_a_checkpoint_interval_loses_and_repeats_nothing(scheme: Scheme, make: Make) -> None:
    """Killed between two durable manifests: the epochs in memory only are repeated, on the unit's current directory."""
    kit = make(scheme, checkpoint_every=7, count=3_000, pause_seconds=0.2)
    kit.wait_until("an engine leads", kit.leader)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    for epochs in (9, 4):
        kit.wait_for_epochs(epochs)
        kit.wait_until("there is something to lose", lambda: count_epochs_in_memory(kit) >= 2)
        kit.replace_leader()
        kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    kit.finish()
    if scheme is Scheme.passive_hot:
        assert kit.record().recoveries[-1].outcome["replayed_epochs"] >= 1


def test_the_epochs_that_gap_recovery_loses_are_counted(make: Make) -> None:
    kit = make(
        Scheme.deployed, checkpoint_every=5, recovery={"semantics": "gap"}, count=3_000, pause_seconds=0.2
    )
    kit.wait_until("an engine leads", kit.leader)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.deployed))
    kit.wait_for_epochs(8)
    kit.wait_until("there is something to lose", lambda: count_epochs_in_memory(kit) >= 2)
    kit.replace_leader()
    kit.wait_until("its first result is out", lambda: kit.record().recoveries[-1].first_result_at)
    recovery = kit.record().recoveries[-1]
    assert recovery.semantics == "gap"
    assert recovery.outcome["lost_epochs"] >= 1
    assert recovery.outcome["lost_units"] >= 1


def test_both_engines_killed_at_once_come_back(make: Make) -> None:
    kit = make(Scheme.active_standby)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    kit.wait_for_epochs()
    before = kit.record()
    for name in kit.engines():
        kit.kill(name)
    kit.wait_until("another leads", lambda: kit.leader() not in (None, before.leader))
    assert kit.record().generation > before.generation
    kit.wait_for_epochs()
    kit.wait_until("there is a follower again", lambda: is_complete(kit, Scheme.active_standby))
    kit.finish()


def test_the_scheme_changes_while_events_flow(make: Make) -> None:
    """Passive to active and back, and within a kind; the follower takes over after a change too."""
    kit = make(Scheme.passive_replication)
    kit.feeder.start()
    kit.wait_until("an engine leads", kit.leader)
    for scheme in (Scheme.passive_cold, Scheme.active_standby, Scheme.active_replication, Scheme.deployed):
        kit.unit.switch_scheme(scheme)
        kit.wait_until(f"{scheme} is complete", lambda scheme=scheme: is_complete(kit, scheme))  # type: ignore[misc]
        kit.wait_for_epochs(2)
    assert kit.record().generation == 1, "no engine has failed: the leader stayed"
    kit.replace_leader()
    kit.unit.switch_scheme(Scheme.passive_replication)
    kit.wait_until("the leader is alone", lambda: is_complete(kit, Scheme.passive_replication))
    kit.finish()
    assert len(kit.record().switches) == 5


def test_a_follower_takes_over_without_a_coordinator_and_a_new_coordinator_finds_it(make: Make) -> None:
    kit = make(Scheme.active_replication)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_replication))
    kit.kill_coordinator()
    kit.wait_for_epochs()
    before, first = kit.engines(), kit.leader()
    assert first is not None
    kit.kill(first)
    kit.wait_until("the other leads, without a coordinator", lambda: kit.leader() not in (None, first))
    kit.wait_for_epochs()
    assert len(kit.engines()) == 1
    survivor = kit.engines()
    kit.start_coordinator()
    kit.wait_until("there is a follower again", lambda: is_complete(kit, Scheme.active_replication))
    assert survivor.keys() <= kit.engines().keys(), "it was found, not replaced"
    assert {engine.pid for engine in survivor.values()} < {engine.pid for engine in before.values()}
    kit.finish()


def test_a_paused_leader_is_replaced_and_ends_when_it_resumes(make: Make) -> None:
    kit = make(Scheme.passive_hot)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.passive_hot))
    kit.wait_for_epochs()
    first = kit.leader()
    assert first is not None
    pid = kit.engines()[first].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
        kit.wait_for_epochs()
    finally:
        os.kill(pid, signal.SIGCONT)
    kit.wait_until("it has ended", lambda: not is_running(pid))
    log = kit.unit.log(first).read_text()
    assert "[FENCED]" in log or "[LEASE_LOST]" in log
    kit.finish()


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_leader_that_loses_its_state_directory_is_replaced_by_the_follower(make: Make) -> None:
    kit = make(Scheme.active_standby)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    kit.wait_for_epochs()
    first = kit.leader()
    for part in ("generations", "runs", "manifests", "epochs"):
        os.rename(kit.root / part, kit.folder / f"lost-{part}")  # in one step: the leader continues to write
    kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
    kit.wait_for_epochs()
    kit.finish()


def test_recovery_falls_back_behind_a_damaged_newest_manifest(make: Make) -> None:
    kit = make(Scheme.passive_replication)
    kit.feeder.start()
    kit.wait_until("an engine leads", kit.leader)
    kit.wait_for_epochs()
    first = kit.leader()
    assert first is not None
    kit.kill(first)
    kit.wait_until("it has ended", lambda: first not in kit.engines() or not kit.engines()[first].seems_up)
    newest = max((kit.root / "manifests").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    kit.wait_until("another leads", lambda: kit.leader() not in (None, first))
    kit.wait_for_epochs()
    kit.finish()
    assert not kit.record().errors


def test_two_engines_that_both_deliver_write_every_row_once(make: Make) -> None:
    """Also in a table: active replication without a failure."""
    kit = make(Scheme.active_replication)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_replication))
    kit.wait_for_epochs()
    kit.finish()
    with closing(sqlite3.connect(kit.out / "out.db")) as database:
        table = sorted(map(str, database.execute("SELECT * FROM counts")))
    with closing(sqlite3.connect(kit.folder / "straight" / "out.db")) as database:
        assert table == sorted(map(str, database.execute("SELECT * FROM counts")))


def test_a_unit_that_has_read_everything_ends_and_continues_when_started_again(tmp_path: Path) -> None:
    """The command itself: to the end of its input, started again, refused without --ha, with --fresh."""
    (tmp_path / "in").mkdir()
    for name, lines in golden.lines(count=200).items():
        (tmp_path / "in" / f"{name}.log").write_text("".join(f"{line}\n" for line in lines))
    app = APP.format(pattern=str(tmp_path / "in" / "*.log"), out=str(tmp_path / "out"))
    (tmp_path / "app.py").write_text(app)

    command = [sys.executable, "-c", "from penstock.cli.commands import main; main()", "run", "app.py"]

    def run_command(*options: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, "--state", "state", "--master", "inline", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
        return done.returncode, done.stdout + done.stderr

    code, output = run_command("--ha", "--drain", "--scheme", "passive-replication")
    assert code == 0, output
    assert "everything is read" in output
    first = rows_below(tmp_path / "out")
    assert first["counts"]
    code, output = run_command("--drain")
    assert code == 2
    assert "[STATE_OF_A_UNIT]" in output
    with open(tmp_path / "in" / "p0.log", "a") as more:
        more.writelines(f"{line}\n" for line in golden.lines(count=400)["p0"][200:])
    code, output = run_command("--ha", "--drain")
    assert code == 0, output
    shutil.rmtree(tmp_path / "out")
    code, output = run_command("--ha", "--drain", "--fresh")
    assert code == 0, output
    again = rows_below(tmp_path / "out")
    assert set(first["paths"]) <= set(again["paths"])
    assert len(again["counts"]) >= len(first["counts"])


@pytest.mark.parametrize("scheme", [Scheme.active_replication, Scheme.passive_hot])
def test_an_engine_that_loads_another_version_of_the_file_does_not_follow(make: Make, scheme: Scheme) -> None:
    kit = make(scheme)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    kit.wait_for_epochs()
    leader, follower, file = kit.leader(), kit.follower(), kit.folder / "app.py"
    assert follower is not None
    text = file.read_text()
    file.write_text(text.replace('.join(">")', '.join("<")'))
    kit.kill(follower)
    kit.wait_until("an engine is refused", lambda: "REPLICA_RUNS_OTHER_CODE" in kit.read_logs())
    assert kit.leader() == leader
    file.write_text(text)
    kit.wait_until("another follows", lambda: is_complete(kit, scheme))
    kit.finish()


def test_an_engine_with_changed_code_leads_if_there_is_no_leader(make: Make) -> None:
    kit = make(Scheme.active_replication)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_replication))
    kit.wait_for_epochs()
    leader, follower, file = kit.leader(), kit.follower(), kit.folder / "app.py"
    assert leader is not None
    assert follower is not None
    file.write_text(file.read_text() + "\n\ndef unused() -> None:\n    pass\n")
    changed = file.read_text().replace(
        'ps.col("page").list.join(">")', 'ps.col("page").list.join(">", ignore_nulls=False)'
    )
    file.write_text(changed)
    kit.kill(follower)
    kit.kill(leader)
    kit.wait_until("another leads", lambda: kit.leader() not in (None, leader))
    kit.wait_until("the unit is complete again", lambda: is_complete(kit, Scheme.active_replication))
    kit.finish()

"""Who owns a state directory, and when the settings of a new coordinator take effect: once it holds the lease."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.commands import main
from penstock.cli.state import remove_state_directory
from penstock.coordination.contract import Session
from penstock.coordination.lease import acquire
from penstock.errors import ExternalError, PenstockError
from penstock.ha.claim import claim_unit, prepare_launch
from penstock.ha.coordinator import Coordinator, last_error
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Kind, Unit, UnitEngine, UnitRecord, unit_name
from penstock.state.directory import StateDirectory
from tests.ha.waiting import wait_until

APP = """
import polars as pl
import penstock as ps

lines = ps.stream("lines", ps.files("in/*.log"), ps.Delimited({"page": pl.String()}), time=None)
app = ps.app("NAME", ps.output("all", lines.select("page"), ps.jsonl("out")))
"""
#: longer than a busy machine stalls
LEASE_SECONDS = 4.0


def new_launch(root: Path, app: str = "mine", **changes: object) -> Launch:
    settings = {"checkpoint_every": 3, "checkpoint_varies": False}
    launch = Launch(
        unit_name(app, root),
        str(root / "ha" / "coordination"),
        "app.py",
        str(root.parent),
        lease_seconds=LEASE_SECONDS,
        settings=settings,
    )
    return replace(launch, **changes)  # type: ignore[arg-type]


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    claimed = claim_unit(tmp_path / "state", new_launch(tmp_path / "state"))
    yield claimed
    claimed.close()


@pytest.fixture
def other_coordinator(unit: Unit) -> Iterator[Session]:
    """The session of another coordinator of the unit, which holds the lease."""
    session = unit.store.start_session(60.0)
    unit.register_coordinator(session)
    assert acquire(unit.store, unit.coordinator_path, session) is not None
    yield session
    session.close()


def read_files(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "sessions" not in str(path)
    }


class StandbyCoordinator:
    """A second coordinator, on a thread; it starts no processes."""

    def __init__(self, unit: Unit, scheme: Scheme | None = Scheme.passive_cold) -> None:
        self.reports: list[str] = []
        restarted = Unit(unit.root, replace(unit.launch, epoch_seconds=7.0), unit.store)
        self.coordinator = Coordinator(
            restarted, self._start, self.reports.append, prepare=prepare_launch(restarted, scheme)
        )
        self.ended: list[UnitRecord] = []
        self.thread = threading.Thread(target=lambda: self.ended.append(self.coordinator.run()), daemon=True)
        self.thread.start()

    def _start(self, unit: Unit, name: str, kind: Kind) -> None:
        return None

    def stop(self) -> UnitRecord:
        self.coordinator.stop()
        return self.end()

    def end(self) -> UnitRecord:
        self.thread.join(60)
        assert self.ended, f"it has not ended: {self.reports}"
        return self.ended[0]


# -- ownership -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [(), ("--fresh",)], ids=["as it is", "fresh"])
def test_another_application_does_not_get_the_directory_of_a_live_unit(
    fresh: tuple[str, ...],
    unit: Unit,
    other_coordinator: Session,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text(APP.replace("NAME", "other"))
    before = read_files(unit.root)
    with pytest.raises(SystemExit) as exit_info:
        main(["run", "other.py", "--ha", "--state", str(unit.root), "--for", "1s", *fresh])
    error = capsys.readouterr().err
    assert ("UNIT_RUNNING" if fresh else "STATE_OF_ANOTHER_QUERY") in error
    assert exit_info.value.code == (3 if fresh else 2)
    assert read_files(unit.root) == before, "nothing is written"


def test_another_application_gets_the_directory_of_a_stopped_unit_only_once_it_is_removed(unit: Unit) -> None:
    other = new_launch(unit.root, "other")
    with pytest.raises(PenstockError, match="another application"):
        claim_unit(unit.root, other)
    remove_state_directory(unit.root)
    claim_unit(unit.root, other).close()
    assert json.loads((unit.root / "ha" / "unit.json").read_bytes())["unit"] == other.unit


def test_another_store_is_refused_while_the_unit_is_up(
    unit: Unit, other_coordinator: Session, tmp_path: Path
) -> None:
    elsewhere = replace(unit.launch, coordination=str(tmp_path / "elsewhere"))
    with pytest.raises(ExternalError, match="UNIT_RUNNING"):
        claim_unit(unit.root, elsewhere)
    other_coordinator.close()
    claim_unit(unit.root, elsewhere).close()


def test_a_directory_that_an_engine_holds_cannot_be_removed(unit: Unit) -> None:
    (unit.root / "penstock.json").write_text(json.dumps({"format": 1, "query": "q", "logs": {}}))
    holder = StateDirectory(unit.root)
    with holder.locked(), pytest.raises(ExternalError, match="STATE_IN_USE"):
        remove_state_directory(unit.root)
    assert unit.record().phase == "running"
    remove_state_directory(unit.root)
    assert not unit.root.exists()


@pytest.mark.parametrize("where", ["file", "/proc/nope"])
def test_a_state_directory_that_cannot_be_written_is_reported_as_such(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    Path("file").write_text("not a directory")
    with pytest.raises(SystemExit) as exit_info:
        main(["run", "app.py", "--ha", "--state", where])
    assert exit_info.value.code == 3
    assert "[STATE_UNWRITABLE]" in capsys.readouterr().err


# -- settings of a new coordinator -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_standby_coordinator_changes_nothing_until_it_has_the_lease(
    unit: Unit, other_coordinator: Session
) -> None:
    unit.change(lambda now: replace(now, controlled=True, checkpoint_every=9))
    before, launch_file = unit.record(), (unit.root / "ha" / "unit.json").read_bytes()
    standby = StandbyCoordinator(unit)
    wait_until("it stands by", lambda: any("stands by" in line for line in standby.reports))
    time.sleep(1.25 * LEASE_SECONDS)
    assert unit.record() == before
    assert (unit.root / "ha" / "unit.json").read_bytes() == launch_file
    other_coordinator.close()
    wait_until("its settings are in effect", lambda: unit.record().scheme is Scheme.passive_cold)
    assert (unit.record().controlled, unit.record().checkpoint_every) == (False, 3)
    assert json.loads((unit.root / "ha" / "unit.json").read_bytes())["epoch_seconds"] == 7.0
    assert any("active-standby -> passive-cold" in line for line in standby.reports)
    standby.stop()


def test_a_standby_coordinator_ends_when_the_unit_is_stopped(unit: Unit, other_coordinator: Session) -> None:
    standby = StandbyCoordinator(unit)
    wait_until("it stands by", lambda: any("stands by" in line for line in standby.reports))
    unit.change(lambda now: replace(now, phase="stopping"))
    other_coordinator.close()
    assert standby.end().phase == "stopping"
    assert unit.record().scheme is Scheme.active_standby


@pytest.mark.slow
def test_a_stop_under_way_is_not_undone_by_the_next_start(unit: Unit) -> None:
    unit.change(lambda now: replace(now, phase="stopping"))
    engine = unit.store.start_session(60.0)
    unit.join(engine, "e1", UnitEngine(os.getpid(), socket.gethostname(), "passive", engine.id))
    standby = StandbyCoordinator(unit)
    wait_until("it waits for the stop", lambda: any("is stopping" in line for line in standby.reports))
    time.sleep(1.0)
    assert unit.record().phase == "stopping"
    engine.close()
    wait_until("the unit runs again", lambda: unit.record().phase == "running")
    standby.stop()


# -- reports ----------------------------------------------------------------------------


@pytest.mark.process
def test_the_coordinator_reports_why_an_engine_ended(unit: Unit) -> None:
    reports: list[str] = []

    def start(unit: Unit, name: str, kind: Kind) -> subprocess.Popen[bytes]:
        log = unit.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        lines = ("starts", "[NO_UNIT_RECORD] it is not known", "  Hint: none")
        script = f"print({chr(10).join(lines)!r}); raise SystemExit(3)"
        with open(log, "wb") as out:
            return subprocess.Popen([sys.executable, "-c", script], stdout=out)

    coordinator = Coordinator(unit, start, reports.append)
    coordinator._look()
    wait_until(
        "it is reported", lambda: coordinator._look() or any("NO_UNIT_RECORD" in line for line in reports)
    )
    line = next(line for line in reports if "NO_UNIT_RECORD" in line)
    assert line.startswith("engine e1 ended with exit code 3: [NO_UNIT_RECORD] it is not known")


def test_without_an_error_the_last_line_of_its_log_is_reported(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("first\nTypeError: what it died of\n\n")
    assert last_error(tmp_path / "log") == "TypeError: what it died of"
    assert "cannot be read" in last_error(tmp_path / "none")


@pytest.mark.slow
def test_an_unavailable_store_is_reported_once_and_so_is_its_return(unit: Unit) -> None:
    standby, store = StandbyCoordinator(unit, None), unit.root / "ha" / "coordination"
    wait_until("it starts an engine", lambda: any("starting engine" in line for line in standby.reports))
    os.rename(store, store.with_name("away"))
    wait_until("it is reported", lambda: any("[STORE_UNAVAILABLE]" in line for line in standby.reports))
    time.sleep(1.25 * LEASE_SECONDS)
    os.rename(store.with_name("away"), store)
    wait_until("it is back", lambda: any("is back" in line for line in standby.reports))
    standby.stop()
    assert sum("[STORE_UNAVAILABLE]" in line for line in standby.reports) == 1
    assert sum("is back" in line for line in standby.reports) == 1

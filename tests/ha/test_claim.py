"""Whose a state directory is, and when what a coordinator was asked for holds: not before it has its lease."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
from penstock.ha.unit import Kind, Member, Unit, UnitRecord, unit_name
from penstock.state.directory import StateDirectory

APP = """
import polars as pl
import penstock as ps

lines = ps.stream("lines", ps.files("in/*.log"), ps.Delimited({"page": pl.String()}), time=None)
app = ps.app("NAME", ps.output("all", lines.select("page"), ps.jsonl("out")))
"""
#: longer than a busy machine stalls
LEASE_SECONDS = 4.0


def read_launch(root: Path, app: str = "mine", **changes: object) -> Launch:
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
    made = claim_unit(tmp_path / "state", read_launch(tmp_path / "state"))
    yield made
    made.close()


@pytest.fixture
def at_work(unit: Unit) -> Iterator[Session]:
    """Another coordinator of the unit, with its lease."""
    session = unit.store.start_session(60.0)
    unit.register_coordinator(session)
    assert acquire(unit.store, unit.coordinator_path, session) is not None
    yield session
    session.close()


def until(what: str, true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited until {what}"
        time.sleep(0.02)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "sessions" not in str(path)
    }


class Second:
    """A second coordinator, on a thread; it starts no processes."""

    def __init__(self, unit: Unit, scheme: Scheme | None = Scheme.passive_cold) -> None:
        self.told: list[str] = []
        again = Unit(unit.root, replace(unit.launch, epoch_seconds=7.0), unit.store)
        self.coordinator = Coordinator(
            again, self._start, self.told.append, prepare=prepare_launch(again, scheme)
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
        assert self.ended, f"it does not end: {self.told}"
        return self.ended[0]


# -- whose it is -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [(), ("--fresh",)], ids=["as it is", "fresh"])
def test_another_application_does_not_get_the_directory_of_a_live_unit(
    fresh: tuple[str, ...],
    unit: Unit,
    at_work: Session,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text(APP.replace("NAME", "other"))
    before = files(unit.root)
    with pytest.raises(SystemExit) as left:
        main(["run", "other.py", "--ha", "--state", str(unit.root), "--for", "1s", *fresh])
    said = capsys.readouterr().err
    assert ("UNIT_RUNNING" if fresh else "STATE_OF_ANOTHER_QUERY") in said
    assert left.value.code == (3 if fresh else 2)
    assert files(unit.root) == before, "nothing is written"


def test_a_unit_that_is_down_is_refused_to_another_application_and_gone_when_begun_anew(unit: Unit) -> None:
    other = read_launch(unit.root, "other")
    with pytest.raises(PenstockError, match="another application"):
        claim_unit(unit.root, other)
    remove_state_directory(unit.root)
    claim_unit(unit.root, other).close()
    assert json.loads((unit.root / "ha" / "unit.json").read_bytes())["unit"] == other.unit


def test_another_store_is_refused_while_the_unit_is_up(unit: Unit, at_work: Session, tmp_path: Path) -> None:
    elsewhere = replace(unit.launch, coordination=str(tmp_path / "elsewhere"))
    with pytest.raises(ExternalError, match="UNIT_RUNNING"):
        claim_unit(unit.root, elsewhere)
    at_work.close()
    claim_unit(unit.root, elsewhere).close()


def test_the_record_stays_while_an_engine_holds_the_directory(unit: Unit) -> None:
    (unit.root / "penstock.json").write_text(json.dumps({"format": 1, "query": "q", "logs": {}}))
    holder = StateDirectory(unit.root)
    with holder.locked(), pytest.raises(ExternalError, match="STATE_IN_USE"):
        remove_state_directory(unit.root)
    assert unit.record().phase == "running"
    remove_state_directory(unit.root)
    assert not unit.root.exists()


@pytest.mark.parametrize("where", ["file", "/proc/nope"])
def test_a_state_that_cannot_be_written_is_no_defect(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    Path("file").write_text("not a directory")
    with pytest.raises(SystemExit) as left:
        main(["run", "app.py", "--ha", "--state", where])
    assert left.value.code == 3
    assert "[STATE_UNWRITABLE]" in capsys.readouterr().err


# -- what is asked for -------------------------------------------------------------------------------


def test_one_that_stands_by_changes_nothing_until_it_has_the_lease(unit: Unit, at_work: Session) -> None:
    unit.change(lambda now: replace(now, controlled=True, checkpoint_every=9))
    before, kept = unit.record(), (unit.root / "ha" / "unit.json").read_bytes()
    second = Second(unit)
    until("it stands by", lambda: any("stands by" in line for line in second.told))
    time.sleep(1.25 * LEASE_SECONDS)
    assert unit.record() == before
    assert (unit.root / "ha" / "unit.json").read_bytes() == kept
    at_work.close()
    until("what it was asked for holds", lambda: unit.record().scheme is Scheme.passive_cold)
    assert (unit.record().controlled, unit.record().checkpoint_every) == (False, 3)
    assert json.loads((unit.root / "ha" / "unit.json").read_bytes())["epoch_seconds"] == 7.0
    assert any("active-standby -> passive-cold" in line for line in second.told)
    second.stop()


def test_one_that_stands_by_ends_with_a_unit_that_is_stopped(unit: Unit, at_work: Session) -> None:
    second = Second(unit)
    until("it stands by", lambda: any("stands by" in line for line in second.told))
    unit.change(lambda now: replace(now, phase="stopping"))
    at_work.close()
    assert second.end().phase == "stopping"
    assert unit.record().scheme is Scheme.active_standby


def test_a_stop_under_way_is_not_undone_by_the_next_start(unit: Unit) -> None:
    unit.change(lambda now: replace(now, phase="stopping"))
    engine = unit.store.start_session(60.0)
    unit.join(engine, "e1", Member(os.getpid(), socket.gethostname(), "passive", engine.id))
    second = Second(unit)
    until("it waits", lambda: any("is stopping" in line for line in second.told))
    time.sleep(1.0)
    assert unit.record().phase == "stopping"
    engine.close()
    until("it begins again", lambda: unit.record().phase == "running")
    second.stop()


# -- what ended an engine ----------------------------------------------------------------------------


def test_the_coordinator_tells_why_an_engine_ended(unit: Unit) -> None:
    told: list[str] = []

    def start(unit: Unit, name: str, kind: Kind) -> subprocess.Popen[bytes]:
        log = unit.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        says = "print('begins'); print('[NO_UNIT_RECORD] it is not known'); print('  Hint: none'); raise SystemExit(3)"
        with open(log, "wb") as out:
            return subprocess.Popen([sys.executable, "-c", says], stdout=out)

    coordinator = Coordinator(unit, start, told.append)
    coordinator._look()
    until("it is told", lambda: coordinator._look() or any("NO_UNIT_RECORD" in line for line in told))
    line = next(line for line in told if "NO_UNIT_RECORD" in line)
    assert line.startswith("engine e1 ended with exit code 3: [NO_UNIT_RECORD] it is not known")


def test_without_an_error_its_last_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("first\nTypeError: what it died of\n\n")
    assert last_error(tmp_path / "log") == "TypeError: what it died of"
    assert "cannot be read" in last_error(tmp_path / "none")


def test_a_store_that_is_away_is_told_once_and_so_is_its_return(unit: Unit) -> None:
    second, place = Second(unit, None), unit.root / "ha" / "coordination"
    until("it is at work", lambda: any("starting engine" in line for line in second.told))
    os.rename(place, place.with_name("away"))
    until("it tells", lambda: any("[STORE_UNAVAILABLE]" in line for line in second.told))
    time.sleep(1.25 * LEASE_SECONDS)
    os.rename(place.with_name("away"), place)
    until("it is back", lambda: any("is back" in line for line in second.told))
    second.stop()
    assert sum("[STORE_UNAVAILABLE]" in line for line in second.told) == 1
    assert sum("is back" in line for line in second.told) == 1

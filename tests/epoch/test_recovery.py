"""Recovery semantics on real state directories: what each preserves, loses and repeats, event by event."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch import recovery
from penstock.epoch.recovery import RecoveryActions, RecoveryOutcome
from penstock.ha.schemes import Semantics
from penstock.state.directory import StateDirectory
from tests.crash import (
    LINES,
    UNITS,
    Crash,
    NonIdempotentSink,
    crash_in_epoch_6,
    read_rows,
    run_engine,
    seconds,
    settings,
)


def build(folder: Path) -> ps.App:
    """Events a second apart; every tenth of a window's minute is an epoch or so."""
    events = seconds()
    return ps.app(
        "back",
        ps.output("each", events.select("time"), NonIdempotentSink(folder / "each")),
        ps.output(
            "windows", events.key_by("page").window("10s").count("n"), NonIdempotentSink(folder / "windows")
        ),
        ps.output(
            "totals", events.key_by("user").running("10s").count("n"), NonIdempotentSink(folder / "totals")
        ),
    )


def run_once(folder: Path, semantics: Semantics, every: int = 4) -> RecoveryOutcome:
    return run_engine(build(folder), folder, semantics, every)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    run_once(folder, Semantics.precise)
    return folder


def run_killed_in_epoch_6(folder: Path, crash: Crash, semantics: Semantics) -> RecoveryOutcome:
    return crash_in_epoch_6(lambda: build(folder), folder, crash, semantics)


def test_precise_loses_and_repeats_nothing(undisturbed: Path, tmp_path: Path, crash: Crash) -> None:
    recovery = run_killed_in_epoch_6(tmp_path / "one", crash, Semantics.precise)
    for name in ("each", "windows", "totals"):
        assert read_rows(tmp_path / "one", name) == read_rows(undisturbed, name)
    assert recovery.counts() == {"replayed_epochs": 3, "replayed_events": 3 * UNITS}


def test_rollback_repeats_as_much_as_it_reports(undisturbed: Path, tmp_path: Path, crash: Crash) -> None:
    recovery = run_killed_in_epoch_6(tmp_path / "one", crash, Semantics.rollback)
    twice = 0
    for name in ("each", "windows", "totals"):
        expected, found = (Counter(map(str, read_rows(at, name))) for at in (undisturbed, tmp_path / "one"))
        assert set(found) == set(expected), "the same rows, and no other"
        twice += (found - expected).total()
        assert {row[0] for row in read_rows(tmp_path / "one", name) if found[str(row)] == 2} <= {4, 5}
    assert twice > 2 * UNITS
    assert recovery.counts() == {
        "replayed_epochs": 3,
        "replayed_events": 3 * UNITS,
        "repeated_epochs": 2,
        "repeated_rows": twice,
    }


def test_gap_loses_as_much_as_it_reports_and_repeats_nothing(
    undisturbed: Path, tmp_path: Path, crash: Crash
) -> None:
    recovery = run_killed_in_epoch_6(tmp_path / "one", crash, Semantics.gap)
    assert recovery.counts() == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    each = [row[1] for row in read_rows(tmp_path / "one", "each")]
    expected = [row[1] for row in read_rows(undisturbed, "each")]
    # epochs 4 and 5 had been delivered before; only epoch 6 never is
    assert each == expected[: 6 * UNITS] + expected[7 * UNITS :]
    windows = Counter(str(row[1:3]) for row in read_rows(tmp_path / "one", "windows"))
    assert windows.most_common(1)[0][1] == 1, "no window is emitted twice"
    counted = sum(int(str(row[-1])) for row in read_rows(tmp_path / "one", "windows"))
    assert LINES - 3 * UNITS <= counted <= LINES
    # the totals continue from the durable manifest: all but the lost epochs
    last = {str(row[-2]): row[-1] for row in read_rows(tmp_path / "one", "totals")}
    assert sum(int(str(count)) for count in last.values()) == LINES - 3 * UNITS


def test_amnesia_loses_the_state_too(tmp_path: Path, crash: Crash) -> None:
    recovery = run_killed_in_epoch_6(tmp_path / "one", crash, Semantics.amnesia)
    outcome = recovery.counts()
    assert outcome.pop("lost_state_bytes") > 0
    assert outcome == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    last = {str(row[-2]): row[-1] for row in read_rows(tmp_path / "one", "totals")}
    assert sum(int(str(count)) for count in last.values()) == LINES - 7 * UNITS
    windows = Counter(str(row[1:3]) for row in read_rows(tmp_path / "one", "windows"))
    assert windows.most_common(1)[0][1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("semantics", Semantics)
def test_an_engine_that_ended_normally_has_nothing_to_recover(semantics: Semantics, tmp_path: Path) -> None:
    for _ in range(2):
        recovery = run_once(tmp_path / "one", semantics, every=3)
        assert not recovery.has_epochs
        assert recovery.counts() == {}
    assert sum(1 for row in read_rows(tmp_path / "one", "each")) == LINES


def test_a_crash_right_after_the_gap_is_the_same_gap(tmp_path: Path, crash: Crash) -> None:
    folder = tmp_path / "one"
    crash.at = ("sliced", 6)
    run_once(folder, Semantics.gap)
    crash.at = ("admitted", 7)
    first = run_once(folder, Semantics.gap)
    again = run_once(folder, Semantics.gap)
    assert first.lost_epochs == 3
    assert not again.has_epochs
    windows = Counter(str(row[1:3]) for row in read_rows(folder, "windows"))
    assert windows.most_common(1)[0][1] == 1


def test_an_engine_reports_what_its_recovery_did(tmp_path: Path, crash: Crash) -> None:
    folder = tmp_path / "one"
    crash.at = ("sliced", 6)
    run_once(folder, Semantics.gap)
    engine = Engine(build(folder), settings(folder, semantics=Semantics.gap))
    engine.run()
    assert engine.role.recovery.lost_epochs == 3
    (line,) = (folder / "state" / "recoveries.jsonl").read_text().splitlines()
    assert json.loads(line)["lost_units"] == 3 * UNITS


def test_the_log_of_recoveries_keeps_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "RECOVERY_LOG_BYTES", 20_000)
    state = StateDirectory(tmp_path)
    for number in range(500):
        outcome = RecoveryOutcome(
            Semantics.gap, actions=RecoveryActions(Semantics.gap), durable_epoch=number, recorded_epoch=number
        )
        outcome.append_to_log(state)
    lines = [json.loads(line) for line in (tmp_path / "recoveries.jsonl").read_text().splitlines()]
    assert (tmp_path / "recoveries.jsonl").stat().st_size <= 21_000
    newest = [line["durable_epoch"] for line in lines]
    assert newest == list(range(500 - len(lines), 500))

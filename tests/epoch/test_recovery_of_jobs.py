"""Recovery semantics of single outputs: what each preserves, loses and repeats beside others, event by event."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.app_plan import stages_owned
from penstock.cli.unit_tables import job_lines
from penstock.engine.engine import Engine
from penstock.engine.status import EngineStatus
from penstock.engine.status_server import status
from penstock.epoch.kill_points import STEPS, StepName
from penstock.epoch.recovery import JobRecovery, RecoveryOutcome
from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.query.compile import compile_app
from penstock.state.directory import StateDirectory
from penstock.testing.list_log import ListLog
from tests import golden_query as golden
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

#: the outputs, with what each may lose or repeat
MIXED = {
    "each": None,
    "windows": "precise",
    "some": "gap",
    "totals": "gap",
    "same": "gap",
    "again": "rollback",
    "blank": "amnesia",
}


def build(folder: Path, recovery: dict[str, Any]) -> ps.App:
    """Events a second apart, in one partition: an epoch is the next UNITS of them."""
    events = seconds()
    windows = events.key_by("page").window("7s").count("n")
    rows = {
        "each": events.select("time"),
        "windows": windows,
        "some": events.select("time", "user"),
        "totals": events.key_by("user").running("10s").count("n"),
        "same": windows.select("n", "page"),
        "again": events.select("user", "time"),
        "blank": events.key_by("page").running("20s").count("n"),
    }
    return ps.app(
        "mixed",
        *(
            ps.output(
                name,
                rows[name],
                NonIdempotentSink(folder / name),
                ps.jsonl(folder / f"{name}-files"),
                recovery=one,
            )
            for name, one in recovery.items()
        ),
    )


def run_once(folder: Path) -> RecoveryOutcome:
    return run_engine(build(folder, MIXED), folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    run_once(folder)
    return folder


def read_files(folder: Path, name: str) -> dict[str, bytes]:
    """The files of a sink that is idempotent by epoch."""
    return {path.name: path.read_bytes() for path in (folder / f"{name}-files").glob("*.jsonl")}


def last_totals(folder: Path, name: str) -> int:
    return sum({row[-2]: row[-1] for row in read_rows(folder, name)}.values())


def run_killed_in_epoch_6(
    folder: Path, crash: Crash, recovery: dict[str, Any] = MIXED, semantics: Semantics = Semantics.precise
) -> RecoveryOutcome:
    return crash_in_epoch_6(lambda: build(folder, recovery), folder, crash, semantics)


@pytest.mark.slow
def test_each_output_loses_and_repeats_what_it_may(undisturbed: Path, tmp_path: Path, crash: Crash) -> None:
    recovery = run_killed_in_epoch_6(tmp_path, crash)
    for name in ("each", "windows"):  # byte for byte the output of an undisturbed run
        assert (tmp_path / name).read_bytes() == (undisturbed / name).read_bytes()
        assert read_files(tmp_path, name) == read_files(undisturbed, name)
    # it has no state: epochs 4 and 5 had been delivered, only epoch 6 never is
    assert read_rows(tmp_path, "some") == [row for row in read_rows(undisturbed, "some") if row[0] != 6]
    # a shared stage was repeated for the others: only the rows of epoch 6 are missing
    undelivered = [row for row in read_rows(undisturbed, "same") if row[0] == 6]
    assert read_rows(tmp_path, "same") == [row for row in read_rows(undisturbed, "same") if row[0] != 6]
    # its own state is that of the durable manifest
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert last_totals(tmp_path, "blank") == LINES - 7 * UNITS
    twice = Counter(map(str, read_rows(tmp_path, "again"))) - Counter(
        map(str, read_rows(undisturbed, "again"))
    )
    assert twice.total() == 2 * UNITS
    assert read_files(tmp_path, "again") == read_files(undisturbed, "again")
    found = recovery.by_job()
    blank = found.pop("blank")
    assert blank.lost_state_bytes > 0
    assert replace(blank, lost_state_bytes=0) == _lost("amnesia", 3, 1)
    assert found == {
        "some": _lost("gap", 1, 1, lost_rows=UNITS),
        "same": _lost("gap", 1, 1, lost_rows=len(undelivered)),
        "totals": _lost("gap", 3, 1),
        "again": JobRecovery(Semantics.rollback, repeated_epochs=2, repeated_rows=2 * UNITS),
    }
    assert undelivered
    assert recovery.counts() == {
        "replayed_epochs": 3,
        "replayed_events": 3 * UNITS,
        "repeated_epochs": 2,
        "repeated_rows": 2 * UNITS,
        "lost_jobs": 4,
    }


def _lost(semantics: str, epochs: int, undelivered: int, lost_rows: int = 0) -> JobRecovery:
    return JobRecovery(
        Semantics(semantics),
        lost_epochs=epochs,
        lost_units=epochs * UNITS,
        untold_epochs=undelivered,
        lost_rows=lost_rows,
    )


@pytest.mark.parametrize("step", STEPS)
def test_precise_outputs_are_complete_wherever_the_engine_crashes(
    step: StepName, undisturbed: Path, tmp_path: Path, crash: Crash
) -> None:
    crash.at = (step, 5)
    run_once(tmp_path)
    recovery = run_once(tmp_path)
    for name in ("each", "windows", "again"):
        assert read_files(tmp_path, name) == read_files(undisturbed, name)
    lost = recovery.by_job()["some"].lost_rows
    missing = set(read_files(undisturbed, "some")) - set(read_files(tmp_path, "some"))
    rows = sum(read_files(undisturbed, "some")[name].count(b"\n") for name in missing)
    # the sinks may have the last recorded epoch all the same
    assert rows == (0 if step in ("admitted", "planned", "emitted", "committed", "delivered") else lost)
    assert lost == UNITS
    assert read_files(tmp_path, "some").items() <= read_files(undisturbed, "some").items()


def test_further_crashes_during_and_after_recovery(undisturbed: Path, tmp_path: Path, crash: Crash) -> None:
    crash.at = ("sliced", 6)
    run_once(tmp_path)
    crash.at = ("gathered", 5)
    run_once(tmp_path)
    crash.at = ("sliced", 8)
    third = run_once(tmp_path)
    assert third.by_job()["totals"].lost_epochs == 3
    # the last repeated epoch is durable: what was lost then is not lost again
    assert StateDirectory(tmp_path / "state").manifests.latest().epoch == 6
    fourth = run_once(tmp_path)
    assert fourth.by_job()["totals"].lost_epochs == 2
    assert last_totals(tmp_path, "totals") == LINES - 5 * UNITS
    for name in ("each", "windows"):
        assert read_files(tmp_path, name) == read_files(undisturbed, name)


def test_if_all_outputs_may_lose_epochs_none_is_repeated(tmp_path: Path, crash: Crash) -> None:
    all_gap: dict[str, Any] = {"some": "gap", "totals": "gap", "blank": "amnesia"}
    recovery = run_killed_in_epoch_6(tmp_path, crash, all_gap)
    assert recovery.counts() == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert last_totals(tmp_path, "blank") == LINES - 7 * UNITS
    jobs = recovery.by_job()
    assert jobs["some"] == _lost("gap", 1, 1)
    assert jobs["totals"] == _lost("gap", 3, 1)
    assert jobs["blank"].lost_state_bytes > 0
    assert replace(jobs["blank"], lost_state_bytes=0) == _lost("amnesia", 3, 1)


def test_outputs_without_semantics_use_those_of_the_engine(
    undisturbed: Path, tmp_path: Path, crash: Crash
) -> None:
    recovery = run_killed_in_epoch_6(tmp_path, crash, {"windows": "precise", "totals": None}, Semantics.gap)
    assert (tmp_path / "windows").read_bytes() == (undisturbed / "windows").read_bytes()
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert list(recovery.by_job()) == ["totals"]


def test_an_engine_that_ended_normally_lost_nothing(undisturbed: Path, tmp_path: Path) -> None:
    for _ in range(2):
        recovery = run_once(tmp_path)
        assert not recovery.has_epochs
        assert recovery.by_job() == {}
    for name in MIXED:
        assert read_rows(tmp_path, name) == read_rows(undisturbed, name)


def test_shared_stages_are_owned_by_no_output(tmp_path: Path) -> None:
    plan = compile_app(build(tmp_path, MIXED))
    assert set(stages_owned(plan, ["same"]).values()) == set()
    both = stages_owned(plan, ["same", "windows", "some"])
    assert set(both.values()) == {frozenset({"same", "windows"})}
    assert len(stages_owned(plan, list(MIXED))) == len(plan.stages)


def test_unknown_recovery_semantics_are_refused_with_their_line(tmp_path: Path) -> None:
    events = ps.stream("events", ListLog({"p0": []}), golden.decoder(), time="time")
    with pytest.raises(UserError, match="UNKNOWN_RECOVERY") as refused:
        ps.output("each", events, recovery="gaps")
    assert refused.value.hint == "Did you mean gap?"
    assert "test_recovery_of_jobs.py" in str(refused.value.where)
    with pytest.raises(UserError, match="There are precise, rollback, gap, amnesia"):
        ps.output("each", events, recovery=3)  # type: ignore[arg-type]


def test_an_engine_reports_what_each_job_lost(tmp_path: Path, crash: Crash) -> None:
    crash.at = ("sliced", 6)
    run_once(tmp_path)
    engine = Engine(build(tmp_path, MIXED), settings(tmp_path))
    engine.run()
    shown = status(engine, None)
    assert shown.recovery is not None
    jobs, facts = shown.recovery.jobs, shown.to_json()["recovery"]["jobs"]
    assert jobs["totals"] == _lost("gap", 3, 1)
    assert EngineStatus.from_json(shown.to_json()) == shown
    assert facts["totals"] == {
        "semantics": "gap",
        "lost_epochs": 3,
        "lost_units": 3 * UNITS,
        "untold_epochs": 1,
    }
    assert "each" not in jobs
    (line,) = (tmp_path / "state" / "recoveries.jsonl").read_text().splitlines()
    assert json.loads(line)["jobs"] == facts
    assert (
        "totals (gap): epochs lost 3, records or bytes of the logs lost 60, epochs not delivered 1"
        in job_lines(jobs)
    )

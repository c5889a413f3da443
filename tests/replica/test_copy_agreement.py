"""Engines over a replicated log: the epoch record names the copy, replicas repeat it, and the rows are the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.epoch.runner import EpochReport
from penstock.ha.unit import UnitEngine
from penstock.logs.contract import Log, Partition, Span
from penstock.logs.copy_choice import Extent
from penstock.replica.copy_agreement import MOST_NAMED, CopyReporter, CopyReports, replicated_logs
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.shared_records import SharedRecords
from penstock.testing.inline import InlineEngine
from penstock.testing.manual_clock import ManualClock, PassingClock
from tests import golden_query as golden
from tests.epoch.test_admission import GrowingLog, new_admission
from tests.logs.test_replicated_log import Frail, Pruned

LINES = golden.lines(count=120)


def program(log: Log, state: Path) -> Program:
    events = ps.stream("events", log, golden.decoder(), time="time", lateness="5s", idle_after=None)
    counts = events.key_by("page").window("10s").count("visits")
    paths = events.key_by("user").last(3, "page").map(path=ps.col("page").list.join(">"))
    outputs = {"counts": counts, "paths": paths.select("user", "path")}
    app = ps.app("golden", *(ps.output(name, rows) for name, rows in outputs.items()))
    return program_of(app, state)


def rows(reports: list[EpochReport]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"counts": [], "paths": []}
    for report in reports:
        for name, frame in report.rows.items():
            if isinstance(frame, pl.DataFrame):
                found[name] += sorted(map(repr, frame.rows()))
    return {name: sorted(rows) for name, rows in found.items()}


def new_copies() -> tuple[Frail, Frail]:
    return Frail({}, finished=False), Frail({}, finished=False)


def grow(copy: Frail, end: int) -> None:
    for name, lines in LINES.items():
        present = {one.id: one.latest for one in super(Frail, copy).partitions({})}.get(name, 0)
        copy.add(name, *lines[present:end])


def undisturbed(tmp_path: Path) -> dict[str, list[Any]]:
    one, two = new_copies()
    for copy in (one, two):
        grow(copy, 120)
        copy.finish()
    engine = InlineEngine(program(ps.replicated(one, two), tmp_path / "straight"), tmp_path / "straight")
    try:
        return rows(list(engine.steps()))
    finally:
        engine.close()


@pytest.mark.slow
def test_copies_that_lag_and_fail_change_no_row_and_replicas_repeat_the_epochs(tmp_path: Path) -> None:
    one, two = new_copies()
    engine = InlineEngine(
        program(ps.replicated(one, two), tmp_path / "leader"), tmp_path / "leader", epoch_units=25
    )
    reports: list[EpochReport] = []
    grow(one, 30)
    grow(two, 10)
    reports += engine.steps()
    grow(two, 90)
    reports += engine.steps()  # the first is a straggler by now
    two.away = True
    grow(one, 100)
    reports += engine.steps()  # from where the second left off
    engine.close()
    engine = InlineEngine(
        program(ps.replicated(one, two), tmp_path / "leader"), tmp_path / "leader", epoch_units=40
    )
    two.away = False
    for copy in (one, two):
        grow(copy, 120)
        copy.finish()
    one.away = True
    reports += engine.steps()
    engine.close()
    expected = undisturbed(tmp_path)
    assert rows(reports) == expected
    state = StateDirectory(tmp_path / "leader")
    records = [state.records.read(epoch) for epoch in range(len(reports))]
    named = [record.end.copies.get("events", {}) for record in records if record]
    assert {copy for copies in named for copy in copies.values()} == {0, 1}
    assert all(set(copies) <= {"p0", "p1"} for copies in named)

    one.away = False
    InlineEngine(program(ps.replicated(one, two), tmp_path / "replica"), tmp_path / "replica").close()
    shutil.copytree(tmp_path / "leader" / "epochs", tmp_path / "replica" / "epochs", dirs_exist_ok=True)
    engine = InlineEngine(
        program(ps.replicated(one, two), tmp_path / "replica"), tmp_path / "replica", epoch_units=7
    )
    again = list(engine.steps())
    engine.close()
    assert [one.events for one in again] == [one.events for one in reports]
    for repeated, first in zip(again, reports, strict=True):
        assert rows([repeated]) == rows([first])


def test_a_leader_admits_what_the_others_report(tmp_path: Path) -> None:
    leaders, followers = new_copies(), new_copies()
    for copy in leaders:
        grow(copy, 60)
    grow(followers[0], 20)
    grow(followers[1], 50)
    sent: list[Any] = []
    reporter = copy_reporter(sent, ps.replicated(*followers), tmp_path)
    reporter.look()
    reporter.look()
    assert len(sent) == 1  # only what has changed
    body = json.loads(json.dumps(vars(UnitEngine(1, "here", "active", reach=sent[0]))))
    leading = program(ps.replicated(*leaders), tmp_path / "leader")
    copy_reports = reports_of(leading)
    copy_reports.apply({"e2": UnitEngine(**body).reach, "e3": {}})
    log = replicated_logs(leading)["events"]
    assert log.partitions({}) == [Partition("p0", 0, 50), Partition("p1", 0, 50)]
    assert [log.route(name) for name in ("p0", "p1")] == [1, 1]
    engine = InlineEngine(leading, tmp_path / "leader")
    assert engine.step() is not None  # further steps would wait, since there is more
    assert StateDirectory(tmp_path / "leader").records.last_offsets() == {"events": {"p0": 50, "p1": 50}}
    copy_reports.apply({})  # the other is gone
    list(engine.steps())
    assert StateDirectory(tmp_path / "leader").records.last_offsets() == {"events": {"p0": 60, "p1": 60}}
    engine.close()


def test_an_engine_without_any_copy_reports_that_and_is_not_waited_for(tmp_path: Path) -> None:
    copies = new_copies()
    for copy in copies:
        copy.away = True
    sent: list[Any] = []
    copy_reporter(sent, ps.replicated(*copies), tmp_path).look()
    assert sent == [{"events": {}}]
    for copy in copies:
        copy.away = False
        grow(copy, 10)
    leading = program(ps.replicated(*copies), tmp_path / "leader")
    reports_of(leading).apply({"e2": sent[0]})
    assert [one.latest for one in replicated_logs(leading)["events"].partitions({})] == [10, 10]


def test_records_before_the_start_of_the_only_copy_are_reported_as_skipped(tmp_path: Path) -> None:
    away, pruned = Frail(LINES), Pruned(LINES)
    away.away = True
    log = ps.replicated(away, pruned)
    clock = log.clock = ManualClock()
    engine = InlineEngine(program(log, tmp_path / "state"), tmp_path / "state")
    first = engine.step()
    assert first is not None
    assert (first.events, first.skipped_partitions) == (0, 0)
    clock.turn(log.patience_seconds)
    reports = list(engine.steps())
    engine.close()
    readable = sum(len(lines) - 5 for lines in LINES.values())
    assert sum(one.events + one.late + one.bad for one in reports) == readable
    assert sum(one.skipped_partitions for one in reports) == len(LINES)
    skipped = [
        json.loads(line)
        for file in (tmp_path / "state" / "leaped" / "events").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted((one["partition"], one["offset"]) for one in skipped) == [
        (name, 0) for name in sorted(LINES)
    ]
    assert all("begun at 5" in one["reason"] for one in skipped)


def test_a_log_that_is_not_replicated_is_not_reported(tmp_path: Path) -> None:
    sent: list[Any] = []
    copy_reporter(sent, new_copies()[0], tmp_path).look()
    assert sent == []


def copy_reporter(sent: list[Any], log: Log, folder: Path) -> CopyReporter:
    return CopyReporter(
        program(log, folder), SharedRecords(folder / "nothing"), lambda **fields: sent.append(fields["reach"])
    )


def reports_of(
    leading: Program, sent: list[Any] | None = None, lines: list[str] | None = None
) -> CopyReports:
    """The reports at a leader, without a unit."""

    def report(**fields: Any) -> None:
        if sent is not None:
            sent.append(fields["passed_over"])

    return CopyReports(leading, None, "e1", 5.0, report, (lambda _: None) if lines is None else lines.append)  # type: ignore[arg-type]


def test_a_partition_that_another_engine_lacks_is_waited_for_and_then_read(tmp_path: Path) -> None:
    copies, clock = new_copies(), ManualClock()
    for copy in copies:
        grow(copy, 60)
    log = ps.replicated(*copies)
    log.clock = clock
    leading = program(log, tmp_path / "state")
    sent: list[Any] = []
    lines: list[str] = []
    copy_reports = reports_of(leading, sent, lines)
    lacking = {"events": {"p0": {"0": [0, 60]}}}
    copy_reports.apply({"e2": lacking})
    engine = InlineEngine(leading, tmp_path / "state")
    first = engine.step()
    assert first is not None
    state = StateDirectory(tmp_path / "state")
    assert state.records.last_offsets() == {"events": {"p0": 60, "p1": 0}}
    clock.now += 4.9
    assert [one.latest for one in log.partitions({"p0": 60, "p1": 0})] == [60, 0]
    assert log.withheld == {"p1"}
    clock.now += 0.2
    reports = [first, *engine.steps()]
    assert state.records.last_offsets() == {"events": {"p0": 60, "p1": 60}}
    copy_reports.apply({"e2": lacking})
    copy_reports.apply({"e2": lacking})
    assert sent == [{"e2": ["events/p1"]}]
    assert "e2" in lines[0]
    for copy in copies:
        grow(copy, 120)
        copy.finish()
    copy_reports.apply({"e2": {"events": {name: {"1": [0, 120]} for name in LINES}}})
    reports += engine.steps()
    engine.close()
    copy_reports.apply({"e2": {"events": {name: {"1": [0, 120]} for name in LINES}}})
    assert sent[1:] == [{}]
    assert rows(reports) == undisturbed(tmp_path)
    ends = [state.records.read_end(report.epoch) or Offset() for report in reports]
    named = [end.copies for end in ends if end.copies]
    assert named == [{"events": {"p0": 0}}, {"events": {"p1": 0}}, {"events": {"p0": 1, "p1": 1}}]


def test_a_partition_that_another_engine_lacks_is_neither_idle_nor_drained() -> None:
    log = ps.replicated(GrowingLog(a=10, b=10), GrowingLog(a=10, b=10))
    patience, clock = ManualClock(), PassingClock()
    log.clock = patience
    log.set_reports({"e2": {"a": {0: Extent(0, 10)}}})
    admission = new_admission(log, budget=100, clock=clock)
    first = admission.admit(Offset())
    assert first.at == {"s0": {"a": 10, "b": 0}}
    clock.turn(60)
    silent = admission.admit(first)
    assert silent.idle == {"s0": ("a",)}
    assert admission.admit(silent) == silent
    assert not admission.drained.is_set()
    patience.turn(6)
    last = admission.admit(silent)
    assert last.at == {"s0": {"a": 10, "b": 10}}
    assert last.idle == {"s0": ("a",)}
    assert [span for _, span in silent.spans_until(last)] == [Span("b", 0, 10, 0)]
    admission.admit(last)
    assert admission.drained.is_set()


def test_many_partitions_are_counted_and_an_engine_that_reaches_nothing_is_reported(tmp_path: Path) -> None:
    many = {f"p{number:02d}": ["x"] for number in range(MOST_NAMED + 3)}
    leading = program(ps.replicated(Frail(many, finished=False), Frail(many, finished=False)), tmp_path)
    sent: list[Any] = []
    copy_reports = reports_of(leading, sent)
    replicated_logs(leading)["events"].partitions({})
    copy_reports.apply({"e2": {"events": {}}})
    assert sent == [{"e2": [*(f"events/p{number:02d}" for number in range(MOST_NAMED)), "3 more"]}]


def test_a_report_starts_at_the_leaders_offset(tmp_path: Path) -> None:
    """The unit's epoch records have that offset, not the state of the engine that reports."""
    requested: list[Any] = []

    class RecordingCopy(Frail):
        def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
            requested.append(dict(offsets))
            return super().partitions(offsets)

    copies = (
        RecordingCopy({"p0": ["x"] * 9}, finished=False),
        RecordingCopy({"p0": ["x"] * 9}, finished=False),
    )
    reporter = CopyReporter(
        program(ps.replicated(*copies), tmp_path), SharedRecords(tmp_path), lambda **fields: None
    )
    reporter.look()
    (tmp_path / "epochs").mkdir()
    record = EpochRecord(Offset(2), Offset(3, at={"events": {"p0": 7}}))
    (tmp_path / "epochs" / f"{3:012d}.json").write_bytes(record.to_bytes())
    reporter.look()
    assert requested[-1] == {"p0": 7}
    (tmp_path / "epochs" / f"{4:012d}.json").write_text("nonsense")
    reporter.look()
    assert requested[-1] == {}

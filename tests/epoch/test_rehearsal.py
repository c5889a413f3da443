"""A new executor rehearses an epoch: all operators run, and nothing of it remains."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from penstock.engine.engine import Engine
from penstock.epoch import rehearsal
from penstock.epoch.rehearsal import rehearsal_task, smallest_spans
from penstock.epoch.runner import REHEARSALS, EpochReport
from penstock.epoch.slice import run_slice
from penstock.logs.contract import Span
from penstock.settings import Settings
from penstock.state.bucket_map import ExecutorLocation
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import rows_below
from tests.cluster import query

NEW, OLD = ExecutorLocation("here", "2"), ExecutorLocation("here", "1")


def files_below(folder: Path) -> set[str]:
    return {str(file) for file in folder.rglob("*")}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.slow
def test_rehearsals_between_epochs_leave_no_files_and_do_not_change_the_output(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def record_run(task, level, slice_, incoming):  # type: ignore[no-untyped-def]
        ran.append((str(task.maps.location_of(slice_)), level))
        return run_slice(task, level, slice_, incoming)

    monkeypatch.setattr(rehearsal, "run_slice", record_run)
    settings = Settings(
        state=tmp_path / "state",
        master="inline",
        most_epoch_units=60,
        epoch_interval_seconds=0.0,
        slices=2,
        drain=True,
        small_epoch_bytes=0,
        cache_root=tmp_path / "cache",
    )
    engine = Engine(query.build(tmp_path / "out"), settings)

    def watch(report: EpochReport) -> None:
        if report.epoch not in (0, 4):
            return
        engine.program.deliveries.finish(60)  # what they write is no rehearsal's
        before = files_below(tmp_path)
        engine.warm_up_executor(NEW, 2)
        assert files_below(tmp_path) == before

    engine.run(watch)
    assert ("executor 2 on here", 1) in ran
    assert ("executor 2 on here", 2) in ran
    run_inline(query.build(tmp_path / "straight"), tmp_path / "another", slices=1)
    assert rows_below(tmp_path / "out") == rows_below(tmp_path / "straight")


def test_the_new_executor_rehearses_a_slice_for_each_core_and_an_old_one_a_single_bucket(
    tmp_path: Path,
) -> None:
    engine = Engine(
        query.build(tmp_path / "out"),
        Settings(state=tmp_path / "state", master="inline", drain=True, cache_root=None),
    )
    engine.run()
    runner = engine._runner
    assert runner is not None
    assert runner._last is not None
    task = runner._last[0]
    alone = rehearsal_task(task, NEW, 3)
    assert alone.maps.locations == (NEW,) * 3
    assert alone.slices == 3
    placed = rehearsal_task(rehearsal_task(task, OLD, 1), NEW, 2)
    assert placed.maps.locations == (NEW, NEW, OLD)
    assert list(placed.maps.default).count(2) == 1
    assert not placed.collections
    assert rehearsal.rehearsal_shares(placed, [("s", Span("p", 0, 5))]) == [[("s", Span("p", 0, 5))]] * 2 + [
        []
    ]


def test_the_warm_up_of_an_executor_that_has_gone_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(
        query.build(tmp_path / "out"),
        Settings(state=tmp_path / "state", master="inline", drain=True, cache_root=None),
    )
    engine.run()
    runner = engine._runner
    assert runner is not None
    done: list[str] = []
    monkeypatch.setattr(runner._stages, "warm", lambda place, wanted: done.append("warm"))
    monkeypatch.setattr(runner._stages, "rehearse", lambda task, spans: done.append("rehearse"))
    is_there = iter([True, True, False])
    runner.warm_up(NEW, 1, lambda: next(is_there))
    assert done == ["warm", "rehearse"]
    runner.warm_up(NEW, 1, lambda: False)
    assert done == ["warm", "rehearse"]
    runner.warm_up(NEW)
    assert done[2:] == ["warm", *["rehearse"] * REHEARSALS]


def test_a_rehearsal_reads_the_smallest_span_of_every_stream() -> None:
    spans = [
        ("a", Span("p0", 0, 900)),
        ("a", Span("p1", 5, 45)),
        ("a", Span("p2", 7, 7)),
        ("b", Span("q", 0, 3)),
    ]
    assert smallest_spans(spans) == [("a", Span("p1", 5, 45)), ("b", Span("q", 0, 3))]

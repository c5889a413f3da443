"""Epochs without Spark: repeated, resumed, failed and fixed, with the same rows in the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.catalogue.program_of import program_of
from penstock.engine.state_location import state_location
from penstock.epoch import stages
from penstock.epoch.message import SliceReport, open_message
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages, share_spans, slice_task
from penstock.epoch.task import EpochTask, shared_run_store
from penstock.errors import InternalError, UserError
from penstock.logs.contract import Span
from penstock.state import run_store
from penstock.state.directory import StateDirectory
from penstock.state.rollback import find_problems
from penstock.testing import inline
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink

LINES = {
    "a": [f'{{"time": {at * 700_000}, "user": "u{at % 5}", "n": {at % 7 - 3}}}' for at in range(60)],
    "b": [f'{{"time": {at * 900_000}, "user": "u{at % 3}", "n": {at % 4}}}' for at in range(40)],
}


def build(sink: ListSink, log: ListLog | None = None, limit: int | None = None) -> ps.App:
    """Last values per user, and the two greatest totals. With a limit, a function that fails above it."""
    decoder = ps.json_lines(
        {"time": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}, times={"time": "us"}
    )
    events = ps.stream("events", log or ListLog(LINES), decoder, time="time", lateness="2s")

    def checked(frame: pl.DataFrame) -> pl.DataFrame:
        if limit is not None and frame["time"].dt.epoch("us").max() > limit:  # type: ignore[operator]
            raise ValueError("above the limit")
        return frame

    events = events.map_batches(checked)
    best = events.key_by("user").running("3s").sum("n", "total").top(2).select("user", "total")
    last = events.key_by("user").last(3, "n").map(total=col("n").list.sum()).select("user", "total")
    return ps.app("pure", ps.output("best", best, sink), ps.output("last", last))


def rows_of(reports: list[EpochReport]) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {"best": [], "last": []}
    for report in reports:
        for name, rows in report.rows.items():
            found[name] += rows.rows()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[object, ...]]]:
    """The rows of a run in one epoch."""
    rows = rows_of(run_inline(build(ListSink()), tmp_path_factory.mktemp("straight") / "state", slices=1))
    assert all(rows.values())
    return rows


def test_a_run_stopped_after_every_epoch_and_resumed_gives_the_same_rows(
    state: Path, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    sink, reports = ListSink(), []
    for life in range(100):
        new = run_inline(build(sink), state, epoch_units=17, slices=life % 4 + 1, epochs=1)
        reports += new
        if not new:
            break
    assert len(reports) > 4
    assert rows_of(reports) == undisturbed
    assert [tuple(row.values()) for row in sink.rows()] == undisturbed["best"]


def test_an_epoch_killed_before_its_commit_is_repeated_as_recorded(
    state: Path, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    sink = ListSink()
    before = run_inline(build(sink), state, epoch_units=17, epochs=3)
    lost = run_inline(build(sink), state, epoch_units=17, epochs=1)
    StateDirectory(state).manifests.remove(3)
    after = run_inline(build(sink), state, epoch_units=1000, slices=3)
    assert after[0].units == lost[0].units, "the span of the record, not that of the new settings"
    assert rows_of([*before, *after]) == undisturbed
    assert [tuple(row.values()) for row in sink.rows()] == undisturbed["best"], (
        "the sink has every epoch once"
    )


def test_the_runner_executes_only_the_next_epoch(state: Path) -> None:
    run_inline(build(ListSink()), state, epoch_units=50, epochs=2)
    directory = StateDirectory(state)
    program = program_of(build(ListSink()), state)
    settings = RunnerSettings(Shape(1, 1, 64), state_location(directory, None, 0))
    runner = EpochRunner(LocalStages(), program, directory, settings)
    for epoch in (1, 5):
        with pytest.raises(InternalError) as gap:
            runner.run(epoch, {}, {})
        assert gap.value.condition == "STATE_GAP"


def test_no_rows_are_lost_once_a_failing_function_is_fixed(
    state: Path, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    sink = ListSink()
    reports = run_inline(build(sink, limit=20_000_000), state, epoch_units=17, epochs=2)
    with pytest.raises(UserError) as failed:
        run_inline(build(sink, limit=20_000_000), state, epoch_units=17)
    assert failed.value.condition == "USER_FUNCTION_FAILED"
    assert "test_runner.py" in str(failed.value.where)
    assert "above the limit" in failed.value.primary
    committed = StateDirectory(state).manifests.latest().epoch
    assert find_problems(StateDirectory(state), committed) == []
    reports = run_inline(build(ListSink()), state.with_name("again"), epoch_units=17, epochs=committed + 1)
    reports += run_inline(build(sink), state, epoch_units=17)
    assert rows_of(reports) == undisturbed


def test_a_lost_run_fails_the_epoch_with_its_name(state: Path) -> None:
    run_inline(build(ListSink()), state, epoch_units=17, epochs=3)
    shutil.rmtree(state / "runs")
    shared_run_store.cache_clear()  # as in a new process
    with pytest.raises(InternalError) as damage:
        run_inline(build(ListSink()), state, epoch_units=17)
    assert damage.value.condition == "STATE_DAMAGED"
    assert ".run" in damage.value.primary


@pytest.mark.slow
def test_an_engine_continues_where_old_state_was_removed(
    state: Path, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    reports = []
    for _ in range(30):
        reports += run_inline(build(ListSink()), state, epoch_units=17, epochs=1)
        StateDirectory(state).remove_old_state(1)
    assert rows_of(reports) == undisturbed


def test_spans_are_shared_whole_and_evenly() -> None:
    spans = [("s", Span(f"p{size}", 0, size)) for size in (100, 10, 60, 50, 1)]
    shares = share_spans(spans, 2)
    assert sorted(str(s) for share in shares for s in share) == sorted(map(str, spans))
    assert sorted(sum(span.end for _, span in share) for share in shares) == [110, 111]
    assert share_spans([], 4) == [[]]
    assert len(share_spans(spans[:1], 4)) == 1


@pytest.mark.slow
def test_the_cache_holds_the_runs_of_the_last_manifest_and_no_older_ones(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr(inline, "state_location", lambda at, *_, **__: state_location(at, cache, 1 << 30))
    run_inline(build(ListSink()), state, epoch_units=5)
    directory = StateDirectory(state)
    needed = {run.replace("/", "_") + ".arrow" for run in directory.manifests.latest().runs()}
    assert {path.name for path in cache.glob("*/*.arrow")} == needed
    assert len(list(directory.list_runs())) > len(needed), "older ones stay on disk, for a rollback"


def test_a_slice_names_its_runs_once_they_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, on_disk, named = tmp_path / "state" / "runs", set[str](), list[str]()

    def record_sync(paths: list[Path]) -> None:
        on_disk.update(str(path.relative_to(runs)) for path in paths)

    def run_slice_task(
        task: EpochTask, level: int, slice_: int, incoming: list[bytes]
    ) -> Iterator[tuple[int, bytes]]:
        for to, data in slice_task(task, level, slice_, incoming):
            message = open_message(data)
            if isinstance(message, SliceReport):
                added = [entry.name for _, _, change in message.changes for entry in change.added]
                named.extend(added)
                assert on_disk.issuperset(added)
            yield to, data

    monkeypatch.setattr(run_store, "sync_files", record_sync)
    monkeypatch.setattr(stages, "TASK_FUNCTIONS", stages.TaskFunctions(stages.scan_task, run_slice_task))
    run_inline(build(ListSink()), tmp_path / "state", epoch_units=20)
    assert len(named) > 10

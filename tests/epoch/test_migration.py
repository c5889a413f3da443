"""Migrations of buckets by every protocol: what they read and when, and that no kill changes the output."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch.kill_points import MIGRATION_STEPS, STEPS
from penstock.epoch.migration import MapChange, MigrationResult, Migrations
from penstock.epoch.migration_cost import MigrationRules, Protocol
from penstock.epoch.runner import EpochReport
from penstock.epoch.task import CacheFill, StateLocation, shared_run_store
from penstock.errors import UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.functions.count_sum import Count
from penstock.operators.job_windows import (
    JOB,
    JobAggregation,
    JobGapAggregation,
    JobSlidingAggregation,
    JobWindows,
)
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import TimeWindow
from penstock.query.compile import compile_app
from penstock.state import run_store as run_module
from penstock.state.bucket_map import BucketMaps, ExecutorLocation, even_maps
from penstock.state.manifest import Manifest
from penstock.state.run import Piece
from penstock.state.run_file import Ranges, read_rows, read_run
from penstock.testing.inline import InlineEngine
from penstock.testing.list_sink import ListSink
from tests.epoch import map_changes
from tests.epoch.map_changes import (
    LOCATIONS,
    Killed,
    PlannedChange,
    build,
    epochs_of,
    kill_at,
    new_history,
    rows_of,
    run_engine,
)
from tests.operators.harness import BUCKETS, STRAIGHT, events_stream, fast_directory, modestly

A, B, _ = LOCATIONS
AT_A = even_maps(BUCKETS, 1, [A])
AT_BOTH = even_maps(BUCKETS, 2, [A, B])
HISTORY, CUTTING = new_history(44, users=30), epochs_of(4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    sinks: dict[str, ListSink] = {}
    run_engine(build(HISTORY, STRAIGHT, sinks), tmp_path_factory.mktemp("straight"), slices=1)
    return rows_of(sinks)


def change_to(maps: BucketMaps, protocol: Protocol | None = None) -> Any:
    return lambda _: MapChange(maps, protocol)


def migrations_of(reports: list[EpochReport]) -> list[MigrationResult]:
    return [report.migration for report in reports if report.migration is not None]


class Reads:
    """How much was read from the state directory, and by which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        whole, rows = read_run, read_rows

        def read_all(path: Path) -> Any:
            self.seen.append((threading.current_thread().name, path.stat().st_size))
            return whole(path)

        def read_some(path: Path, ranges: Ranges) -> Any:
            found = rows(path, ranges)
            self.seen.append((threading.current_thread().name, found[0].height * 40))
            return found

        monkeypatch.setattr(run_module, "read_run", read_all)
        monkeypatch.setattr(run_module, "read_rows", read_some)

    def in_epochs(self) -> int:
        return sum(size for thread, size in self.seen if not thread.startswith("penstock-warm-up"))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["immediate", "warm", None])
def test_migrations_under_load_do_not_change_the_output(
    undisturbed: dict[str, list[str]], tmp_path: Path, protocol: Protocol | None
) -> None:
    sinks: dict[str, ListSink] = {}
    changes: list[PlannedChange] = [
        (0, change_to(AT_A)),
        (4, change_to(AT_BOTH, protocol)),
        (7, change_to(AT_A, protocol)),
    ]
    reports = run_engine(build(HISTORY, CUTTING, sinks), tmp_path, changes=changes)
    assert rows_of(sinks) == undisturbed
    first, scaled_out, scaled_in = migrations_of(reports)
    assert first.done
    assert [scaled_out.done, scaled_in.done] == [True, True]
    assert scaled_out.buckets == scaled_in.buckets > 0
    assert scaled_out.version == 2
    assert scaled_out.switched_epoch is not None
    assert scaled_out.pause_seconds is not None
    if protocol == "warm":
        assert scaled_out.protocol == "warm"
        assert scaled_out.rounds >= 1
        assert scaled_out.bytes > 0
    if protocol in (None, "immediate"):
        assert (scaled_out.protocol, scaled_out.switched_epoch) == ("immediate", 4)


@pytest.mark.slow
def test_after_a_warm_up_the_new_owner_reads_almost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {}
    for protocol in ("immediate", "warm"):
        shared_run_store.cache_clear()
        reads = Reads(monkeypatch)
        rules = MigrationRules(pause_seconds=0.0, most_rounds=3)
        changes: list[PlannedChange] = [(0, change_to(AT_A)), (5, change_to(AT_BOTH, protocol))]  # type: ignore[arg-type]
        reports = run_engine(build(HISTORY, CUTTING, {}), tmp_path / protocol, changes=changes, rules=rules)
        assert migrations_of(reports)[-1].rounds == (3 if protocol == "warm" else 0)
        needed[protocol] = reads.in_epochs()
    assert 0 < needed["warm"] < needed["immediate"] / 2, "the runs of one epoch, not of all"


def windows(sink: ListSink) -> ps.App:
    events = events_stream(HISTORY, CUTTING)
    return ps.app("windows", ps.output("sums", events.key_by("user").window("8s").sum("n", "sum"), sink))


def test_recreate_waits_for_the_windows_and_moves_no_state(tmp_path: Path) -> None:
    undisturbed, sink = ListSink(), ListSink()
    run_engine(windows(undisturbed), tmp_path / "straight", slices=1)
    changes: list[PlannedChange] = [(0, change_to(AT_A)), (6, change_to(AT_BOTH, "recreate"))]
    reports = run_engine(windows(sink), tmp_path / "moved", changes=changes)
    assert sink.rows() == undisturbed.rows()
    moved = migrations_of(reports)[-1]
    assert (moved.protocol, moved.done) == ("recreate", True)
    assert moved.switched_epoch is not None
    assert moved.switched_epoch > 6, "an old window was open"
    watermarks = {report.epoch: report.watermark for report in reports}
    window = 8_000_000
    requested, switched = watermarks[5], watermarks[moved.switched_epoch - 1]
    assert requested is not None and switched is not None  # noqa: PT018
    assert switched // window > requested // window, "the open window has closed"
    assert (
        reports[moved.switched_epoch].maps == AT_BOTH.with_locations([A, B])
        or reports[moved.switched_epoch].maps
    )


def test_recreate_does_not_wait_for_windows_that_do_not_end_in_time(tmp_path: Path) -> None:
    sink = ListSink()
    changes: list[PlannedChange] = [(0, change_to(AT_A)), (3, change_to(AT_BOTH, "recreate"))]
    reports = run_engine(windows(sink), tmp_path, changes=changes, rules=MigrationRules(patience_seconds=0.0))
    moved = migrations_of(reports)[-1]
    assert moved.done
    assert moved.protocol != "recreate"
    assert "not over within" in moved.reason


def sliding(sink: ListSink) -> ps.App:
    events = events_stream(HISTORY, CUTTING)
    sums = events.key_by("user").window("8s", every="2s").sum("n", "sum")
    return ps.app("sliding", ps.output("sums", sums, sink))


def test_only_windows_that_do_not_overlap_know_when_all_open_ones_close() -> None:
    tumbling, hopping, gaps = TimeWindow(10, 10), TimeWindow(10, 5), TimeWindow(10, 20)
    counts = (Count("n", None),)
    assert Aggregation(("k",), tumbling, counts).drained_at(13) == 20
    assert Aggregation(("k",), gaps, counts).drained_at(13) == 30
    assert JobGapAggregation((JOB, "k"), gaps, counts).drained_at(13) == 30
    assert SlidingAggregation(("k",), hopping, counts).drained_at(13) is None
    assert JobSlidingAggregation((JOB, "k"), hopping, counts).drained_at(13) is None
    assert JobAggregation((JOB, "k"), JobWindows(((1, 10, 0), (2, 15, 0))), counts).drained_at(13) is None


def test_windows_that_overlap_are_never_recreated(tmp_path: Path) -> None:
    undisturbed, sink = ListSink(), ListSink()
    run_engine(sliding(undisturbed), tmp_path / "straight", slices=1)
    tickets: list[Future[MigrationResult]] = []
    rules = MigrationRules(pause_seconds=0.0)  # so that no protocol is good enough at once
    changes: list[PlannedChange] = [
        (0, change_to(AT_A)),
        (4, change_to(AT_BOTH, "recreate")),
        (4, change_to(AT_BOTH)),
    ]
    reports = run_engine(sliding(sink), tmp_path / "moved", changes=changes, rules=rules, tickets=tickets)
    assert sink.rows() == undisturbed.rows()
    with pytest.raises(UserError) as refused:
        tickets[1].result(timeout=0)
    assert refused.value.condition == "RECREATION_IMPOSSIBLE"
    _, moved = migrations_of(reports)
    assert moved.done, "the migration after the refused one"
    assert moved.started_epoch == 4, "nothing waited for the refusal"
    assert {one.protocol for one in moved.estimates} == {"immediate", "warm"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "protocol"),
    [
        (step, protocol)
        for step in (*MIGRATION_STEPS, *STEPS)
        for protocol in ("immediate", "warm")
        if (step, protocol) != ("warmed", "immediate")  # nothing is warmed up then
    ],
)
def test_a_kill_at_any_step_of_a_migration_does_not_change_the_output(
    undisturbed: dict[str, list[str]], step: str, protocol: Protocol
) -> None:
    sinks: dict[str, ListSink] = {}
    with fast_directory() as folder:
        changes: list[PlannedChange] = [(0, change_to(AT_A)), (4, change_to(AT_BOTH, protocol))]
        with kill_at(step, 4) as kills, pytest.raises(Killed):
            run_engine(build(HISTORY, CUTTING, sinks), Path(folder), changes=changes)
        assert kills
        again: list[PlannedChange] = [
            (kills[0][1], change_to(AT_BOTH, protocol)),
            (kills[0][1] + 3, change_to(AT_A, protocol)),
        ]
        run_engine(build(HISTORY, CUTTING, sinks), Path(folder), slices=3, changes=again)
    assert rows_of(sinks) == undisturbed


@pytest.mark.slow
@settings(modestly, max_examples=max(1, modestly.max_examples // 4))
@given(
    map_changes.planned_changes(),
    st.lists(
        st.tuples(st.sampled_from([*MIGRATION_STEPS, *STEPS]), st.integers(0, 9)), min_size=1, max_size=3
    ),
)
def test_random_migrations_and_kills_do_not_change_the_output(
    changes: list[PlannedChange], random_kills: list[tuple[str, int]]
) -> None:
    short, cut = new_history(20), epochs_of(3)
    undisturbed: dict[str, ListSink] = {}
    sinks: dict[str, ListSink] = {}
    with fast_directory() as folder:
        run_engine(build(short, STRAIGHT, undisturbed), Path(folder) / "straight", slices=1)
        for number, (step, since) in enumerate(random_kills):
            with kill_at(step, since):
                try:
                    run_engine(
                        build(short, cut, sinks), Path(folder) / "moved", slices=1 + number, changes=changes
                    )
                except Killed:
                    continue
        run_engine(build(short, cut, sinks), Path(folder) / "moved", slices=4, changes=changes)
    assert rows_of(sinks) == rows_of(undisturbed)


class Warmers:
    """Executors that may be the wrong ones, or fail."""

    def __init__(self, response: Any) -> None:
        self.response, self.requests = response, 0

    def warm(
        self, place: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        self.requests += 1
        if isinstance(self.response, Exception):
            raise self.response
        return [CacheFill(at, self.response, tuple(runs), 10, 0.1) for at, runs in wanted.items()]


def finish_migration(
    engine: InlineEngine, moves: Migrations, ticket: Future[MigrationResult]
) -> MigrationResult:
    """Let epochs pass until a migration is done or has failed."""
    plan = engine._program.epochs.plan(0)
    for _ in range(20):
        moves.start_epoch(engine.next_epoch, plan, engine.runner.manifest)
        if moves._active is not None and moves._active.round is not None:
            moves._active.round.exception(timeout=10)
        moves.finish_epoch(0.1, 0)
        if ticket.done():
            break
    return ticket.result(timeout=0)


@pytest.mark.parametrize(
    ("response", "why"), [("another", "did not take the work"), (OSError("no route"), "no route")]
)
def test_a_new_owner_that_is_unavailable_leaves_the_maps_as_they_were(
    tmp_path: Path, response: Any, why: str
) -> None:
    engine = InlineEngine(windows(ListSink()), tmp_path / "state", buckets=BUCKETS)
    try:
        for _ in range(5):
            engine.step()
        warmers = Warmers(response)
        moves = Migrations(AT_A, warmers, StateLocation("", None, 0))
        moved = finish_migration(engine, moves, moves.request(MapChange(AT_BOTH, "warm")))
    finally:
        engine.close()
    assert not moved.done
    assert why in moved.reason
    assert warmers.requests == 2, "it was tried again once"
    assert moves.maps == AT_A


def test_migrations_are_requested_from_any_thread_and_executed_one_by_one(tmp_path: Path) -> None:
    engine = InlineEngine(windows(ListSink()), tmp_path / "state", buckets=BUCKETS)
    try:
        engine.step()
        tickets: list[Future[MigrationResult]] = []
        threads = [
            threading.Thread(
                target=lambda: tickets.append(engine.runner.request_map_change(MapChange(AT_BOTH)))
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        for _ in range(4):
            engine.step()
        assert sorted(ticket.result(timeout=0).version for ticket in tickets) == [1, 2, 3, 4]
        late = engine.runner.request_map_change(MapChange(AT_A))
    finally:
        engine.close()
    assert not late.result(timeout=0).done
    assert "ended" in late.result(timeout=0).reason
    assert not engine.runner.request_map_change(MapChange(AT_A)).result(timeout=0).done, (
        "no engine would execute it"
    )


def test_a_migration_without_buckets_is_done_at_once() -> None:
    plan = compile_app(windows(ListSink()))
    moves = Migrations(AT_A, Warmers("x"), StateLocation("", None, 0))
    for protocol in ("warm", "immediate", "recreate", None):
        ticket = moves.request(MapChange(AT_A, protocol))  # type: ignore[arg-type]
        moves.start_epoch(0, plan, Manifest())
        moved = moves.finish_epoch(0.1, 0)
        assert moved is not None
        assert ticket.result(timeout=0) == moved
        assert (moved.done, moved.buckets, moved.bytes) == (True, 0, 0)

"""Moves of buckets by every protocol: what they read and when, what is told of them, and that no kill shows."""

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
from tests.epoch.map_changes import PLACES, Killed, Wish, build, dying_at, every, life, rows_of, steady
from tests.operators.harness import BUCKETS, STRAIGHT, events_stream, fast_directory, modestly

A, B, _ = PLACES
AT_A = even_maps(BUCKETS, 1, [A])
AT_BOTH = even_maps(BUCKETS, 2, [A, B])
HISTORY, CUTTING = steady(44, users=30), every(4)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    sinks: dict[str, ListSink] = {}
    life(build(HISTORY, STRAIGHT, sinks), tmp_path_factory.mktemp("straight"), slices=1)
    return rows_of(sinks)


def to(maps: BucketMaps, protocol: Protocol | None = None) -> Any:
    return lambda _: MapChange(maps, protocol)


def moved_in(reports: list[EpochReport]) -> list[MigrationResult]:
    return [report.migration for report in reports if report.migration is not None]


class Reads:
    """How much was read from the state directory, and by whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        whole, rows = read_run, read_rows

        def all_of(path: Path) -> Any:
            self.seen.append((threading.current_thread().name, path.stat().st_size))
            return whole(path)

        def some_of(path: Path, ranges: Ranges) -> Any:
            found = rows(path, ranges)
            self.seen.append((threading.current_thread().name, found[0].height * 40))
            return found

        monkeypatch.setattr(run_module, "read_run", all_of)
        monkeypatch.setattr(run_module, "read_rows", some_of)

    def in_epochs(self) -> int:
        return sum(size for thread, size in self.seen if not thread.startswith("penstock-warm-up"))


@pytest.mark.parametrize("protocol", ["immediate", "warm", None])
def test_growing_and_shrinking_under_load_does_not_show(
    straight: dict[str, list[str]], tmp_path: Path, protocol: Protocol | None
) -> None:
    sinks: dict[str, ListSink] = {}
    wishes: list[Wish] = [(0, to(AT_A)), (4, to(AT_BOTH, protocol)), (7, to(AT_A, protocol))]
    reports = life(build(HISTORY, CUTTING, sinks), tmp_path, wishes=wishes)
    assert rows_of(sinks) == straight
    first, grown, shrunk = moved_in(reports)
    assert first.done
    assert [grown.done, shrunk.done] == [True, True]
    assert grown.buckets == shrunk.buckets > 0
    assert grown.version == 2
    assert grown.switched_epoch is not None
    assert grown.pause_seconds is not None
    if protocol == "warm":
        assert grown.protocol == "warm"
        assert grown.rounds >= 1
        assert grown.bytes > 0
    if protocol in (None, "immediate"):
        assert (grown.protocol, grown.switched_epoch) == ("immediate", 4)


def test_after_a_warm_up_the_new_owner_reads_almost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {}
    for protocol in ("immediate", "warm"):
        shared_run_store.cache_clear()
        reads = Reads(monkeypatch)
        rules = MigrationRules(pause_seconds=0.0, most_rounds=3)
        wishes: list[Wish] = [(0, to(AT_A)), (5, to(AT_BOTH, protocol))]  # type: ignore[arg-type]
        reports = life(build(HISTORY, CUTTING, {}), tmp_path / protocol, wishes=wishes, rules=rules)
        assert moved_in(reports)[-1].rounds == (3 if protocol == "warm" else 0)
        needed[protocol] = reads.in_epochs()
    assert 0 < needed["warm"] < needed["immediate"] / 2, "what one epoch wrote, not what all have"


def windows(sink: ListSink) -> ps.App:
    events = events_stream(HISTORY, CUTTING)
    return ps.app("windows", ps.output("sums", events.key_by("user").window("8s").sum("n", "sum"), sink))


def test_recreation_waits_for_the_windows_and_moves_nothing(tmp_path: Path) -> None:
    straight, sink = ListSink(), ListSink()
    life(windows(straight), tmp_path / "straight", slices=1)
    wishes: list[Wish] = [(0, to(AT_A)), (6, to(AT_BOTH, "recreate"))]
    reports = life(windows(sink), tmp_path / "moved", wishes=wishes)
    assert sink.rows() == straight.rows()
    moved = moved_in(reports)[-1]
    assert (moved.protocol, moved.done) == ("recreate", True)
    assert moved.switched_epoch is not None
    assert moved.switched_epoch > 6, "an old window was open"
    told = {report.epoch: report.watermark for report in reports}
    window = 8_000_000
    asked, switched = told[5], told[moved.switched_epoch - 1]
    assert asked is not None and switched is not None  # noqa: PT018
    assert switched // window > asked // window, "the window that was open is over"
    assert (
        reports[moved.switched_epoch].maps == AT_BOTH.with_locations([A, B])
        or reports[moved.switched_epoch].maps
    )


def test_windows_that_do_not_end_in_time_are_not_waited_for(tmp_path: Path) -> None:
    sink = ListSink()
    wishes: list[Wish] = [(0, to(AT_A)), (3, to(AT_BOTH, "recreate"))]
    reports = life(windows(sink), tmp_path, wishes=wishes, rules=MigrationRules(patience_seconds=0.0))
    moved = moved_in(reports)[-1]
    assert moved.done
    assert moved.protocol != "recreate"
    assert "not over within" in moved.reason


def sliding(sink: ListSink) -> ps.App:
    events = events_stream(HISTORY, CUTTING)
    sums = events.key_by("user").window("8s", every="2s").sum("n", "sum")
    return ps.app("sliding", ps.output("sums", sums, sink))


def test_only_windows_that_do_not_overlap_say_when_all_that_is_open_is_over() -> None:
    tumbling, hopping, gaps = TimeWindow(10, 10), TimeWindow(10, 5), TimeWindow(10, 20)
    counts = (Count("n", None),)
    assert Aggregation(("k",), tumbling, counts).drained_at(13) == 20
    assert Aggregation(("k",), gaps, counts).drained_at(13) == 30
    assert JobGapAggregation((JOB, "k"), gaps, counts).drained_at(13) == 30
    assert SlidingAggregation(("k",), hopping, counts).drained_at(13) is None
    assert JobSlidingAggregation((JOB, "k"), hopping, counts).drained_at(13) is None
    assert JobAggregation((JOB, "k"), JobWindows(((1, 10, 0), (2, 15, 0))), counts).drained_at(13) is None


def test_windows_that_overlap_are_never_recreated(tmp_path: Path) -> None:
    straight, sink = ListSink(), ListSink()
    life(sliding(straight), tmp_path / "straight", slices=1)
    tickets: list[Future[MigrationResult]] = []
    rules = MigrationRules(pause_seconds=0.0)  # so that no protocol is good enough at once
    wishes: list[Wish] = [(0, to(AT_A)), (4, to(AT_BOTH, "recreate")), (4, to(AT_BOTH))]
    reports = life(sliding(sink), tmp_path / "moved", wishes=wishes, rules=rules, tickets=tickets)
    assert sink.rows() == straight.rows()
    with pytest.raises(UserError) as refused:
        tickets[1].result(timeout=0)
    assert refused.value.condition == "RECREATION_IMPOSSIBLE"
    _, moved = moved_in(reports)
    assert moved.done, "the move behind the one that was refused"
    assert moved.started_epoch == 4, "nothing waited for the refusal"
    assert {one.protocol for one in moved.estimates} == {"immediate", "warm"}


@pytest.mark.parametrize(
    ("step", "protocol"),
    [
        (step, protocol)
        for step in (*MIGRATION_STEPS, *STEPS)
        for protocol in ("immediate", "warm")
        if (step, protocol) != ("warmed", "immediate")  # nothing is warmed up then
    ],
)
def test_a_kill_at_any_step_of_a_move_does_not_show(
    straight: dict[str, list[str]], step: str, protocol: Protocol
) -> None:
    sinks: dict[str, ListSink] = {}
    with fast_directory() as folder:
        wishes: list[Wish] = [(0, to(AT_A)), (4, to(AT_BOTH, protocol))]
        with dying_at(step, 4) as died, pytest.raises(Killed):
            life(build(HISTORY, CUTTING, sinks), Path(folder), wishes=wishes)
        assert died
        again: list[Wish] = [(died[0][1], to(AT_BOTH, protocol)), (died[0][1] + 3, to(AT_A, protocol))]
        life(build(HISTORY, CUTTING, sinks), Path(folder), slices=3, wishes=again)
    assert rows_of(sinks) == straight


@settings(modestly, max_examples=max(1, modestly.max_examples // 4))
@given(
    map_changes.wishes(),
    st.lists(
        st.tuples(st.sampled_from([*MIGRATION_STEPS, *STEPS]), st.integers(0, 9)), min_size=1, max_size=3
    ),
)
def test_moves_and_deaths_at_random_do_not_show(wishes: list[Wish], deaths: list[tuple[str, int]]) -> None:
    short, cut = steady(20), every(3)
    straight: dict[str, ListSink] = {}
    sinks: dict[str, ListSink] = {}
    with fast_directory() as folder:
        life(build(short, STRAIGHT, straight), Path(folder) / "straight", slices=1)
        for number, (step, since) in enumerate(deaths):
            with dying_at(step, since):
                try:
                    life(build(short, cut, sinks), Path(folder) / "moved", slices=1 + number, wishes=wishes)
                except Killed:
                    continue
        life(build(short, cut, sinks), Path(folder) / "moved", slices=4, wishes=wishes)
    assert rows_of(sinks) == rows_of(straight)


class Warmers:
    """Executors that may be elsewhere, or fail."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def warm(
        self, place: StateLocation, wanted: Mapping[ExecutorLocation, Sequence[Piece]]
    ) -> list[CacheFill]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return [CacheFill(at, self.answer, tuple(runs), 10, 0.1) for at, runs in wanted.items()]


def carried_out(engine: InlineEngine, moves: Migrations, ticket: Future[MigrationResult]) -> MigrationResult:
    """Let boundaries pass until a move is done or given up."""
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
    ("answer", "why"), [("another", "did not take the work"), (OSError("no route"), "no route")]
)
def test_a_new_owner_that_cannot_be_had_leaves_everything_as_it_was(
    tmp_path: Path, answer: Any, why: str
) -> None:
    engine = InlineEngine(windows(ListSink()), tmp_path / "state", buckets=BUCKETS)
    try:
        for _ in range(5):
            engine.step()
        warmers = Warmers(answer)
        moves = Migrations(AT_A, warmers, StateLocation("", None, 0))
        moved = carried_out(engine, moves, moves.request(MapChange(AT_BOTH, "warm")))
    finally:
        engine.close()
    assert not moved.done
    assert why in moved.reason
    assert warmers.asked == 2, "it was tried again once"
    assert moves.maps == AT_A


def test_moves_are_asked_for_from_any_thread_and_carried_out_one_after_the_other(tmp_path: Path) -> None:
    engine = InlineEngine(windows(ListSink()), tmp_path / "state", buckets=BUCKETS)
    try:
        engine.step()
        tickets: list[Future[MigrationResult]] = []
        threads = [
            threading.Thread(target=lambda: tickets.append(engine.runner.remap(MapChange(AT_BOTH))))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        for _ in range(4):
            engine.step()
        assert sorted(ticket.result(timeout=0).version for ticket in tickets) == [1, 2, 3, 4]
        late = engine.runner.remap(MapChange(AT_A))
    finally:
        engine.close()
    assert not late.result(timeout=0).done
    assert "ended" in late.result(timeout=0).reason
    assert not engine.runner.remap(MapChange(AT_A)).result(timeout=0).done, "nobody would carry it out"


def test_a_move_of_nothing_is_done_at_once() -> None:
    plan = compile_app(windows(ListSink()))
    moves = Migrations(AT_A, Warmers("x"), StateLocation("", None, 0))
    for protocol in ("warm", "immediate", "recreate", None):
        ticket = moves.request(MapChange(AT_A, protocol))  # type: ignore[arg-type]
        moves.start_epoch(0, plan, Manifest())
        moved = moves.finish_epoch(0.1, 0)
        assert moved is not None
        assert ticket.result(timeout=0) == moved
        assert (moved.done, moved.buckets, moved.bytes) == (True, 0, 0)

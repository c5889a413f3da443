"""The engine's end of the elastic loop: who comes and goes is noticed; every bucket has an owner that lives."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine.collect import COLD_EPOCHS, Backlog, Meter, Period, Worker, memory_by_executor, snapshot
from penstock.epoch.message import Message, ScanReport, open_message
from penstock.epoch.report import SCAN
from penstock.epoch.task import measure_memory
from penstock.epoch.task_work import list_tasks
from penstock.scaling.record import Outcome
from penstock.state.bucket_map import ExecutorLocation, even_maps
from tests.engine.playground import BUCKETS, SUB, Playground, overload, report


@pytest.fixture
def playground(tmp_path: Path) -> Playground:
    return Playground(tmp_path)


def test_the_slices_are_placed_where_the_first_executors_are(playground: Playground) -> None:
    playground.turn()
    assert playground.owners() == {"1"}
    assert playground.loop.placement == ("1",)


def test_work_that_piles_up_brings_executors_and_they_get_buckets_once_they_are_warm(
    playground: Playground,
) -> None:
    overload(playground)
    assert playground.wanted[-1] > 1
    playground.come("2")
    playground.turn(busy=2.0)
    assert playground.warm == [ExecutorLocation("here", "2")]
    for name in range(3, playground.wanted[-1] + 1):
        playground.come(str(name))
    playground.turn(busy=2.0, times=4)
    assert playground.owners() == set(playground.workers_)
    (entry,) = playground.loop.loop.record.entries
    assert entry.outcome in (Outcome.watched, Outcome.helped)


def test_one_that_dies_while_it_is_warmed_up_keeps_nobody_waiting(playground: Playground) -> None:
    overload(playground)
    playground.can_warm_up.clear()
    playground.come("2")
    playground.turn(busy=2.0)
    assert playground.loop.rehearsing == ("2",)
    del playground.workers_["2"]
    playground.come("3")
    playground.turn(busy=2.0)
    assert playground.loop.rehearsing == ("3",)
    playground.can_warm_up.set()
    playground.turn(busy=2.0, times=2)
    assert playground.warm == [ExecutorLocation("here", "3")], "there was nobody left to warm up"
    assert "3" in playground.loop.placement


def test_a_cluster_that_refuses_is_told_of_and_the_stream_goes_on(playground: Playground) -> None:
    playground.deaf = True
    overload(playground, times=6)
    assert playground.loop.loop.record.entries[0].outcome == Outcome.failed
    assert "no more" in playground.loop.loop.record.entries[0].why
    assert playground.owners() == {"1"}


def test_an_executor_that_never_comes_is_asked_for_again_and_then_given_up(playground: Playground) -> None:
    overload(playground)
    asked = len(playground.wanted)
    for _ in range(40):
        playground.turn(seconds=20.0, busy=20.0)
    assert len(playground.wanted) > asked
    assert playground.loop.loop.record.entries[0].outcome == Outcome.failed


def test_the_buckets_of_one_that_dies_go_to_those_that_live(playground: Playground) -> None:
    playground.come("2")
    playground.turn(times=2)
    assert playground.owners() == {"1", "2"}
    del playground.workers_["2"]
    playground.turn()
    assert playground.owners() == {"1"}


def test_one_that_comes_for_one_that_died_takes_its_slices(playground: Playground) -> None:
    playground.come("2")
    playground.turn(times=2)
    del playground.workers_["2"]
    playground.turn()
    playground.come("7")
    playground.turn(times=2)
    assert "7" in playground.loop.placement
    assert "7" not in playground.retired


def test_one_that_comes_for_one_that_died_gets_its_buckets_back_without_a_decision(
    playground: Playground,
) -> None:
    playground.come("2")
    playground.turn(times=2 + COLD_EPOCHS)
    before = playground.maps
    assert playground.owners() == {"1", "2"}
    del playground.workers_["2"]
    playground.turn(times=2)
    assert playground.owners() == {"1"}
    assert "should replace 2, which failed" in playground.loop.loop.resting
    playground.come("7")
    playground.turn(times=3)
    assert playground.owners() == {"1", "7"}
    assert playground.maps.of(SUB) == before.of(SUB)
    assert playground.loop.loop.record.entries == ()
    assert playground.loop.loop.deaths[0].by == "7"


def test_buckets_that_were_moved_meanwhile_do_not_go_back(playground: Playground) -> None:
    playground.come("2")
    playground.turn(times=2)
    before = playground.maps.of(SUB)
    del playground.workers_["2"]
    playground.turn()
    playground.come("3")
    playground.maps = playground.maps.with_owners(None, {0: 5})  # by somebody else
    playground.turn(times=3)
    assert playground.loop.placement == ("1", "3")
    assert playground.maps.of(SUB) != before
    assert playground.owners() <= {"1", "3"}


def test_what_is_under_way_is_cut_short_by_the_end_of_the_run(playground: Playground) -> None:
    overload(playground)
    assert playground.loop.loop.record.entries[0].outcome == Outcome.under_way
    playground.loop.close()
    (entry,) = playground.loop.loop.record.entries
    assert (entry.outcome, entry.why) == (Outcome.cut_short, "the run ended")
    assert '"outcome": "cut short"' in (playground.tmp / "elastic.jsonl").read_text()


def test_one_that_nobody_asked_for_is_let_go(playground: Playground) -> None:
    playground.turn()
    playground.come("9")
    playground.turn(times=3)
    assert playground.retired == ["9"]


def test_too_many_are_let_go_after_their_buckets_have_moved(playground: Playground) -> None:
    for name in "234":
        playground.come(name)
    playground.turn(busy=0.2, times=12)
    assert playground.retired
    assert playground.owners() == set(playground.workers_)
    assert not set(playground.retired) & playground.owners()


def test_a_move_that_fails_leaves_the_maps_and_is_told(playground: Playground) -> None:
    for name in "234":
        playground.come(name)
    playground.turn()
    playground.failing = True
    playground.turn(busy=0.2, times=30)
    assert not playground.retired
    assert playground.loop.loop.record.entries[0].outcome in (Outcome.failed, Outcome.undone)


def test_when_all_are_gone_nothing_breaks_and_the_next_one_takes_over(playground: Playground) -> None:
    playground.turn()
    playground.workers_.clear()
    playground.turn(times=2)
    playground.come("5")
    playground.turn(times=2)
    assert playground.loop.placement == ("5",)
    assert playground.owners() == {"5"}


def test_one_that_dies_is_asked_for_once_and_the_budget_holds(playground: Playground) -> None:
    playground.come("2")
    playground.turn(times=2)
    for _ in range(3):
        del playground.workers_["2"]
        playground.turn()
        playground.come("2")
        playground.turn(times=2)
    assert max(playground.wanted, default=0) <= 2
    assert playground.owners() <= {"1", "2"}


def test_one_that_comes_after_the_order_was_given_up_goes_again(playground: Playground) -> None:
    overload(playground)
    while playground.loop.loop.record.entries[0].outcome != Outcome.failed:
        playground.turn(seconds=20.0, busy=20.0)
        assert playground.now < 2_000
    assert playground.wanted[-1] == 1, "nobody is waited for any more"
    playground.come("9")
    playground.turn(times=3)
    assert "9" in playground.retired


def test_a_stray_that_has_gone_is_forgotten(playground: Playground) -> None:
    playground.turn()
    playground.come("9")
    playground.turn(times=4)
    assert not playground.loop._leaving


def test_a_period_without_epochs_keeps_what_waits_and_who_owns_what() -> None:
    maps = even_maps(BUCKETS, 2)
    made = snapshot(
        Period(10.0, 2.0, [], Backlog({"clicks": 500}, {"clicks": 700, "late": 5})),
        [Worker("1", 1)],
        ["1", "1"],
        1.0,
        owners={SUB: maps.default},
        density=2.0,
    )
    one = made.sub_queries[SUB]
    assert one.backlog_events == 2 * 705
    assert one.input_rate == 2 * 200 / 2, "what a new stream has waiting did not come now"
    assert one.bucket_map.tolist() == list(maps.default)
    assert one.bucket_seconds.sum() == 0


def test_a_meter_that_nobody_asks_does_not_grow() -> None:
    meter = Meter(dict, 1.0)
    for number in range(1_000):
        meter.add(report(number, even_maps(BUCKETS, 1)))
    assert len(meter._reports) <= 256
    assert all(not one.rows for one in meter._reports)


def test_decisions_are_kept_as_lines(playground: Playground) -> None:
    overload(playground)
    lines = (playground.tmp / "elastic.jsonl").read_text().splitlines()
    assert len(lines) == len(playground.loop.loop.record.entries) == 1
    assert '"decision": "provision"' in lines[0]


def test_what_came_in_is_what_was_read_and_what_is_left_more_than_before() -> None:
    maps = even_maps(BUCKETS, 2)
    made = snapshot(
        Period(
            10.0,
            2.0,
            [report(1, maps, events=1_000), report(2, maps, events=3_000)],
            Backlog({"clicks": 500}, {"clicks": 2_500}),
        ),
        [Worker("1", 1), Worker("2", 1)],
        ["1", "2"],
        1.0,
    )
    one = made.sub_queries[SUB]
    assert one.processing_rate == 2_000
    assert one.input_rate == 3_000
    assert one.backlog_events == 2_500
    assert one.utilisation == pytest.approx(2.0 / (2 * 2))
    assert made.sub_queries[SCAN].busy_seconds == pytest.approx(0.2)
    assert made.fleet.cpu[0] == pytest.approx(0.1)


def test_an_engine_that_has_just_begun_is_not_judged_by_its_first_epochs(playground: Playground) -> None:
    """It took 3 s for each of its first tiny epochs, and then does 1,000 events a second."""
    playground.backlog = 3_000
    for _ in range(COLD_EPOCHS):
        playground.turn(seconds=3.0, busy=3.0, events=20)
        said = playground.meter.latest
        assert said is not None
        assert not said.warm
        assert math.isnan(said.backlog_seconds)
        assert "just started" in playground.loop.loop.resting
    playground.turn(busy=1.0)
    said = playground.meter.latest
    assert said is not None
    assert said.warm
    assert said.backlog_seconds == pytest.approx(3.0)
    playground.turn(seconds=0.3, busy=0.3, events=20)
    said = playground.meter.latest
    assert said is not None
    assert said.backlog_seconds == pytest.approx(3.0), "one small epoch says nothing about the speed"
    assert playground.wanted == []


def test_an_engine_without_events_is_measured_as_it_is(playground: Playground) -> None:
    playground.turn(events=0, busy=0.0)
    assert playground.meter.latest is not None
    assert playground.meter.latest.warm
    assert playground.meter.latest.backlog_seconds == 0


def test_what_an_epoch_takes_anyhow_is_told_apart() -> None:
    maps = even_maps(BUCKETS, 1)
    # half a second an epoch and a millisecond an event, a tenth of it again in the scan
    reports = [report(at, maps, events=n, seconds=0.5 + n / 1_000) for at, n in enumerate([100, 400, 100])]
    made = snapshot(Period(10.0, 4.0, reports, Backlog({}, {"clicks": 0})), [Worker("1", 1)], ["1"], 1.0)
    assert made.sub_queries[SUB].fixed_seconds == pytest.approx(1.5)
    assert made.sub_queries[SUB].cost_seconds == pytest.approx(0.001)
    assert made.sub_queries[SCAN].cost_seconds == pytest.approx(0.0001)


def test_the_processor_of_one_that_never_had_a_task_is_not_known(playground: Playground) -> None:
    workers = [Worker("1", 1), Worker("2", 1), Worker("3", 1, memory=5.0)]
    maps = even_maps(BUCKETS, 1)
    made = snapshot(Period(10.0, 2.0, [report(1, maps)], Backlog({}, {})), workers, ["1"], 1.0)
    assert made.fleet.cpu[0] > 0
    assert math.isnan(made.fleet.cpu[1])
    assert made.fleet.cpu[2] == 0, "it had one once"


def test_a_process_knows_what_it_holds() -> None:
    own, shared = measure_memory()[os.getpid()]
    assert 10e6 < own < 100e9
    assert 0 < shared < 100e9


def test_what_python_workers_of_an_executor_have_mapped_counts_once() -> None:
    def task(executor: str, measure_memory: dict[int, tuple[int, int]]) -> Message:
        return open_message(ScanReport(1.0, executor=executor, memory=measure_memory).to_bytes())

    reports = [
        task("1", {10: (500, 20), 11: (40, 300)}),
        task("1", {10: (600, 20), 12: (50, 200)}),
        task("2", {20: (7, 0)}),
        task("3", {}),
    ]
    assert memory_by_executor(list_tasks(one for one in reports if isinstance(one, ScanReport))) == {
        "1": 600 + 40 + 50 + 300,
        "2": 7,
    }


def test_the_memory_of_executors_is_remembered_while_nothing_runs_there_and_forgotten_with_them() -> None:
    meter = Meter(dict, 1.0)
    one = report(1, even_maps(BUCKETS, 1))
    meter.add(replace(one, tasks=(replace(one.tasks[0], memory={10: (500, 20)}),)))
    workers = [Worker("1", 1), Worker("2", 1)]
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [520, 0]
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [520, 0]
    meter.measure(workers[1:], ["2"])
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [0, 0]

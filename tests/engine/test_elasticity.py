"""The elastic loop in the engine: it notices executors that join and leave, and every bucket has a live owner."""

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
from tests.engine.playground import BUCKETS, STAGE, Playground, overload, report


@pytest.fixture
def playground(tmp_path: Path) -> Playground:
    return Playground(tmp_path)


def test_slices_are_placed_on_the_first_executors(playground: Playground) -> None:
    playground.turn()
    assert playground.owners() == {"1"}
    assert playground.loop.placement == ("1",)


def test_a_backlog_scales_out_and_new_executors_get_buckets_once_they_are_warm(
    playground: Playground,
) -> None:
    overload(playground)
    assert playground.requested[-1] > 1
    playground.add_worker("2")
    playground.turn(busy=2.0)
    assert playground.warm == [ExecutorLocation("here", "2")]
    for name in range(3, playground.requested[-1] + 1):
        playground.add_worker(str(name))
    playground.turn(busy=2.0, times=4)
    assert playground.owners() == set(playground.workers_)
    (entry,) = playground.loop.loop.record.entries
    assert entry.outcome in (Outcome.watched, Outcome.helped)


def test_an_executor_that_dies_in_its_warm_up_delays_no_other(playground: Playground) -> None:
    overload(playground)
    playground.can_warm_up.clear()
    playground.add_worker("2")
    playground.turn(busy=2.0)
    assert playground.loop.rehearsing == ("2",)
    del playground.workers_["2"]
    playground.add_worker("3")
    playground.turn(busy=2.0)
    assert playground.loop.rehearsing == ("3",)
    playground.can_warm_up.set()
    playground.turn(busy=2.0, times=2)
    assert playground.warm == [ExecutorLocation("here", "3")], "there was nobody left to warm up"
    assert "3" in playground.loop.placement


def test_a_refusal_of_the_cluster_is_reported_and_epochs_continue(playground: Playground) -> None:
    playground.refuses = True
    overload(playground, times=6)
    assert playground.loop.loop.record.entries[0].outcome == Outcome.failed
    assert "no more" in playground.loop.loop.record.entries[0].why
    assert playground.owners() == {"1"}


def test_an_executor_that_never_joins_is_requested_again_and_then_given_up(playground: Playground) -> None:
    overload(playground)
    requested = len(playground.requested)
    for _ in range(40):
        playground.turn(seconds=20.0, busy=20.0)
    assert len(playground.requested) > requested
    assert playground.loop.loop.record.entries[0].outcome == Outcome.failed


def test_the_buckets_of_a_dead_executor_go_to_live_ones(playground: Playground) -> None:
    playground.add_worker("2")
    playground.turn(times=2)
    assert playground.owners() == {"1", "2"}
    del playground.workers_["2"]
    playground.turn()
    assert playground.owners() == {"1"}


def test_a_replacement_takes_the_slices_of_the_dead_executor(playground: Playground) -> None:
    playground.add_worker("2")
    playground.turn(times=2)
    del playground.workers_["2"]
    playground.turn()
    playground.add_worker("7")
    playground.turn(times=2)
    assert "7" in playground.loop.placement
    assert "7" not in playground.retired


def test_a_replacement_gets_the_buckets_of_the_dead_executor_without_a_decision(
    playground: Playground,
) -> None:
    playground.add_worker("2")
    playground.turn(times=2 + COLD_EPOCHS)
    before = playground.maps
    assert playground.owners() == {"1", "2"}
    del playground.workers_["2"]
    playground.turn(times=2)
    assert playground.owners() == {"1"}
    assert "should replace 2, which failed" in playground.loop.loop.resting
    playground.add_worker("7")
    playground.turn(times=3)
    assert playground.owners() == {"1", "7"}
    assert playground.maps.of(STAGE) == before.of(STAGE)
    assert playground.loop.loop.record.entries == ()
    assert playground.loop.loop.deaths[0].by == "7"


def test_buckets_that_were_moved_meanwhile_do_not_go_back(playground: Playground) -> None:
    playground.add_worker("2")
    playground.turn(times=2)
    before = playground.maps.of(STAGE)
    del playground.workers_["2"]
    playground.turn()
    playground.add_worker("3")
    playground.maps = playground.maps.with_owners(None, {0: 5})  # by somebody else
    playground.turn(times=3)
    assert playground.loop.placement == ("1", "3")
    assert playground.maps.of(STAGE) != before
    assert playground.owners() <= {"1", "3"}


def test_the_end_of_the_run_cuts_pending_decisions_short(playground: Playground) -> None:
    overload(playground)
    assert playground.loop.loop.record.entries[0].outcome == Outcome.under_way
    playground.loop.close()
    (entry,) = playground.loop.loop.record.entries
    assert (entry.outcome, entry.why) == (Outcome.cut_short, "the run ended")
    assert '"outcome": "cut short"' in (playground.tmp / "elastic.jsonl").read_text()


def test_an_executor_that_was_not_requested_is_released(playground: Playground) -> None:
    playground.turn()
    playground.add_worker("9")
    playground.turn(times=3)
    assert playground.retired == ["9"]


def test_surplus_executors_are_released_after_their_buckets_have_moved(playground: Playground) -> None:
    for name in "234":
        playground.add_worker(name)
    playground.turn(busy=0.2, times=12)
    assert playground.retired
    assert playground.owners() == set(playground.workers_)
    assert not set(playground.retired) & playground.owners()


def test_a_failed_move_leaves_the_maps_and_is_recorded(playground: Playground) -> None:
    for name in "234":
        playground.add_worker(name)
    playground.turn()
    playground.moves_fail = True
    playground.turn(busy=0.2, times=30)
    assert not playground.retired
    assert playground.loop.loop.record.entries[0].outcome in (Outcome.failed, Outcome.undone)


def test_when_all_executors_are_gone_the_next_one_takes_over(playground: Playground) -> None:
    playground.turn()
    playground.workers_.clear()
    playground.turn(times=2)
    playground.add_worker("5")
    playground.turn(times=2)
    assert playground.loop.placement == ("5",)
    assert playground.owners() == {"5"}


def test_a_dead_executor_is_requested_once_and_the_budget_holds(playground: Playground) -> None:
    playground.add_worker("2")
    playground.turn(times=2)
    for _ in range(3):
        del playground.workers_["2"]
        playground.turn()
        playground.add_worker("2")
        playground.turn(times=2)
    assert max(playground.requested, default=0) <= 2
    assert playground.owners() <= {"1", "2"}


def test_an_executor_that_joins_after_the_order_was_given_up_is_released(playground: Playground) -> None:
    overload(playground)
    while playground.loop.loop.record.entries[0].outcome != Outcome.failed:
        playground.turn(seconds=20.0, busy=20.0)
        assert playground.now < 2_000
    assert playground.requested[-1] == 1, "the loop waits for none"
    playground.add_worker("9")
    playground.turn(times=3)
    assert "9" in playground.retired


def test_a_surplus_executor_that_has_gone_is_forgotten(playground: Playground) -> None:
    playground.turn()
    playground.add_worker("9")
    playground.turn(times=4)
    assert not playground.loop._leaving


def test_a_period_without_epochs_still_has_backlog_and_owners() -> None:
    maps = even_maps(BUCKETS, 2)
    found = snapshot(
        Period(10.0, 2.0, [], Backlog({"clicks": 500}, {"clicks": 700, "late": 5})),
        [Worker("1", 1)],
        ["1", "1"],
        1.0,
        owners={STAGE: maps.default},
        density=2.0,
    )
    one = found.stages[STAGE]
    assert one.backlog_events == 2 * 705
    assert one.input_rate == 2 * 200 / 2, "what a new stream has waiting did not come now"
    assert one.bucket_map.tolist() == list(maps.default)
    assert one.bucket_seconds.sum() == 0


def test_a_meter_that_is_never_read_does_not_grow() -> None:
    meter = Meter(dict, 1.0)
    for number in range(1_000):
        meter.add(report(number, even_maps(BUCKETS, 1)))
    assert len(meter._reports) <= 256
    assert all(not one.rows for one in meter._reports)


def test_decisions_are_written_as_lines(playground: Playground) -> None:
    overload(playground)
    lines = (playground.tmp / "elastic.jsonl").read_text().splitlines()
    assert len(lines) == len(playground.loop.loop.record.entries) == 1
    assert '"decision": "provision"' in lines[0]


def test_the_input_rate_is_what_was_read_plus_the_growth_of_the_backlog() -> None:
    maps = even_maps(BUCKETS, 2)
    found = snapshot(
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
    one = found.stages[STAGE]
    assert one.processing_rate == 2_000
    assert one.input_rate == 3_000
    assert one.backlog_events == 2_500
    assert one.utilisation == pytest.approx(2.0 / (2 * 2))
    assert found.stages[SCAN].busy_seconds == pytest.approx(0.2)
    assert found.fleet.cpu[0] == pytest.approx(0.1)


def test_an_engine_that_just_started_is_not_judged_by_its_first_epochs(playground: Playground) -> None:
    """It took 3 s for each of its first tiny epochs, and then does 1,000 events a second."""
    playground.backlog = 3_000
    for _ in range(COLD_EPOCHS):
        playground.turn(seconds=3.0, busy=3.0, events=20)
        latest = playground.meter.latest
        assert latest is not None
        assert not latest.warm
        assert math.isnan(latest.backlog_seconds)
        assert "just started" in playground.loop.loop.resting
    playground.turn(busy=1.0)
    latest = playground.meter.latest
    assert latest is not None
    assert latest.warm
    assert latest.backlog_seconds == pytest.approx(3.0)
    playground.turn(seconds=0.3, busy=0.3, events=20)
    latest = playground.meter.latest
    assert latest is not None
    assert latest.backlog_seconds == pytest.approx(3.0), "one small epoch says nothing about the speed"
    assert playground.requested == []


def test_an_engine_without_events_is_warm_and_has_no_backlog(playground: Playground) -> None:
    playground.turn(events=0, busy=0.0)
    assert playground.meter.latest is not None
    assert playground.meter.latest.warm
    assert playground.meter.latest.backlog_seconds == 0


def test_the_fixed_cost_of_an_epoch_is_separated() -> None:
    maps = even_maps(BUCKETS, 1)
    # half a second an epoch and a millisecond an event, a tenth of it again in the scan
    reports = [report(at, maps, events=n, seconds=0.5 + n / 1_000) for at, n in enumerate([100, 400, 100])]
    found = snapshot(Period(10.0, 4.0, reports, Backlog({}, {"clicks": 0})), [Worker("1", 1)], ["1"], 1.0)
    assert found.stages[STAGE].fixed_seconds == pytest.approx(1.5)
    assert found.stages[STAGE].cost_seconds == pytest.approx(0.001)
    assert found.stages[SCAN].cost_seconds == pytest.approx(0.0001)


def test_the_cpu_of_an_executor_without_tasks_is_unknown(playground: Playground) -> None:
    workers = [Worker("1", 1), Worker("2", 1), Worker("3", 1, memory=5.0)]
    maps = even_maps(BUCKETS, 1)
    found = snapshot(Period(10.0, 2.0, [report(1, maps)], Backlog({}, {})), workers, ["1"], 1.0)
    assert found.fleet.cpu[0] > 0
    assert math.isnan(found.fleet.cpu[1])
    assert found.fleet.cpu[2] == 0, "it had one once"


def test_a_process_measures_its_memory() -> None:
    own, shared = measure_memory()[os.getpid()]
    assert 10e6 < own < 100e9
    assert 0 < shared < 100e9


def test_memory_that_python_workers_share_counts_once() -> None:
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


def test_the_memory_of_an_executor_is_remembered_until_it_is_gone() -> None:
    meter = Meter(dict, 1.0)
    one = report(1, even_maps(BUCKETS, 1))
    meter.add(replace(one, tasks=(replace(one.tasks[0], memory={10: (500, 20)}),)))
    workers = [Worker("1", 1), Worker("2", 1)]
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [520, 0]
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [520, 0]
    meter.measure(workers[1:], ["2"])
    assert meter.measure(workers, ["1", "2"]).fleet.memory.tolist() == [0, 0]

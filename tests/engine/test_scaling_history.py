"""The elastic loop remembers decisions and costs over a restart, waits for long moves, and renumbers the slices of
executors that have gone."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from penstock.engine.scaling_history import COSTS, DECISIONS
from penstock.scaling.cost import Costs
from penstock.scaling.decisions import Decommission, Move, Provision
from penstock.scaling.record import Outcome, Record
from tests.engine.playground import BUCKETS, SETTINGS, STAGE, Playground, overload


@pytest.fixture
def playground(tmp_path: Path) -> Playground:
    return Playground(tmp_path)


# -- over a restart ------------------------------------------------------------------------------------


def run_under_load(playground: Playground) -> None:
    """A load that is a little too high, and always the same."""
    playground.backlog = 20_000
    playground.turn(busy=2.0, times=8)


def run_refused(playground: Playground) -> None:
    playground.refuses = True
    run_under_load(playground)
    assert playground.requested


def test_a_failed_decision_is_not_tried_again_after_a_restart(tmp_path: Path) -> None:
    run_refused(Playground(tmp_path))
    restarted = Playground(tmp_path)
    run_under_load(restarted)
    (entry,) = restarted.loop.loop.record.entries
    assert entry.outcome == Outcome.failed
    assert "failed last time" in restarted.loop.loop.resting
    assert restarted.requested == []


def test_without_the_record_it_is_tried_again(tmp_path: Path) -> None:
    run_refused(Playground(tmp_path))
    (tmp_path / DECISIONS).unlink()
    run_refused(Playground(tmp_path))


def test_a_pending_decision_is_cut_short_by_a_restart_and_may_be_decided_again(tmp_path: Path) -> None:
    overload(Playground(tmp_path))
    restarted = Playground(tmp_path)
    (entry,) = restarted.loop.loop.record.entries
    assert entry.outcome == Outcome.cut_short
    overload(restarted)
    assert len(restarted.loop.loop.record.entries) == 2


def test_times_in_the_file_are_those_of_the_wall_clock(playground: Playground) -> None:
    overload(playground)
    (line,) = (playground.tmp / DECISIONS).read_text().splitlines()
    assert abs(json.loads(line)["at"] - playground.loop.ahead) <= playground.now


def test_an_unreadable_record_is_ignored(tmp_path: Path) -> None:
    (tmp_path / DECISIONS).write_text('nonsense\n{"number": 0}\n{"number": 1, "decision": "dance"}\n[]\n')
    (tmp_path / COSTS).write_text("{")
    playground = Playground(tmp_path)
    assert playground.loop.loop.record == Record()
    assert playground.loop.loop.costs == Costs()
    playground.turn()


@pytest.mark.parametrize(
    "decision",
    [
        Provision(2, "because", {"load_cores": 1.5}),
        Decommission(("a", "b"), "because", {}),
        Move("q", {3: (0, 1), 7: (2, 0)}, "because", {"imbalance": 0.25}),
    ],
)
def test_every_decision_is_read_back_as_it_was(decision: Provision | Decommission | Move) -> None:
    record = Record().add(decision, 10.0).set_end(0, Outcome.failed, 12.0, "no", 3.0)
    (entry,) = Record.from_lines(record.lines(1_000.0), 1_000.0, now=50.0).entries
    assert entry == replace(record.entries[0], backlog_seconds=0.0)


def test_an_entry_from_the_future_gets_the_present_time() -> None:
    record = Record().add(Provision(1, "because"), 10.0).set_end(0, Outcome.failed, 12.0, "no", 0.0)
    (entry,) = Record.from_lines(record.lines(1_000.0), 0.0, now=50.0).entries
    assert max(entry.at, entry.outcome_at, entry.changed_at) == 50.0


# -- what changes cost ---------------------------------------------------------------------------------


def test_measured_costs_are_known_to_the_next_engine(tmp_path: Path) -> None:
    playground = Playground(tmp_path)
    overload(playground)
    playground.turn(seconds=30.0, busy=30.0)
    for name in range(2, playground.requested[-1] + 1):
        playground.add_worker(str(name))
    playground.turn(busy=2.0, times=4)
    costs = playground.loop.loop.costs
    assert costs.start_seconds > Costs().start_seconds
    assert costs.start_seconds < playground.now
    assert Costs().pause_seconds < costs.pause_seconds <= 0.5, "half of what was before, half of what is seen"
    assert costs.bytes_per_second > Costs().bytes_per_second
    read = Playground(tmp_path).loop.loop.costs
    assert astuple(read) == pytest.approx(astuple(costs), rel=1e-4)


# -- moves that take long --------------------------------------------------------------------------------


def scale_out_slowly(playground: Playground) -> None:
    """Request executors until they have joined and their buckets are moving, slowly."""
    overload(playground)
    playground.moves_are_slow = True
    for name in range(2, playground.requested[-1] + 1):
        playground.add_worker(str(name))
    playground.turn(busy=2.0, times=3)
    assert playground.pending_moves


def test_a_long_move_is_not_requested_twice(playground: Playground) -> None:
    scale_out_slowly(playground)
    pending = list(playground.pending_moves)
    for _ in range(SETTINGS.retries):
        playground.turn(seconds=SETTINGS.move_timeout_seconds + 1, busy=60.0)
        assert playground.pending_moves == pending
    playground.finish_moves()
    playground.moves_are_slow = False
    playground.turn(busy=2.0, times=2)
    assert playground.loop.loop.record.entries[0].outcome in (Outcome.watched, Outcome.helped)
    assert playground.owners() == set(playground.workers_)


def test_an_endless_move_is_cancelled_and_the_new_executors_are_released(playground: Playground) -> None:
    scale_out_slowly(playground)
    before = playground.owners()
    for _ in range(SETTINGS.retries + 2):
        playground.turn(seconds=SETTINGS.move_timeout_seconds + 1, busy=60.0)
    playground.moves_are_slow = False
    playground.finish_moves()
    playground.turn(busy=2.0, times=4)
    assert playground.owners() == before, "a cancelled move is never made"
    assert set(playground.retired) >= {"2"}
    assert playground.loop.loop.record.entries[0].outcome == Outcome.undone


# -- slices of those that have gone, and stages to come ---------------------------------------------


def test_slices_are_renumbered_once_most_executors_have_gone(playground: Playground) -> None:
    for name in "23456789":
        playground.add_worker(name)
    playground.turn(times=2)
    assert len(playground.loop.placement) == 9
    for name in "1234567":
        del playground.workers_[name]
    playground.turn(times=4)
    assert playground.loop.placement == ("8", "9")
    assert playground.maps.slices == 2
    assert playground.owners() == {"8", "9"}


def test_nothing_is_decided_while_slices_are_renumbered(playground: Playground) -> None:
    for name in "23456":
        playground.add_worker(name)
    playground.turn(times=2)
    for name in "1234":
        del playground.workers_[name]
    playground.moves_are_slow = True
    while not playground.loop._changes.is_renumbering:
        playground.turn()
        playground.finish_moves() if not playground.loop._changes.is_renumbering else None
        assert playground.now < 100
    (waiting,) = playground.pending_moves
    playground.add_worker("7")
    playground.turn(times=3)
    assert playground.pending_moves == [waiting]
    assert "7" not in playground.loop.placement
    playground.moves_are_slow = False
    playground.finish_moves()
    playground.turn(times=4)
    assert "" not in playground.loop.placement[:2]


def test_a_stage_added_after_a_scale_out_starts_on_all_executors(playground: Playground) -> None:
    overload(playground)
    for name in range(2, playground.requested[-1] + 1):
        playground.add_worker(str(name))
    playground.turn(busy=2.0, times=4)
    executors = {
        str(getattr(playground.maps.location_of(s), "executor", "")) for s in playground.maps.of("new")
    }
    assert executors == set(playground.workers_)
    assert STAGE in playground.maps.operators
    assert len(playground.maps.of("new")) == BUCKETS

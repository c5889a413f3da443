"""Admission over a manually extended log, with a manual clock: which spans an epoch reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.program_of import program_of
from penstock.epoch.admission import Admission, AdmissionSettings
from penstock.epoch.rate_control import PendingEmissions, RateControl
from penstock.logs.contract import Log, Partition
from penstock.query.compile import compile_app
from penstock.state.epoch_record import Offset
from penstock.testing.list_log import ListLog
from penstock.testing.manual_clock import PassingClock


class GrowingLog(ListLog):
    """Partitions that end one by one, and start at any offset."""

    def __init__(self, **lengths: int) -> None:
        super().__init__({name: ["x"] * length for name, length in lengths.items()}, finished=False)
        self.ended: set[str] = set()
        self.earliest: dict[str, int] = {}

    def remove(self, partition: str) -> None:
        del self._lines[partition]

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return [
            Partition(p.id, self.earliest.get(p.id, 0), p.latest, p.id in self.ended)
            for p in super().partitions(offsets)
        ]


def new_admission(
    *logs: Log,
    budget: int = 10,
    clock: Callable[[], float] | None = None,
    recorded: Callable[[int], Offset | None] = lambda epoch: None,
    interval: float = 0.0,
    idle_after: str | None = "5s",
    target: float = float("inf"),
) -> Admission:
    decoder = ps.json_lines({"time": pl.Datetime("us")}, times={"time": "us"})
    outputs = [
        ps.output(f"out{at}", ps.stream(f"s{at}", log, decoder, time="time", idle_after=idle_after))
        for at, log in enumerate(logs)
    ]
    plan = compile_app(ps.app("test", *outputs))
    rate = RateControl(target, budget, min(budget, 10))
    clock = clock or PassingClock()
    settings = AdmissionSettings(drain=True, min_interval_seconds=interval)
    return Admission(
        program_of(AppPlan(plan), Path("nowhere")), settings, lambda _: rate, recorded, clock=clock
    )


def test_an_empty_log_has_one_epoch_which_records_its_partitions() -> None:
    admission = new_admission(GrowingLog(a=0))
    first = admission.admit(Offset())
    assert first.at == {"s0": {"a": 0}}
    assert list(Offset().spans_until(first)) == []
    assert admission.admit(first) == first


def test_a_log_is_read_by_budget_until_nothing_is_left() -> None:
    log = GrowingLog(a=25)
    admission = new_admission(log, idle_after=None)
    seen, start = [], Offset()
    while (at := admission.admit(start)) != start:
        seen.append((at.epoch, at.at["s0"]["a"]))
        start = at
    assert seen == [(0, 10), (1, 20), (2, 25)]
    assert admission.drained.is_set(), "it may still grow, but all that it holds is read"
    log.add("a", "x", "x")
    start = admission.admit(start)
    assert (start.epoch, start.at) == (3, {"s0": {"a": 27}})


def test_admission_is_drained_once_every_partition_is_finished_and_read() -> None:
    log = GrowingLog(a=15, b=3)
    admission = new_admission(log, idle_after=None)
    start = admission.admit(admission.admit(Offset()))
    log.ended.add("a")
    ended = admission.admit(start)
    assert ended.finished == {"s0": ("a",)}
    log.finish()
    assert admission.admit(ended) != ended
    assert not admission.drained.is_set(), "admission waits for a log that will finish"
    log.ended.add("b")
    ended = admission.admit(ended)
    assert ended.finished == {"s0": ("a", "b")}
    assert admission.admit(ended) == ended
    assert admission.drained.is_set()


def test_a_finished_partition_is_not_called_finished_before_it_is_read() -> None:
    log = GrowingLog(a=15)
    log.ended.add("a")
    admission = new_admission(log)
    first = admission.admit(Offset())
    assert first.finished == {"s0": ()}
    assert admission.admit(first).finished == {"s0": ("a",)}


def test_a_silent_partition_is_idle_after_its_timeout_until_its_next_event() -> None:
    log, clock = GrowingLog(a=1, b=1), PassingClock()
    admission = new_admission(log, clock=clock)
    start = admission.admit(Offset())
    assert start.idle == {"s0": ()}
    assert admission.admit(start) == start
    clock.turn(4)
    log.add("a", "x")
    start = admission.admit(start)
    clock.turn(2)
    start = admission.admit(start)
    assert start.idle == {"s0": ("b",)}
    log.add("b", "x")
    start = admission.admit(start)
    assert start.idle == {"s0": ()}
    clock.turn(60)
    assert admission.admit(start).idle == {"s0": ("a", "b")}


def test_a_partition_with_a_backlog_is_not_idle_however_long_it_takes() -> None:
    log, clock = GrowingLog(a=100), PassingClock()
    admission = new_admission(log, clock=clock)
    start = Offset()
    for _ in range(9):
        start = admission.admit(start)
        clock.turn(60)
        assert start.idle == {"s0": ()}


def test_without_an_idle_timeout_a_partition_is_never_idle() -> None:
    clock = PassingClock()
    admission = new_admission(GrowingLog(a=1), clock=clock, idle_after=None)
    start = admission.admit(Offset())
    clock.turn(10**6)
    assert admission.admit(start) == start


def test_an_epoch_with_a_record_is_repeated_as_recorded() -> None:
    recorded = Offset(1, at={"s0": {"a": 7}}, finished={"s0": ()}, idle={"s0": ()})
    admission = new_admission(GrowingLog(a=100), recorded={1: recorded}.get, interval=1000)
    first = admission.admit(Offset())
    assert admission.admit(first) == recorded, "at once: a repeated epoch waits for nothing"


def test_epochs_keep_their_minimum_interval() -> None:
    clock = PassingClock()
    admission = new_admission(GrowingLog(a=100), clock=clock, interval=3)
    first = admission.admit(Offset())
    assert admission.admit(first) == first
    clock.turn(3)
    assert admission.admit(first).epoch == 1


def test_epochs_keep_a_longer_interval_while_admission_is_throttled() -> None:
    clock = PassingClock()
    admission = new_admission(GrowingLog(a=100), clock=clock, interval=3)
    first = admission.admit(Offset())
    admission.throttle_seconds = 10
    clock.turn(3)
    assert admission.admit(first) == first
    clock.turn(7)
    assert admission.admit(first).epoch == 1


def test_a_partition_that_starts_or_appears_later_is_read_from_its_start() -> None:
    log = GrowingLog(a=5)
    log.earliest["b"] = 40
    admission = new_admission(log, budget=100)
    first = admission.admit(Offset())
    log.add("b", *["x"] * 45)
    second = admission.admit(first)
    assert [(span.partition, span.start, span.end) for _, span in list(first.spans_until(second))] == [
        ("b", 40, 45)
    ]


def test_two_streams_together_fill_one_epoch_not_one_each() -> None:
    admission = new_admission(
        GrowingLog(a=10**7), GrowingLog(a=10**7), budget=1_000, target=1.0, idle_after=None
    )
    start, lengths = Offset(), []
    for _ in range(60):
        end = admission.admit(start)
        units: Counter[str] = Counter()
        for stream, span in list(start.spans_until(end)):
            units[stream] += span.end - span.start
        lengths.append(0.1 + sum(units.values()) * 1e-5)
        admission.observe(units, lengths[-1])
        start = end
    assert lengths[-1] == pytest.approx(1.0, rel=0.2)


growth = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 30)),
        st.floats(0, 10),
        st.sets(st.sampled_from("abcd")),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(growth, st.integers(1, 40))
def test_every_record_is_in_exactly_one_epoch(
    steps: list[tuple[dict[str, int], float, set[str]]], budget: int
) -> None:
    log, clock = GrowingLog(), PassingClock()
    admission = new_admission(log, clock=clock, budget=budget)
    start, seen = Offset(), Counter[tuple[str, int]]()

    def admit_next() -> bool:
        nonlocal start
        end = admission.admit(start)
        if end == start:
            return False
        assert end.epoch == start.epoch + 1
        for stream, at in start.at.items():
            assert all(end.at[stream][partition] >= offset for partition, offset in at.items())
        spans = list(start.spans_until(end))
        assert sum(span.end - span.start for _, span in spans) <= max(budget, 4)
        seen.update((span.partition, at) for _, span in spans for at in range(span.start, span.end))
        start = end
        return True

    for new, seconds, ended in steps:
        for name, count in new.items():
            if name not in log.ended:
                log.add(name, *["x"] * count)
        log.ended |= ended
        clock.turn(seconds)
        admit_next()
    log.ended |= set("abcd")
    while admit_next():
        pass
    assert admission.drained.is_set()
    expected = {(p.id, at): 1 for p in log.partitions({}) for at in range(p.latest)}
    assert seen == expected


@pytest.mark.parametrize("idle_after", ["5s", None])
def test_a_removed_partition_becomes_idle(idle_after: str | None) -> None:
    """logrotate removes the oldest file: windows must continue to close."""
    log, clock = GrowingLog(a=1, b=1), PassingClock()
    admission = new_admission(log, clock=clock, idle_after=idle_after)
    start = admission.admit(Offset())
    log.remove("a")
    log.add("b", "x")
    start = admission.admit(start)
    assert start.idle == {"s0": ()}, "it may be missing for a moment only"
    clock.turn(6)
    log.add("b", "x")
    start = admission.admit(start)
    assert start.idle == {"s0": ("a",)}
    assert start.at["s0"]["a"] == 1


def test_pending_emissions_cause_epochs_until_they_are_emitted() -> None:
    admission = new_admission(GrowingLog(a=5), idle_after=None, target=1.0)
    start = admission.admit(Offset())
    admission.observe({"s0": 5}, 0.1, {"s0": PendingEmissions(0, 50, rows={10: (0, 10**6), 20: (0, 10**6)})})
    held = admission.admit(start)
    assert list(start.spans_until(held)) == []
    assert held.watermark_limits == {"s0": (19, 0)}
    admission.observe({}, 4.0, {"s0": PendingEmissions(19, 50, rows={20: (0, 10**6)})})
    freed = admission.admit(held)
    assert (freed.epoch, freed.watermark_limits) == (2, {})
    assert not admission.drained.is_set()
    admission.observe({}, 4.0, {"s0": PendingEmissions(50, 50)})
    assert admission.admit(freed) == freed
    assert admission.drained.is_set()


def test_less_is_read_in_an_epoch_that_emits_much() -> None:
    admission = new_admission(GrowingLog(a=10_000), budget=1_000, idle_after=None, target=1.0)
    start = admission.admit(Offset())
    admission.observe({"s0": 1_000}, 1.0, {"s0": PendingEmissions(0, 50, rows={10: (0, 125_000)})})
    beside = admission.admit(start)
    assert 450 <= beside.at["s0"]["a"] - 1_000 <= 550, "half a second is left"
    admission.observe({"s0": 500}, 1.0, {"s0": PendingEmissions(50, 50)})
    assert admission.admit(beside).at["s0"]["a"] - beside.at["s0"]["a"] >= 900, "and then all of it again"


def test_a_recovered_engine_repeats_the_watermark_limit_before_it_raises_it() -> None:
    admission = new_admission(GrowingLog(a=5), idle_after=None, target=1.0)
    before = replace(admission.admit(Offset()), watermark_limits={"s0": (19, 3)})
    again = admission.admit(before)
    assert (again.epoch, again.watermark_limits) == (1, {"s0": (19, 3)})
    admission.observe({}, 0.1, {"s0": PendingEmissions(19, 50, 3)})
    assert not admission.admit(again).watermark_limits


def test_an_epoch_that_read_little_because_it_emitted_much_does_not_lower_the_budget() -> None:
    admission = new_admission(GrowingLog(a=10_000), budget=1_000, idle_after=None, target=1.0)
    start = admission.admit(Offset())
    admission.observe({"s0": 1_000}, 1.0, {"s0": PendingEmissions(0, 50, rows={10: (0, 300_000)})})
    before = admission.budget("s0")
    admission.admit(start)
    admission.observe({"s0": 125}, 3.0, {"s0": PendingEmissions(50, 50)})
    assert admission.budget("s0") == before


def test_a_few_emitted_rows_do_not_keep_the_budget_from_falling() -> None:
    admission = new_admission(GrowingLog(a=10**6), budget=1_000, idle_after=None, target=1.0)
    at = Offset()
    for instant in range(0, 50, 10):
        at = admission.admit(at)
        admission.observe(
            {"s0": 450}, 4.5, {"s0": PendingEmissions(instant, instant, rows={instant + 10: (1, 0)})}
        )
    assert admission.budget("s0") < 200


def test_a_live_stream_with_few_rows_does_not_overestimate_the_cost_of_a_row() -> None:
    """The fixed cost of small epochs is no cost of emission: a minute that ends later is not held back for it."""
    log = GrowingLog(a=10)
    admission = new_admission(log, budget=10**6, idle_after=None, target=1.0)
    at = Offset()
    for second in range(60):
        log.add("a", "x")
        at = admission.admit(at)
        admission.observe(
            {"s0": 1}, 0.4, {"s0": PendingEmissions(second, second, rows={second + 1: (100, 0)})}
        )
    admission.observe({"s0": 1}, 0.4, {"s0": PendingEmissions(60, 90, rows={70: (10_000, 0)})})
    log.add("a", "x")
    assert not admission.admit(at).watermark_limits


def test_streams_share_the_time_for_emission() -> None:
    pending = PendingEmissions(0, 50, rows={10: (160_000, 0)})  # 0.64 s each
    admission = new_admission(GrowingLog(a=5), GrowingLog(a=5), idle_after=None, target=1.0)
    at = admission.admit(Offset())
    admission.observe({"s0": 5, "s1": 5}, 0.1, {"s0": pending, "s1": pending})
    limits = admission.admit(at).watermark_limits
    assert "s0" not in limits
    assert limits["s1"][0] == 9
    assert 0 < limits["s1"][1] < 10

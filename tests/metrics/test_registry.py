"""A registry holds the values of metrics: counters only grow, labels are those declared, histograms add up."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InternalError
from penstock.metrics.registry import Histogram, Metric, Registry

COUNTER = Metric("penstock_c_total", "counter", "rows", "Rows.", ("job",))
GAUGE = Metric("penstock_g", "gauge", "rows", "Rows.", ("job",))
TIMES = Metric("penstock_t_seconds", "histogram", "seconds", "Time.", bounds=(1.0, 2.0, 4.0))


def histogram(registry: Registry) -> Histogram:
    ((_, values),) = registry.samples()
    found = values[()]
    assert isinstance(found, Histogram)
    return found


def test_counters_add_up_by_their_labels() -> None:
    registry = Registry()
    for job, rows in (("a", 1), ("b", 2), ("a", 3)):
        registry.add(COUNTER, rows, job)
    assert registry.samples() == [(COUNTER, {("a",): 4, ("b",): 2})]
    assert registry.value(COUNTER, "c") == 0


@pytest.mark.parametrize(
    "misuse",
    [
        lambda one: one.add(COUNTER, -1, "a"),
        lambda one: one.add(GAUGE, 1, "a"),
        lambda one: one.add(COUNTER, 1),
        lambda one: one.set(GAUGE, 1, "a", "b"),
        lambda one: one.set(TIMES, 1),
        lambda one: one.observe(COUNTER, 1, "a"),
        lambda one: one.replace(GAUGE, [((), 1)]),
    ],
)
def test_what_a_metric_is_not_declared_for_is_refused(misuse: object) -> None:
    assert callable(misuse)
    with pytest.raises(InternalError) as refused:
        misuse(Registry())
    assert refused.value.condition == "METRIC_MISUSED"


def test_replacing_drops_what_is_gone_and_what_is_not_known() -> None:
    registry = Registry()
    registry.set(GAUGE, 1, "old")
    registry.replace(GAUGE, [(("a",), 2.0), (("b",), None)])
    assert registry.samples() == [(GAUGE, {("a",): 2.0})]


def test_values_of_labels_that_are_gone_can_be_dropped() -> None:
    registry = Registry()
    for job in "abc":
        registry.add(COUNTER, 1, job)
        registry.set(GAUGE, 1, job)
    registry.observe(TIMES, 1.0)
    registry.retain("job", {"b"})
    assert [set(values) for _, values in registry.samples()] == [{("b",)}, {("b",)}, {()}]


def test_a_value_on_a_bound_is_in_the_bucket_that_ends_there() -> None:
    registry = Registry()
    for value in (0.5, 1.0, 1.5, 4.0, 9.0):
        registry.observe(TIMES, value)
    found = histogram(registry)
    assert found.counts == [2, 1, 1, 1]
    assert (found.count, found.sum) == (5, 16.0)
    assert found.cumulative() == [2, 3, 4, 5]


def test_observations_between_two_values_are_spread_over_the_buckets_between_them() -> None:
    registry = Registry()
    registry.observe_between(TIMES, 0.0, 8.0, times=80)
    found = histogram(registry)
    assert found.counts == pytest.approx([10, 10, 20, 40])
    assert found.sum == 320


@given(st.floats(0, 10), st.floats(0, 10), st.integers(1, 1000))
def test_however_observations_are_spread_none_is_lost(one: float, other: float, times: int) -> None:
    registry = Registry()
    registry.observe_between(TIMES, min(one, other), max(one, other), times=times)
    found = histogram(registry)
    assert found.count == pytest.approx(times)
    assert min(found.counts) >= -1e-9


def test_threads_lose_no_count() -> None:
    registry = Registry()

    def work() -> None:
        for _ in range(5_000):
            registry.add(COUNTER, 1, "a")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.value(COUNTER, "a") == 20_000

"""The exporter writes Prometheus' text: heads, escapes, histograms, and former names."""

from __future__ import annotations

from penstock.metrics import Metric, Registry, expose
from penstock.metrics import declared as m
from tests.metrics.text import parse

TIMES = Metric("penstock_t_seconds", "histogram", "seconds", "Time\nof \\ work.", ("job",), bounds=(0.5, 1.0))


def test_nothing_is_exported_of_nothing() -> None:
    assert expose(Registry()) == ""


def test_labels_and_help_are_escaped() -> None:
    registry = Registry()
    registry.observe(TIMES, 0.7, 'a"b\\c\nd')
    text = expose(registry)
    assert "# HELP penstock_t_seconds Time\\nof \\\\ work.\n# TYPE penstock_t_seconds histogram\n" in text
    assert 'penstock_t_seconds_bucket{job="a\\"b\\\\c\\nd",le="0.5"} 0\n' in text
    assert 'penstock_t_seconds_bucket{job="a\\"b\\\\c\\nd",le="+Inf"} 1\n' in text
    assert len(parse(text)) == 5


def test_numbers_are_exact_and_short() -> None:
    registry = Registry()
    for value, text in ((3, "3"), (3.0, "3"), (0.1, "0.1"), (1_763_490_000.25, "1763490000.25")):
        registry.set(m.STATE_BYTES, value)
        assert f"\npenstock_state_bytes {text}\n" in expose(registry)
    for odd, text in ((float("nan"), "NaN"), (float("inf"), "+Inf")):
        registry.set(m.STATE_BYTES, odd)
        assert f"\npenstock_state_bytes {text}\n" in expose(registry)


def test_a_renamed_metric_has_its_former_name_and_labels_too() -> None:
    registry = Registry()
    registry.set(m.STAGE_UTILISATION, 0.5, "q1")
    found = parse(expose(registry))
    assert found == {
        ("penstock_stage_utilisation_ratio", (("stage", "q1"),)): 0.5,
        ("penstock_utilisation_ratio", (("sub_query", "q1"),)): 0.5,
    }


def test_a_renamed_label_stands_beside_its_new_name() -> None:
    registry = Registry()
    registry.set(m.BUCKET_STATE, 7, "q1", "3")
    labels = (("stage", "q1"), ("bucket", "3"), ("sub_query", "q1"))
    assert parse(expose(registry)) == {("penstock_bucket_bytes", labels): 7}


def test_of_a_metric_that_two_registries_have_the_first_is_taken() -> None:
    first, second = Registry(), Registry()
    first.set(m.EPOCH, 5)
    second.set(m.EPOCH, 4)
    second.set(m.STATE_BYTES, 9)
    assert parse(expose(first, second)) == {("penstock_epoch", ()): 5, ("penstock_state_bytes", ()): 9}

"""Every metric is declared once, and its name says its unit."""

from __future__ import annotations

import re

from penstock.metrics import METRICS

#: units that a name ends in
SPELLED = {
    "seconds": "seconds",
    "bytes": "bytes",
    "events/second": "events_per_second",
    "rows/second": "rows_per_second",
    "bytes/second": "bytes_per_second",
}


def test_no_name_is_declared_twice_or_taken_again_by_a_former_one() -> None:
    names = [name for one in METRICS for name in (one.name, *one.former_names)]
    assert len(names) == len(set(names))


def test_names_are_of_penstock_and_plain() -> None:
    for one in METRICS:
        assert re.fullmatch(r"penstock_[a-z]+(_[a-z]+)*", one.name), one.name
        assert all(re.fullmatch(r"[a-z]+", label) for label in one.labels)


def test_a_name_ends_in_its_unit_and_a_counters_in_total() -> None:
    for one in METRICS:
        assert one.name.endswith("_total") is (one.kind == "counter"), one.name
        if unit := SPELLED.get(one.unit):
            assert one.name.removesuffix("_total").endswith(f"_{unit}"), one.name


def test_meanings_are_sentences() -> None:
    assert all((one.help.endswith(".") and one.help[0].isupper()) or one.help[0] == "1" for one in METRICS)


def test_histograms_alone_have_bounds_and_these_ascend() -> None:
    for one in METRICS:
        assert bool(one.bounds) is (one.kind == "histogram")
        assert list(one.bounds) == sorted(set(one.bounds))

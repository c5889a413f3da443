"""Settings that contradict each other are refused with both values and what to do."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from penstock.errors import UserError
from penstock.scaling.settings import ElasticSettings, parse_settings


def refusal(**given: Any) -> str:
    with pytest.raises(UserError) as caught:
        ElasticSettings(**given)
    assert caught.value.condition == "BAD_ELASTIC_SETTINGS"
    assert caught.value.hint
    return caught.value.text()


@pytest.mark.parametrize(
    ("given", "both"),
    [
        ({"lower_utilisation": 0.6}, ("lower_utilisation=0.6", "target_utilisation=0.6")),
        ({"lower_utilisation": 0.7}, ("lower_utilisation=0.7", "target_utilisation=0.6")),
        ({"target_utilisation": 0.8}, ("target_utilisation=0.8", "upper_utilisation=0.8")),
        ({"upper_utilisation": 0.5}, ("target_utilisation=0.6", "upper_utilisation=0.5")),
        ({"least_executors": 9, "most_executors": 8}, ("least_executors=9", "most_executors=8")),
        ({"window_seconds": 500.0}, ("window_seconds=500.0", "patience_seconds=300.0")),
        (
            {"least_executors": 8, "most_executors": 9, "spare_executors": 2},
            ("least_executors=8", "spare_executors=2", "most_executors=9"),
        ),
    ],
)
def test_contradictions_are_reported_with_both_values(given: dict[str, Any], both: tuple[str, ...]) -> None:
    text = refusal(**given)
    assert all(value in text for value in both), text


BAD = [
    ("upper_utilisation", 1.1),
    ("lower_utilisation", 0.0),
    ("target_utilisation", -0.1),
    ("upper_imbalance", 0.0),
    ("minimum_improvement", 1.0),
    ("cool_down_seconds", -1.0),
    ("largest_step", 0),
    ("least_executors", 0),
    ("most_executors", 0),
    ("spare_executors", -1),
    ("horizon_seconds", 0.0),
    ("dry_run", 1),
    ("window_seconds", 0.0),
    ("patience_seconds", 0.0),
    ("tolerated_backlog_seconds", 0.0),
    ("drain_seconds", 0.0),
    ("slow_factor", 1.0),
    ("start_timeout_seconds", 0.0),
    ("move_timeout_seconds", float("nan")),
    ("retries", -1),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    assert name in refusal(**{name: value})


def test_every_setting_has_a_bad_value_a_unit_and_a_meaning() -> None:
    assert [name for name, _ in BAD] == [one.name for one in fields(ElasticSettings)]
    assert all(one.metadata["meaning"] and "unit" in one.metadata for one in fields(ElasticSettings))


@pytest.mark.parametrize("value", [1.5, "2", True])
def test_counts_are_whole_numbers(value: Any) -> None:
    assert "whole number" in refusal(largest_step=value)


def test_settings_are_read_from_texts() -> None:
    read = parse_settings(
        ["upper_utilisation=90%", "cool_down_seconds=2m", "dry_run=yes", "largest_step = 3"]
    )
    assert read == ElasticSettings(
        upper_utilisation=0.9, cool_down_seconds=120.0, dry_run=True, largest_step=3
    )


@pytest.mark.parametrize(
    "text", ["upper=1", "upper_utilisation", "dry_run=maybe", "largest_step=many", "upper_utilisation=high"]
)
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_settings([text])
    assert caught.value.condition == "BAD_ELASTIC_SETTINGS"
    assert caught.value.hint


def test_an_invalid_duration_is_refused() -> None:
    with pytest.raises(UserError):
        parse_settings(["cool_down_seconds=soon"])

"""First sizes from a sample."""

from __future__ import annotations

import pytest

from penstock.elastic.sizes import proposed, warnings
from penstock.words.errors import UserError


def test_as_many_cores_as_the_load_needs_at_the_target() -> None:
    # a core does 100,000 events a second; 600,000 keep six busy, which is 60 % of ten
    made = proposed({"scan": 6.0, "count": 4.0}, 1_000_000, 600_000, target_utilisation=0.6)
    assert made.core_rate == pytest.approx(100_000)
    assert (made.executors, made.slices) == (10, 10)
    assert made.utilisation == pytest.approx(0.6)
    assert [round(part.cores, 2) for part in made.parts] == [3.6, 2.4]


def test_executors_of_several_cores_are_never_fewer_than_one() -> None:
    small = proposed({"scan": 1.0}, 1_000_000, 10, target_utilisation=0.6, cores_per_executor=4)
    assert (small.executors, small.slices) == (1, 4)
    large = proposed({"scan": 1.0}, 100_000, 1_000_000, target_utilisation=0.5, cores_per_executor=4)
    assert large.executors == 5


def test_what_stands_in_the_way_is_said() -> None:
    made = proposed({"scan": 50.0, "count": 50.0}, 1_000, 1_000, target_utilisation=0.5, buckets=64)
    first, second = warnings(made, partitions=2)
    assert "more than the 64 buckets" in first
    assert "2 partitions" in second
    assert warnings(proposed({"scan": 1.0}, 1_000, 100, target_utilisation=0.5), partitions=2) == []


@pytest.mark.parametrize(
    ("seconds", "events", "load"), [({}, 0, 1), ({"scan": 0.0}, 5, 1), ({"scan": 1.0}, 5, 0)]
)
def test_nothing_can_be_said_of_nothing(seconds: dict[str, float], events: int, load: float) -> None:
    with pytest.raises(UserError):
        proposed(seconds, events, load, target_utilisation=0.6)

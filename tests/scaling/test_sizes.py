"""Proposes the size of a fleet by a sample."""

from __future__ import annotations

import pytest

from penstock.errors import UserError
from penstock.scaling.sizes import find_warnings, propose_size

#: events of the epochs of a sample
EVENTS = [100_000, 400_000, 100_000, 400_000]


def epoch_seconds(fixed: float, each: float) -> list[float]:
    return [fixed + each * events for events in EVENTS]


def test_as_many_cores_as_the_load_needs_at_the_target() -> None:
    # a core does 100,000 events a second; 600,000 keep six busy, which is 60 % of ten
    proposal = propose_size(
        {"scan": epoch_seconds(0, 6e-6), "count": epoch_seconds(0, 4e-6)},
        EVENTS,
        600_000,
        target_utilisation=0.6,
    )
    assert proposal.core_rate == pytest.approx(100_000)
    assert (proposal.executors, proposal.slices) == (10, 10)
    assert proposal.utilisation == pytest.approx(0.6)
    assert [round(part.cores, 2) for part in proposal.parts] == [3.6, 2.4]


def test_the_fixed_cost_is_counted_once_an_epoch() -> None:
    # by the event the two epochs of each size would say 3 and 1.5 microseconds, and three executors
    proposal = propose_size({"scan": epoch_seconds(0.2, 1e-6)}, EVENTS, 1_000_000, target_utilisation=0.6)
    (part,) = proposal.parts
    assert part.seconds_per_epoch == pytest.approx(0.2)
    assert part.seconds_per_event == pytest.approx(1e-6)
    assert part.cores == pytest.approx(1.2)
    assert proposal.executors == 2
    rarer = propose_size(
        {"scan": epoch_seconds(0.2, 1e-6)}, EVENTS, 1_000_000, target_utilisation=0.6, epoch_seconds=2
    )
    assert rarer.parts[0].cores == pytest.approx(1.1)


def test_a_stage_with_a_fixed_cost_only_is_counted_by_epochs() -> None:
    proposal = propose_size(
        {"scan": epoch_seconds(0, 1e-6), "top": [0.05] * 4}, EVENTS, 100_000, target_utilisation=0.6
    )
    assert proposal.parts[1].cores == pytest.approx(0.05)


def test_executors_of_several_cores_are_never_fewer_than_one() -> None:
    small = propose_size(
        {"scan": epoch_seconds(0, 1e-6)}, EVENTS, 10, target_utilisation=0.6, cores_per_executor=4
    )
    assert (small.executors, small.slices) == (1, 4)
    large = propose_size(
        {"scan": epoch_seconds(0, 1e-5)}, EVENTS, 1_000_000, target_utilisation=0.5, cores_per_executor=4
    )
    assert large.executors == 5


def test_obstacles_to_the_size_are_reported() -> None:
    costly = {"scan": [50.0], "count": [50.0]}
    proposal = propose_size(costly, [1_000], 1_000, target_utilisation=0.5, buckets=64)
    first, second = find_warnings(proposal, partitions=2)
    assert "more than the 64 buckets" in first
    assert "2 partitions" in second
    assert (
        find_warnings(propose_size({"scan": [1.0]}, [1_000], 100, target_utilisation=0.5), partitions=2) == []
    )


@pytest.mark.parametrize(
    ("seconds", "events", "load"), [({}, [], 1), ({"scan": [0.0]}, [5], 1), ({"scan": [1.0]}, [5], 0)]
)
def test_a_size_needs_events_work_and_load(
    seconds: dict[str, list[float]], events: list[int], load: float
) -> None:
    with pytest.raises(UserError):
        propose_size(seconds, events, load, target_utilisation=0.6)

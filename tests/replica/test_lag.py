"""A follower that is too far behind copies the leader's state; a leader waits a little for every epoch it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.ha.unit import UnitEngine
from penstock.replica.lag import (
    MOST_BEHIND,
    MOST_SECONDS,
    PATIENCE_SECONDS,
    LeaderThrottle,
    last_epoch,
    may_end_others,
    must_resync,
)


@pytest.mark.parametrize(
    ("followers", "seconds"),
    [((), 0.0), ((10,), 0.0), ((9,), 0.0), ((8,), 0.4), ((7, 10), 0.8), ((0,), MOST_SECONDS), ((-1,), 1.0)],
)
def test_the_leader_waits_for_the_slowest_up_to_a_second(followers: tuple[int, ...], seconds: float) -> None:
    named = {str(number): epoch for number, epoch in enumerate(followers)}
    assert LeaderThrottle().seconds(10, named, 0.0) == pytest.approx(seconds)


def test_the_leader_does_not_wait_for_a_follower_without_progress() -> None:
    throttle = LeaderThrottle()
    assert throttle.seconds(10, {"hangs": 5, "works": 8}, 0.0) == MOST_SECONDS
    assert throttle.seconds(12, {"hangs": 5, "works": 10}, PATIENCE_SECONDS) == pytest.approx(0.4)
    assert throttle.seconds(12, {"hangs": 6, "works": 12}, PATIENCE_SECONDS + 1) == MOST_SECONDS, (
        "it works again"
    )


def test_the_manifests_show_epochs_that_a_follower_has_not_reported_yet(tmp_path: Path) -> None:
    engine = UnitEngine(1, "here", "active", directory=str(tmp_path), epoch=3)
    assert last_epoch(engine) == 3
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / f"{7:012d}.json").write_bytes(b"")
    assert last_epoch(engine) == 7
    assert last_epoch(UnitEngine(1, "here", "active")) == -1


@pytest.mark.parametrize(
    ("reached", "recorded", "manifests", "resync"),
    [
        (-1, [], [], False),
        (-1, [0, 1, 2], [0, 1], False),
        (5, [0, *range(1, 9)], [3, 4, 5, 6], False),
        (5, list(range(9)), [5, 6, 7], False),  # the log still has what comes after 5
        (5, list(range(9)), [6, 7], True),
        (5, [7, 8], [5, 6], True),  # the record of epoch 6 is gone
        (5, list(range(6 + MOST_BEHIND)), [], False),
        (5, list(range(7 + MOST_BEHIND)), [], True),
    ],
)
def test_when_a_follower_must_copy_the_leaders_state(
    reached: int, recorded: list[int], manifests: list[int], resync: bool
) -> None:
    assert must_resync(reached, recorded, manifests) is resync


@pytest.mark.parametrize(
    ("condition", "follows", "leads"),
    [
        ("LEASE_LOST", False, False),
        ("FOLLOWS_OTHERWISE", False, True),
        ("COMMANDS_GONE", False, True),
        ("SINK_UNWRITABLE", True, True),
    ],
)
def test_an_error_of_a_follower_alone_does_not_end_the_unit(
    condition: str, follows: bool, leads: bool
) -> None:
    error = ExternalError(condition, "it ended")
    assert may_end_others(error, led=False) is follows
    assert may_end_others(error, led=True) is leads


@pytest.mark.parametrize("led", [False, True])
def test_what_is_away_outside_never_counts_when_a_unit_is_given_up(led: bool) -> None:
    assert not may_end_others(ExternalError("SINK_UNWRITABLE", "it is away", is_transient=True), led=led)

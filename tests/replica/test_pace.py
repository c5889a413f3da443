"""A leader waits for those that follow it: a little for every epoch they lack, and never long."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ha.unit import Member
from penstock.replica.pace import MOST_SECONDS, PATIENCE_SECONDS, Pace, reached


@pytest.mark.parametrize(
    ("followers", "seconds"),
    [((), 0.0), ((10,), 0.0), ((9,), 0.0), ((8,), 0.4), ((7, 10), 0.8), ((0,), MOST_SECONDS), ((-1,), 1.0)],
)
def test_the_leader_waits_for_the_slowest_up_to_a_second(followers: tuple[int, ...], seconds: float) -> None:
    named = {str(number): epoch for number, epoch in enumerate(followers)}
    assert Pace().seconds(10, named, 0.0) == pytest.approx(seconds)


def test_nobody_waits_for_one_that_does_not_come_further() -> None:
    pace = Pace()
    assert pace.seconds(10, {"hangs": 5, "works": 8}, 0.0) == MOST_SECONDS
    assert pace.seconds(12, {"hangs": 5, "works": 10}, PATIENCE_SECONDS) == pytest.approx(0.4)
    assert pace.seconds(12, {"hangs": 6, "works": 12}, PATIENCE_SECONDS + 1) == MOST_SECONDS, "it works again"


def test_a_follower_is_as_far_as_its_manifests_say_if_it_has_not_said_so_yet(tmp_path: Path) -> None:
    member = Member(1, "here", "active", directory=str(tmp_path), epoch=3)
    assert reached(member) == 3
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / f"{7:012d}.json").write_bytes(b"")
    assert reached(member) == 7
    assert reached(Member(1, "here", "active")) == -1

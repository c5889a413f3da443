"""A leader waits for those that follow it: a little for every epoch they lack, and never long."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.pace import MOST_SECONDS, pace_seconds, reached
from penstock.ha.unit import Member


@pytest.mark.parametrize(
    ("followers", "seconds"),
    [((), 0.0), ((10,), 0.0), ((9,), 0.0), ((8,), 0.4), ((7, 10), 0.8), ((0,), MOST_SECONDS), ((-1,), 1.0)],
)
def test_the_leader_waits_for_the_slowest_up_to_a_second(followers: tuple[int, ...], seconds: float) -> None:
    assert pace_seconds(10, followers) == pytest.approx(seconds)


def test_a_follower_is_as_far_as_its_manifests_say_if_it_has_not_said_so_yet(tmp_path: Path) -> None:
    member = Member(1, "here", "active", directory=str(tmp_path), epoch=3)
    assert reached(member) == 3
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / f"{7:012d}.json").write_bytes(b"")
    assert reached(member) == 7
    assert reached(Member(1, "here", "active")) == -1

"""Followers that are too far behind, and directories that are not to be run alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.replica.lag import MOST_BEHIND, must_resync
from penstock.state.directory import StateDirectory
from penstock.state.shared_records import SharedRecords


@pytest.mark.parametrize(
    ("reached", "recorded", "kept", "resync"),
    [
        (-1, [], [], False),
        (-1, [0, 1, 2], [0, 1], False),
        (5, [0, *range(1, 9)], [3, 4, 5, 6], False),
        (5, list(range(9)), [5, 6, 7], False),  # what comes after 5 the log still has
        (5, list(range(9)), [6, 7], True),
        (5, [7, 8], [5, 6], True),  # what epoch 6 consists of nobody knows any more
        (5, list(range(6 + MOST_BEHIND)), [], False),
        (5, list(range(7 + MOST_BEHIND)), [], True),
    ],
)
def test_when_the_leaders_state_is_taken_over(
    reached: int, recorded: list[int], kept: list[int], resync: bool
) -> None:
    assert must_resync(reached, recorded, kept) is resync


def test_a_replicas_directory_is_refused_to_an_engine_by_itself(tmp_path: Path) -> None:
    records = SharedRecords(tmp_path / "ha" / "agreed")
    records.path.mkdir(parents=True)
    replica = tmp_path / "ha" / "replicas" / "e2"
    replica.mkdir(parents=True)
    (replica / "penstock.json").write_text(json.dumps({"format": 1, "id": "1", "query": "q", "logs": {}}))
    with pytest.raises(UserError) as alone:
        StateDirectory(replica).claim("q", "q")
    assert alone.value.condition == "STATE_OF_A_UNIT"
    with pytest.raises(UserError) as another:
        StateDirectory(replica, SharedRecords(replica / "ha" / "agreed")).claim("q", "q")
    assert another.value.condition == "STATE_OF_A_UNIT"
    with pytest.raises(UserError):
        StateDirectory(tmp_path).claim("q", "q")
    of_the_unit = StateDirectory(replica, records)
    of_the_unit.claim("q", "q", 1)
    of_the_unit.release()

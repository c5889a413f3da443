"""An engine that runs alone is refused the state directory of a unit or a follower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.state.directory import StateDirectory
from penstock.state.shared_records import SharedRecords


def test_an_engine_alone_is_refused_the_directory_of_a_replica(tmp_path: Path) -> None:
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

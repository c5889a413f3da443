"""The benchmark of the checkpoint interval runs, and finds what must be so."""

from __future__ import annotations

import pytest

from bench.checkpoint import Checkpoint, Size

pytestmark = pytest.mark.slow


def test_a_longer_interval_writes_less_and_repeats_more() -> None:
    tiny = Size(epoch_events=400, epochs=12, users=300, intervals=(1, 5), runs=1)
    found = {(one.case, one.metric): one.value for one in Checkpoint(tiny, lambda _: None).interval()}
    assert found["every 5", "state on disk an epoch"] < found["every 1", "state on disk an epoch"]
    assert found["every 1", "epochs repeated"] == 0
    assert found["every 5", "epochs repeated"] == 4
    assert found["every 5", "recovery"] > 0

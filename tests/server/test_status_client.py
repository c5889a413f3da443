"""The status that an engine of another version reports is an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.job_server import socket_of
from penstock.engine.line_server import LineServer
from penstock.epoch.recovery import JobRecovery
from penstock.errors import ExternalError
from penstock.ha.schemes import Semantics
from penstock.server.status_client import request_status


@pytest.mark.parametrize("answer", [b'{"epoch": 4}', b"[]", b'{"recovery": {"semantics": "unknown"}}'])
def test_a_status_of_another_version_is_refused(answer: bytes, tmp_path: Path) -> None:
    with (
        LineServer.at(socket_of(tmp_path, "status"), "other", lambda line: answer),
        pytest.raises(ExternalError) as refused,
    ):
        request_status(tmp_path, timeout_seconds=5.0)
    assert refused.value.condition == "ENGINE_OF_OTHER_VERSION"


def test_counts_of_a_newer_version_are_left_out() -> None:
    newer = {"semantics": "gap", "lost_epochs": 3, "lost_hours": 1}
    assert JobRecovery.from_json(newer) == JobRecovery(Semantics.gap, lost_epochs=3)

"""The fixture of the tests of state continuity."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.list_log import ListLog
from tests.engine.changed_app import ChangedApp, lines


@pytest.fixture
def app(tmp_path: Path) -> ChangedApp:
    """An app that has read 50 events into windows of a minute; `finish` adds the rest of the log."""
    changed_app = ChangedApp(tmp_path / "state", ListLog({"p": lines(50)}, finished=False))
    changed_app.run()
    assert changed_app.count_events("totals") == changed_app.count_events("sessions") == 0
    return changed_app

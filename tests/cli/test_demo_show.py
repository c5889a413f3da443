"""The show of `penstock demo` on the inline engine: what it reports has happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.demo_show import Show

pytestmark = pytest.mark.process


class Inline(Show):
    """The show without a cluster; on a cluster it also adds an executor."""

    def _master(self) -> str:
        return "inline"


@pytest.mark.kill
@pytest.mark.timeout(300)
def test_the_show_reports_what_happens_and_leaves_nothing_running(tmp_path: Path) -> None:
    messages: list[str] = []
    Inline(tmp_path / "demo", 500, None, messages.append, pause_factor=0.05).run()
    text = "\n".join(messages)
    assert "dashboard: http://127.0.0.1:" in messages[0]
    assert "altered job popular; its state is kept" in text
    assert "killing the engine (SIGKILL) after epoch" in text
    assert "the engine is back with epoch" in text
    assert messages[-1].endswith(
        "shown: click patterns live, a job altered while it runs, an engine killed and back"
    )
    record = json.loads((tmp_path / "demo" / "state" / "service.json").read_bytes())
    assert record["ended"], "the engine ended by itself and was not killed"
    assert len(record["restarts"]) == 1


def test_the_show_ends_when_its_time_is_up(tmp_path: Path) -> None:
    messages: list[str] = []
    Inline(tmp_path / "demo", 500, 0.5, messages.append).run()
    assert messages[-1].endswith("shown: nothing yet")

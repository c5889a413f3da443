"""The show of `penstock demo`, on the inline engine: what it says has happened has happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.demo_show import Show


class Inline(Show):
    """The show without a cluster; on one, an executor comes too."""

    def _master(self) -> str:
        return "inline"


@pytest.mark.kill
@pytest.mark.timeout(300)
def test_the_show_reports_what_happens_and_leaves_nothing_running(tmp_path: Path) -> None:
    said: list[str] = []
    Inline(tmp_path / "demo", 500, None, said.append, pause_factor=0.05).run()
    told = "\n".join(said)
    assert "dashboard: http://127.0.0.1:" in said[0]
    assert "altered job popular; its state is kept" in told
    assert "killing the engine (SIGKILL) after epoch" in told
    assert "the engine is back with epoch" in told
    assert said[-1].endswith(
        "shown: click patterns live, a job altered while it runs, an engine killed and back"
    )
    kept = json.loads((tmp_path / "demo" / "state" / "service.json").read_bytes())
    assert kept["ended"], "it was let go, not killed"
    assert len(kept["restarts"]) == 1


def test_the_show_ends_when_its_time_is_up(tmp_path: Path) -> None:
    said: list[str] = []
    Inline(tmp_path / "demo", 500, 0.5, said.append).run()
    assert said[-1].endswith("shown: nothing yet")

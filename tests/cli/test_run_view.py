"""A run reports into a pipe line by line, also that a long epoch is still under way."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from penstock.cli import run_view as view
from penstock.cli.run_view import LineView, ScreenView, view_for


class Engine:
    """Executes epoch 3 and counts how often its progress is read."""

    def __init__(self) -> None:
        self.looks, self.last_epoch = 0, 2

    @property
    def admission(self) -> SimpleNamespace:
        self.looks += 1
        return SimpleNamespace(last_admitted=3)


@pytest.mark.slow
def test_an_epoch_that_takes_long_is_reported_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "LONG_SECONDS", 0.2)
    engine: Any = Engine()
    out = io.StringIO()
    with LineView(engine, Console(file=out, width=200)) as lines:
        lines.phase("running")
        _until(lambda: out.getvalue().count("epoch 3 has been under way for") >= 2)
        engine.last_epoch = 3
        looks = engine.looks
        _until(lambda: engine.looks >= looks + 2)  # what the view saw before was printed
        output = out.getvalue()
        _until(lambda: engine.looks >= looks + 30)
        assert out.getvalue() == output, "the epoch has ended"
    assert output.splitlines()[0].endswith("ready")


@pytest.mark.parametrize(("term", "kind"), [("xterm", ScreenView), ("", ScreenView), ("dumb", LineView)])
def test_only_a_terminal_with_cursor_movement_gets_the_live_screen(
    term: str, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("TTY_INTERACTIVE", raising=False)
    engine: Any = SimpleNamespace(plan=SimpleNamespace(outputs={}))
    assert type(view_for(engine, Console(file=io.StringIO(), force_terminal=True), None)) is kind


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""The console sink: a table for a terminal, plain lines for everything else."""

from __future__ import annotations

import contextlib
import io
import os
import pty

import polars as pl
import pytest

from penstock.errors import ExternalError
from penstock.sinks import console

ROWS = pl.DataFrame({"page": ["/a b", None], "visits": [3, 1], "tags": [["x"], []]})


def test_a_pipe_gets_one_plain_line_a_row() -> None:
    output = io.StringIO()
    sink = console(output)
    sink.open("job", dict(ROWS.schema))
    assert sink.write(0, ROWS)
    assert not sink.write(0, ROWS)
    assert output.getvalue().splitlines() == [
        'epoch 0  page="/a b"  visits=3  tags=["x"]',
        "epoch 0  page=-  visits=1  tags=[]",
    ]


@pytest.mark.parametrize("term", ["xterm", None])
def test_a_terminal_gets_a_table_that_replaces_the_former_one(
    term: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _shown(term, monkeypatch)
    assert "clicks  epoch 0" in shown
    assert "and 1 more rows" in shown
    assert "clicks  epoch 2" in shown
    assert "epoch 1" not in shown
    assert "\x1b[1A\x1b[2K" in shown, "the cursor went up and wiped the former table"


def test_a_terminal_without_cursor_movement_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shown("dumb", monkeypatch).splitlines() == [
        'epoch 0  page="/a b"  visits=3  tags=["x"]',
        "epoch 0  page=-  visits=1  tags=[]",
        "epoch 2  page=-  visits=1  tags=[]",
    ]


def _shown(term: str | None, monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame = ROWS) -> str:
    """What a terminal of this kind receives of three epochs."""
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        sink = console(terminal, most_rows=1)
        sink.open("clicks", dict(rows.schema))
        sink.write(0, rows)
        sink.write(1, rows.clear())
        sink.write(2, rows.tail(1))
        sink.close()
    shown = b""
    with contextlib.suppress(
        OSError
    ):  # what a terminal says when its other side is closed and everything is read
        while part := os.read(ours, 1 << 16):
            shown += part
    os.close(ours)
    return shown.decode()


def test_a_reader_that_left_is_said() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    sink = console(os.fdopen(writing, "w"))
    sink.open("job", dict(ROWS.schema))
    with pytest.raises(ExternalError) as caught:
        sink.write(0, ROWS)
    assert caught.value.condition == "SINK_UNWRITABLE"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "a \x9b2J", "\u202ea", "[/x]", "\\[/x]", "[bold]x[/bold]"])
def test_what_is_in_an_event_is_shown_and_not_executed(
    text: str, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.DataFrame({"page": [text], text: [[text]]})
    shown = _shown(term, monkeypatch, rows)
    for sign in ("\x1b]", "\x07", "\x9b", "\u202e"):
        assert sign not in shown
    if "x]" in text and term == "xterm":
        assert text in shown

"""The console sink: a table for a terminal, plain lines for everything else."""

from __future__ import annotations

import io
import os
import pty

import polars as pl
import pytest

from penstock.sinks import console
from penstock.words.errors import ExternalError

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


def test_a_terminal_gets_a_table_that_replaces_the_former_one() -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        sink = console(terminal, most_rows=1)
        sink.open("clicks", dict(ROWS.schema))
        sink.write(0, ROWS)
        sink.write(1, ROWS.clear())
        sink.write(2, ROWS.tail(1))
        sink.close()
        terminal.flush()
        shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "clicks  epoch 0" in shown
    assert "and 1 more rows" in shown
    assert "clicks  epoch 2" in shown
    assert "epoch 1" not in shown
    assert "\x1b[1A\x1b[2K" in shown, "the cursor went up and wiped the former table"


def test_a_reader_that_left_is_said() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    sink = console(os.fdopen(writing, "w"))
    sink.open("job", dict(ROWS.schema))
    with pytest.raises(ExternalError) as caught:
        sink.write(0, ROWS)
    assert caught.value.condition == "SINK_UNWRITABLE"

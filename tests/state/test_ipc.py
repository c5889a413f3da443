"""Frames as Arrow streams: a frame can be written while another thread reads it."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from penstock.state.ipc import dense_stream_bytes, from_stream

pytestmark = pytest.mark.process

#: one thread writes a frame repeatedly while another reads its height; a deadlock ends the process
READ_WHILE_WRITING = """
import faulthandler, threading, time
import polars as pl
from penstock.server.wire import result_json, rows_arrow
from penstock.delivery.result_log import JobResult, _encode_rows
from penstock.state.ipc import dense_stream_bytes, stream_bytes

rows = pl.DataFrame({"user": ["a"] * 5, "count": range(5)})
write = {
    "dense_stream_bytes": lambda: dense_stream_bytes(rows),
    "lz4": lambda: dense_stream_bytes(rows, "lz4"),
    "stream_bytes": lambda: stream_bytes(rows),
    "rows_arrow": lambda: rows_arrow(rows),
    "result_json": lambda: result_json("j", JobResult(1, rows)),
    "encode_rows": lambda: _encode_rows({"j": rows}, {}),
}[ENCODING]
write()
faulthandler.dump_traceback_later(20, exit=True)
stop = threading.Event()

def read():
    while not stop.is_set():
        rows.height

reader = threading.Thread(target=read, daemon=True)
reader.start()
deadline = time.monotonic() + 1
while time.monotonic() < deadline:
    write()
stop.set()
reader.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding", ["dense_stream_bytes", "lz4", "stream_bytes", "rows_arrow", "result_json", "encode_rows"]
)
def test_a_frame_can_be_read_while_it_is_written(encoding: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"ENCODING = {encoding!r}\n{READ_WHILE_WRITING}"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert child.returncode == 0, child.stderr


def test_a_stored_stream_is_read_as_it_was_written() -> None:
    rows = pl.DataFrame({"user": ["a", None], "count": [1, 2]})
    assert from_stream(dense_stream_bytes(rows)).equals(rows)
    assert pl.read_ipc_stream(dense_stream_bytes(rows, "lz4")).equals(rows)

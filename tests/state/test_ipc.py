"""Frames as Arrow streams: what other threads do with a frame meanwhile never stops it."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from penstock.state.ipc import dense_stream_bytes, from_stream

#: one thread writes a frame again and again, another asks it for its height; a hang ends the process
TOGETHER = """
import faulthandler, threading, time
import polars as pl
from penstock.server.wire import result_json, rows_arrow
from penstock.catalogue.results import JobResult, _encode_rows
from penstock.state.ipc import dense_stream_bytes, stream_bytes

rows = pl.DataFrame({"user": ["a"] * 5, "count": range(5)})
write = {
    "dense_stream_bytes": lambda: dense_stream_bytes(rows),
    "lz4": lambda: dense_stream_bytes(rows, "lz4"),
    "stream_bytes": lambda: stream_bytes(rows),
    "rows_arrow": lambda: rows_arrow(rows),
    "result_json": lambda: result_json("j", JobResult(1, rows)),
    "packed": lambda: _encode_rows({"j": rows}, {}),
}[WAY]
write()
faulthandler.dump_traceback_later(20, exit=True)
stop = threading.Event()

def read():
    while not stop.is_set():
        rows.height

reader = threading.Thread(target=read, daemon=True)
reader.start()
until = time.monotonic() + 1
while time.monotonic() < until:
    write()
stop.set()
reader.join()
"""


@pytest.mark.parametrize(
    "way", ["dense_stream_bytes", "lz4", "stream_bytes", "rows_arrow", "result_json", "packed"]
)
def test_a_frame_can_be_read_while_it_is_written(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"WAY = {way!r}\n{TOGETHER}"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_a_stored_stream_is_read_back() -> None:
    rows = pl.DataFrame({"user": ["a", None], "count": [1, 2]})
    assert from_stream(dense_stream_bytes(rows)).equals(rows)
    assert pl.read_ipc_stream(dense_stream_bytes(rows, "lz4")).equals(rows)

"""Frames as Arrow IPC bytes and back, without copying more than must be.

Receives frames; hands buffers that runs, the cache and messages store or send.

Written by pyarrow, which took a quarter of Polars' own writer's time for frames of text. Text travels as views
into shared buffers; a frame that uses little of its buffers is made dense first, or a few rows would drag
megabytes along.
"""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
import pyarrow as pa

_VIEWS, _DENSE = pl.CompatLevel.newest(), pl.CompatLevel.oldest()
#: views are kept as they are while their buffers are at most this many times what the rows use
_SLACK = 1.5


def stream_bytes(frame: pl.DataFrame) -> pa.Buffer:
    """A frame as an uncompressed Arrow stream."""
    table = _table(frame)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def file_bytes(frame: pl.DataFrame, compression: Literal["lz4", "zstd"] | None = None) -> pa.Buffer:
    """A frame as an Arrow file: can be mapped when it is not compressed."""
    table = _table(frame)
    out = pa.BufferOutputStream()
    codec = None if compression is None else pa.Codec(compression)
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_file(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return out.getvalue()


def from_stream(data: Any) -> pl.DataFrame:
    """The frame of an Arrow stream; it goes on using the memory it is given."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return _frame(reader.read_all())


def from_file(source: Any) -> pl.DataFrame:
    """The frame of an Arrow file, in memory or mapped."""
    with pa.ipc.open_file(source) as reader:
        return _frame(reader.read_all())


def _table(frame: pl.DataFrame) -> pa.Table:
    table = frame.to_arrow(compat_level=_VIEWS)
    held = sum(_held(column) for column in table.itercolumns())
    if held <= 65_536 or held <= _SLACK * _used(frame):
        return table
    return frame.to_arrow(compat_level=_DENSE)


def _held(column: pa.ChunkedArray) -> int:
    """The bytes of all buffers that a column would drag along."""
    unique = {b.address: b.size for chunk in column.chunks for b in chunk.buffers() if b is not None}
    return sum(unique.values())


def _used(frame: pl.DataFrame) -> int:
    """About how many bytes the rows themselves need."""
    used = 0
    for name, dtype in frame.schema.items():
        used += 16 * frame.height
        if dtype == pl.String:
            used += int(frame[name].str.len_bytes().sum() or 0)
    return used


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame

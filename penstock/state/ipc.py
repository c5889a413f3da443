"""Frames as Arrow IPC bytes and back, without copying more than must be.

Receives frames; hands buffers that runs, the cache and messages store or send.

Written by pyarrow, which took a quarter of Polars' own writer's time for frames of text. Text travels as views
into shared buffers; a frame that uses little of its buffers is made dense first, or a few rows would drag
megabytes along. What is kept is always dense: it takes half the room of views, and less time to compress.
"""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

_VIEWS, _DENSE = pl.CompatLevel.newest(), pl.CompatLevel.oldest()
#: views are kept as they are while their buffers are at most this many times what the rows use
_SLACK = 1.5


def stream_bytes(frame: pl.DataFrame) -> pa.Buffer:
    """A frame as an uncompressed Arrow stream."""
    table = as_table(frame)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def kept_stream(frame: pl.DataFrame, compression: Literal["uncompressed", "lz4"] = "uncompressed") -> bytes:
    """A frame as an Arrow stream that any reader knows, by Polars' writer. Other threads may use the frame meanwhile.

    That writer has the frame locked against readers while it waits for Python's lock, and whoever asks the frame for
    its height has that and waits for the frame: both would wait for good. A clone has a lock of its own, and costs
    nothing.
    """
    into = io.BytesIO()
    frame.clone().write_ipc_stream(into, compression=compression, compat_level=_DENSE)
    return into.getvalue()


def write_compressed(table: pa.Table, out: Any, batch_rows: int) -> None:
    """Write a table as a compressed Arrow file to an open file, some rows at a time: little is held in memory."""
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("lz4"), use_threads=False)
    with pa.ipc.new_file(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def write_file(table: pa.Table, path: str) -> None:
    """Put a table at `path` as an Arrow file that can be mapped. Nothing is gathered in memory before."""
    with pa.OSFile(path, "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def from_stream(data: Any) -> pl.DataFrame:
    """The frame of an Arrow stream; it goes on using the memory it is given."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return from_table(reader.read_all())


def from_file(source: Any) -> pl.DataFrame:
    """The frame of an Arrow file, in memory or mapped."""
    return from_table(table_of(source))


def table_of(source: Any) -> pa.Table:
    """The table of an Arrow file, in memory or mapped."""
    with pa.ipc.open_file(source) as reader:
        return reader.read_all()


def from_batches(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pl.DataFrame:
    """The frame of Arrow batches, one below the other."""
    return from_table(pa.Table.from_batches(batches, schema))


def as_table(frame: pl.DataFrame) -> pa.Table:
    """The frame in Arrow's terms, not dragging along what its rows do not use."""
    table = frame.to_arrow(compat_level=_VIEWS)
    held = sum(_held(column) for column in table.itercolumns())
    if held <= 65_536 or held <= _SLACK * _used(table):
        return table
    return dense_table(frame)


def dense_table(frame: pl.DataFrame) -> pa.Table:
    """The frame in Arrow's terms with its texts one after the other, as it is kept."""
    return frame.to_arrow(compat_level=_DENSE)


def _held(column: pa.ChunkedArray) -> int:
    """The bytes of all buffers that a column would drag along."""
    unique = {b.address: b.size for chunk in column.chunks for b in chunk.buffers() if b is not None}
    return sum(unique.values())


def _used(table: pa.Table) -> int:
    """About how many bytes the rows themselves need."""
    used: int = 16 * table.num_rows * table.num_columns
    for column in table.itercolumns():
        if column.type == pa.string_view():
            used += sum(_text_bytes(chunk) for chunk in column.chunks)
    return used


def _text_bytes(views: pa.StringViewArray) -> int:
    """The lengths of all texts together. A view is 16 bytes and begins with its text's length."""
    buffer = views.buffers()[1]
    if buffer is None or not len(views):
        return 0
    lengths = np.frombuffer(buffer, np.int32)[4 * views.offset : 4 * (views.offset + len(views)) : 4]
    return int(lengths.sum(dtype=np.int64))


def from_table(table: pa.Table) -> pl.DataFrame:
    """The frame of a table: numbers as they lie there, of texts views."""
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame

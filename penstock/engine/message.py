"""What travels between tasks: a small JSON header and a payload, as one byte string.

Receives frames and facts from scan and slice tasks; hands them to the next stage or the driver. Spark moves
the bytes and never looks inside. Where all tasks of an engine share one host, large frames lie on a shelf in
its memory and the message carries their names.

Kinds: `rows` (an Arrow frame for a sub-query or an output), `time` (how far a scan task has read each
partition), `facts` (what a task did: state changes, counts, timings), `aside` (rows put aside), `error`.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.state.ipc import as_table, from_file, from_stream, stream_bytes, write_file
from penstock.words.errors import ExternalError, InternalError, PenstockError, UserError

#: frames from this size on are worth a file of their own on a shared shelf
SHELVED_BYTES = 1 << 16


@dataclass(frozen=True)
class Message:
    """A header and a frame, if it carries one. `to` is a sub-query's id or `driver`."""

    kind: str
    to: str
    facts: dict[str, Any]
    frame: pl.DataFrame | None = None

    def left_at(self, shelf: str | None) -> bytes:
        """The message encoded; a large frame is left on the host's shelf and only its name travels."""
        if shelf is None or self.frame is None or self.frame.estimated_size() < SHELVED_BYTES:
            return self.to_bytes()
        os.makedirs(shelf, mode=0o700, exist_ok=True)
        path = os.path.join(shelf, f"{uuid.uuid4().hex}.arrow")
        write_file(as_table(self.frame), path)
        return self._header(path)

    def to_bytes(self) -> bytes:
        header = self._header()
        return header if self.frame is None else b"".join((header, stream_bytes(self.frame)))

    def _header(self, shelved: str | None = None) -> bytes:
        header = json.dumps([self.kind, self.to, self.facts, shelved], separators=(",", ":")).encode()
        header += b" " * (-(len(header) + 4) % 64)  # Arrow wants its buffers aligned
        return struct.pack(">I", len(header)) + header

    @staticmethod
    def from_bytes(data: bytes) -> Message:
        kind, to, facts, shelved, at = _header(data)
        if shelved is not None:
            with pa.memory_map(shelved) as mapped:
                return Message(kind, to, facts, from_file(mapped))
        return Message(kind, to, facts, from_stream(memoryview(data)[at:]) if at < len(data) else None)


def address(data: bytes) -> tuple[str, str]:
    """The kind and the addressee of an encoded message, without decoding its payload."""
    kind, to, *_ = _header(data)
    return kind, to


def _header(data: bytes) -> tuple[str, str, dict[str, Any], str | None, int]:
    (length,) = struct.unpack_from(">I", data)
    kind, to, facts, shelved = json.loads(data[4 : 4 + length])
    return kind, to, facts, shelved, 4 + length


def error_message(error: PenstockError) -> Message:
    """An error on its way to the driver: it ends the epoch without Spark trying the task again."""
    facts = {
        "class": type(error).__name__,
        "condition": error.condition,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
        "where": error.where,
    }
    return Message("error", "driver", facts)


def error_of(message: Message) -> PenstockError:
    """The error that a task sent."""
    return as_error(message.facts)


def as_error(facts: dict[str, Any]) -> PenstockError:
    """An error as it was before it travelled."""
    kinds = {kind.__name__: kind for kind in (UserError, ExternalError, InternalError)}
    return kinds.get(facts["class"], InternalError)(
        facts["condition"], facts["primary"], detail=facts["detail"], hint=facts["hint"], where=facts["where"]
    )

"""Reads streams of Redis as a log: each key is a partition, the id of an entry its offset.

Receives the address of a server and keys; returns entries as lines: one field's value, or all fields as a JSON object.

An id `ms-seq` is the offset `ms * 2**20 + seq`, so a span is a range of ids and any offset is a boundary. How
many entries a span has is estimated from those around a few offsets in it.

Invariants: a page of entries and what is known of the stream's head are read in one transaction; if entries before the
page may have been trimmed unread, that is an error.
Does not guarantee: to notice entries deleted one by one (XDEL).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.errors import ExternalError, UserError
from penstock.extras import extra
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.start_position import parse_start, to_millis
from penstock.secret_store import redact, reveal

if TYPE_CHECKING:
    import redis

Entry = tuple[bytes, dict[bytes, bytes] | None]

_SEQUENCE_BITS = 20
_MOST_MS = 1 << 43
_PAGE = 2_000
_PROBE = 64
_ENDS = 50
_SECONDS = 30.0


@dataclass(frozen=True)
class _Stream:
    """A stream as it is now: its first entry and the id after its newest, how many it has, and has had."""

    first: int | None
    after: int
    length: int
    added: int

    @property
    def trimmed(self) -> int:
        return self.added - self.length


class RedisLog(Log):
    """The streams at some keys of a Redis, as in `RedisLog("redis://127.0.0.1:6379/0", "clicks")`.

    `field` names the field that has the line; without it the line is a JSON object of all fields (their values
    are text). `start` is where a first reader starts: "earliest", "latest" or a time. With `finished`
    nothing will be added.
    """

    unit = "records"
    dense = False

    def __init__(
        self,
        address: str,
        keys: str | Sequence[str],
        *,
        field: str | None = None,
        start: str | datetime = "earliest",
        finished: bool = False,
    ) -> None:
        self._address = address
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        if not self._keys or not all(self._keys):
            raise UserError("BAD_OPTION", "a log of Redis needs the keys of its streams")
        self._field = None if field is None else field.encode()
        self._start = parse_start(start)
        self._finished = finished
        self._first_offsets: dict[str, int] = {}
        #: by key, where the stream ended when it was inspected, and how many entries had been added by then
        self._ends: dict[str, dict[int, int]] = {}
        self._drop_caches()

    def _drop_caches(self) -> None:
        self._server: redis.Redis | None = None
        self._density: dict[str, float] = {}
        self._counted: dict[tuple[str, int, int], int] = {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._drop_caches()

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Decide where reading starts, once."""
        if memory and "begin" in memory:
            self.resumed(memory)
        elif isinstance(self._start, datetime):
            self._first_offsets = dict.fromkeys(self._keys, to_millis(self._start) << _SEQUENCE_BITS)
        elif self._start == "latest":
            found = {key: self._read_info(key) for key in self._keys}
            self._first_offsets = {key: stream.after for key, stream in found.items() if stream}
        return {"begin": self._first_offsets}

    def resumed(self, memory: Mapping[str, object]) -> None:
        self._first_offsets = dict(cast("Mapping[str, int]", memory.get("begin", {})))

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        found = []
        for key in self._keys:
            stream = self._read_info(key)
            if stream is None or not stream.added:
                continue
            at, first = offsets.get(key), stream.first if stream.first is not None else stream.after
            latest = max(stream.after, at or 0)
            if at is not None and at < latest and not self._is_untrimmed(key, at, stream):
                raise self._gone_error(Span(key, at, latest), first)
            self._record_end(key, latest, stream.added)
            self._density[key] = stream.length / max(stream.after - first, 1)
            start = min(max(first, self._first_offsets.get(key, 0)), latest)
            found.append(Partition(key, start, latest, self._finished))
        return found

    def closed(self) -> bool:
        return self._finished

    def units(self, partition: str, start: int, end: int) -> int:
        if end <= start:
            return 0
        counted = self._counted.get((partition, start, end))
        return counted or max(1, round((end - start) * self._density.get(partition, 1e-6)))

    def cut(self, partition: str, start: int, units: int) -> int:
        """Steps that double in length, each as dense as the entries where it starts."""
        stream = self._read_info(partition)
        latest = max(start, stream.after) if stream else start
        at, taken = start, 0
        while at < latest and taken < units:
            wanted = min(units - taken, max(taken, _PROBE))
            probe = self._read_entries(partition, at, latest, min(_PROBE, wanted))
            taken += len(probe)
            if len(probe) < min(_PROBE, wanted):
                at = latest
                break
            first, last = offset_of(probe[0][0]), offset_of(probe[-1][0])
            at = last + 1
            if (more := wanted - len(probe)) > 0 and len(probe) > 1:
                at = min(latest, at + more * (last - first) // (len(probe) - 1))
                taken += more
        if len(self._counted) > 1_000:
            self._counted.clear()
        self._counted[partition, start, at] = taken
        return at

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        at, start, held = span.start, span.start, 0
        lines: list[bytes] = []
        offsets: list[int] = []
        while at < span.end:
            stream, page = self._read_page(span, at)
            if stream is None or not (
                self._is_untrimmed(span.partition, at, stream) or (page and offset_of(page[0][0]) == at)
            ):
                raise self._gone_error(span, stream.first if stream else None)
            for id, fields in page:
                line = self._line(fields)
                lines.append(line)
                offsets.append(offset_of(id))
                held += len(line)
                if held >= chunk_bytes:
                    yield Chunk(span.partition, start, b"".join(lines), offsets=np.array(offsets, np.int64))
                    lines, start, offsets, held = [], offsets[-1] + 1, [], 0
            if len(page) < _PAGE:
                break
            at = offset_of(page[-1][0]) + 1
        if lines:
            yield Chunk(span.partition, start, b"".join(lines), offsets=np.array(offsets, np.int64))

    def settings(self) -> Mapping[str, object]:
        return {
            "server": self._address.rpartition("@")[2],
            "keys": [*self._keys],
            "field": None if self._field is None else self._field.decode(),
            "start": str(self._start),
            "finished": self._finished,
        }

    def describe(self) -> str:
        return f"redis {', '.join(self._keys)}"

    def _line(self, fields: dict[bytes, bytes] | None) -> bytes:
        if self._field is not None:
            text = (fields or {}).get(self._field, b"")
            return text.replace(b"\r\n", b" ").replace(b"\n", b" ") + b"\n"
        known = {_decode_text(name): _decode_text(value) for name, value in (fields or {}).items()}
        return json.dumps(known, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"

    def _is_untrimmed(self, key: str, at: int, stream: _Stream) -> bool:
        """Whether nothing from an offset on can have been trimmed: no entry was, or an older one is there, or what was
        trimmed is no more than there was before that offset."""
        if stream.trimmed <= 0 or (stream.first is not None and stream.first <= at):
            return True
        return stream.trimmed <= self._ends.get(key, {}).get(at, -1)

    def _record_end(self, key: str, end: int, added: int) -> None:
        known = self._ends.setdefault(key, {})
        known[end] = added
        while len(known) > _ENDS:
            del known[min(known)]

    def _read_info(self, key: str) -> _Stream | None:
        with self._translate_errors(key):
            try:
                return _parse_info(self._connect().xinfo_stream(key))
            except extra("redis", "redis", "the log").exceptions.ResponseError as problem:
                if "no such key" in str(problem):
                    return None
                raise

    def _read_entries(self, key: str, start: int, end: int, count: int) -> list[Entry]:
        with self._translate_errors(key):
            found = self._connect().xrange(key, id_of(start), id_of(end - 1), count)
            return cast("list[Entry]", found)

    def _read_page(self, span: Span, at: int) -> tuple[_Stream | None, list[Entry]]:
        with self._translate_errors(span.partition):
            together = self._connect().pipeline(transaction=True)
            together.xinfo_stream(span.partition)
            together.xrange(span.partition, id_of(at), id_of(span.end - 1), _PAGE)
            info, entries = together.execute(raise_on_error=False)
            if isinstance(info, Exception):
                if "no such key" in str(info):
                    return None, []
                raise info
            if isinstance(entries, Exception):
                raise entries
            return _parse_info(info), entries

    def _connect(self) -> redis.Redis:
        if self._server is None:
            library = extra("redis", "redis", "a log of Redis")
            self._server = library.Redis.from_url(
                reveal(self._address),
                socket_timeout=_SECONDS,
                socket_connect_timeout=_SECONDS,
                health_check_interval=30,
            )
        return self._server

    @contextlib.contextmanager
    def _translate_errors(self, key: str) -> Iterator[None]:
        errors = extra("redis", "redis", "a log of Redis").exceptions
        try:
            yield
        except (errors.RedisError, OSError) as problem:
            raise ExternalError(
                "LOG_UNREADABLE",
                f"the stream {key} of Redis cannot be read",
                detail=f"{redact(str(problem), self._address)}.",
                hint="Check that the server runs and lets this user read, then start again.",
                is_transient=is_transient_error(problem),
            ) from problem

    def _gone_error(self, span: Span, first: int | None) -> ExternalError:
        now = "nothing is left" if first is None else f"its first entry is now {id_of(first)}"
        return ExternalError(
            "LOG_SPAN_GONE",
            "a part of a stream of Redis that is still needed may have been trimmed",
            where=f"partition {span.partition}, ids {id_of(span.start)} to {id_of(span.end)}",
            detail=f"Of the stream {span.partition}, {now}.",
            hint="Reset with --fresh; let what trims the stream (MAXLEN, MINID) retain more of it.",
        )


def is_transient_error(problem: Exception) -> bool:
    """Whether the server is away, starting, changing its role or full: all of that passes."""
    errors = extra("redis", "redis", "Redis").exceptions
    passing = (
        OSError,
        errors.ConnectionError,
        errors.TimeoutError,
        errors.ReadOnlyError,
        errors.OutOfMemoryError,
    )
    lasting = (errors.AuthenticationError, errors.AuthorizationError)
    return isinstance(problem, passing) and not isinstance(problem, lasting)


_OWN = ("_server", "_density", "_counted")


def offset_of(id: bytes | str) -> int:
    """The offset of an entry's id."""
    ms, _, sequence = (id.decode() if isinstance(id, bytes) else id).partition("-")
    if int(ms) >= _MOST_MS or int(sequence or 0) >= 1 << _SEQUENCE_BITS:
        raise ExternalError(
            "LOG_UNREADABLE",
            f"the id {ms}-{sequence} of an entry in Redis is beyond what can be read",
            hint=f"Milliseconds must be below {_MOST_MS}, the number below {1 << _SEQUENCE_BITS}: let Redis make ids.",
        )
    return int(ms) << _SEQUENCE_BITS | int(sequence or 0)


def id_of(offset: int) -> str:
    """The id at an offset."""
    return f"{offset >> _SEQUENCE_BITS}-{offset & (1 << _SEQUENCE_BITS) - 1}"


def _parse_info(info: Mapping[str, Any]) -> _Stream:
    first = info.get("first-entry")
    length = int(info["length"])
    after = offset_of(info["last-generated-id"]) + 1
    return _Stream(
        first=offset_of(first[0]) if first else None,
        after=after,
        length=length,
        added=int(info.get("entries-added", length)),  # before Redis 7 the server does not count them
    )


def _decode_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")

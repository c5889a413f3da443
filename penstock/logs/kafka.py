"""Reads a topic of Kafka as a log: partitions and offsets are Kafka's own.

Receives brokers and a topic; returns the values of records as lines. Each task that reads a span has a consumer of its
own, assigned to that partition from the span's first offset; no consumer group and no commits: the engine's
epoch records hold its offsets.

Invariants: a span ends where Kafka's last stable offset was when it was cut, so that reading to its end never
waits for an open transaction. Offsets without a record (transaction marks, compacted records) are skipped.
Does not guarantee: the same bytes from a compacted topic, or once retention has removed them, which is an error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.errors import ExternalError, UserError
from penstock.extras import extra
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.start_position import parse_start, to_millis

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_EARLIEST, _LATEST = -2, -1
_REQUEST_SECONDS = 30.0
_SILENCE_SECONDS = 60.0
_AT_ONCE = 10_000


class KafkaLog(Log):
    """A topic: `KafkaLog("broker1:9092,broker2:9092", "clicks")`.

    `start` is where a first reader starts: "earliest", "latest", or a time (the first record as new as that).
    With `finished` nothing will be added. `settings` go to librdkafka as they are (TLS, SASL). A newline
    in a value becomes a blank; a record without a value is an empty line.
    """

    unit = "records"
    dense = False

    def __init__(
        self,
        brokers: str,
        topic: str,
        *,
        start: str | datetime = "earliest",
        finished: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if not brokers or not topic:
            raise UserError("BAD_OPTION", "a log of Kafka needs brokers and a topic")
        self._brokers, self._topic = brokers, topic
        self._start = parse_start(start)
        self._finished = finished
        self._settings = dict(settings or {})
        self._first_offsets: dict[str, int] = {}
        self._metadata_consumer: Consumer | None = None
        self._latest: dict[str, int] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_metadata_consumer": None, "_latest": {}}

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Decide where reading starts, once."""
        if memory and "begin" in memory:
            self.resumed(memory)
        elif self._start != "earliest":
            numbers = self._list_numbers()
            at = _LATEST if self._start == "latest" else to_millis(self._start)
            found = self._fetch_offsets(numbers, at)
            if after := [number for number in numbers if found[number] < 0]:  # nothing as new as that yet
                found |= self._fetch_offsets(after, _LATEST)
            self._first_offsets = {f"p{number}": offset for number, offset in found.items()}
        return {"begin": self._first_offsets}

    def resumed(self, memory: Mapping[str, object]) -> None:
        self._first_offsets = dict(cast("Mapping[str, int]", memory.get("begin", {})))

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        numbers = self._list_numbers()
        earliest, latest = self._fetch_offsets(numbers, _EARLIEST), self._fetch_offsets(numbers, _LATEST)
        found = []
        for number in numbers:
            id = f"p{number}"
            low, high = earliest[number], max(latest[number], self._latest.get(id, 0))
            at = offsets.get(id)
            if at is not None and at < low:
                raise self._gone_error(id, at, high, low)
            if at is not None and at > high:
                raise self._truncated_error(id, at, high)
            self._latest[id] = high
            start = min(max(low, self._first_offsets.get(id, 0)), high)
            found.append(Partition(id, start, high, self._finished))
        return found

    def closed(self) -> bool:
        return self._finished

    def cut(self, partition: str, start: int, units: int) -> int:
        """Any offset is a boundary."""
        if partition not in self._latest:
            self.partitions({})
        return max(start, min(start + max(units, 1), self._latest.get(partition, start)))

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        if span.end <= span.start:
            return
        lines: list[bytes] = []
        offsets: list[int] = []
        start, held = span.start, 0
        for record in self._consume(span):
            line = _line(record.value())
            lines.append(line)
            offsets.append(cast("int", record.offset()))
            held += len(line)
            if held >= chunk_bytes:
                yield Chunk(span.partition, start, b"".join(lines), offsets=np.array(offsets, np.int64))
                lines, start, offsets, held = [], offsets[-1] + 1, [], 0
        if lines:
            yield Chunk(span.partition, start, b"".join(lines), offsets=np.array(offsets, np.int64))

    def stopped(self) -> None:
        if self._metadata_consumer is not None:
            self._metadata_consumer.close()
            self._metadata_consumer = None

    def settings(self) -> Mapping[str, object]:
        return {
            "brokers": self._brokers,
            "topic": self._topic,
            "start": str(self._start),
            "finished": self._finished,
        }

    def describe(self) -> str:
        return f"kafka {self._topic}"

    def _consume(self, span: Span) -> Iterator[Message]:
        """Consume the records of a span, by a consumer of its own."""
        kafka, number = _library(), int(span.partition[1:])
        with self._translate_errors(span.partition):
            consumer = self._create_consumer({"enable.partition.eof": "true", "auto.offset.reset": "error"})
        try:
            with self._translate_errors(span.partition):
                consumer.assign([kafka.TopicPartition(self._topic, number, span.start)])
            deadline = time.monotonic() + _SILENCE_SECONDS
            while True:
                with self._translate_errors(span.partition):
                    got = consumer.consume(min(_AT_ONCE, span.end - span.start), 0.5)
                    position = consumer.position([kafka.TopicPartition(self._topic, number)])[0].offset
                for record in got:
                    error = record.error()
                    if error is None:
                        offset = cast("int", record.offset())
                        if offset >= span.end:
                            return
                        yield record
                        if offset + 1 == span.end:
                            return
                    elif error.code() in (
                        kafka.KafkaError.OFFSET_OUT_OF_RANGE,
                        kafka.KafkaError._AUTO_OFFSET_RESET,
                    ):
                        raise self._gone_error(
                            span.partition,
                            span.start,
                            span.end,
                            self._fetch_offsets([number], _EARLIEST)[number],
                        )
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:
                        # the end of the partition as it is now; what the span has more than records are marks
                        if cast("int", record.offset()) >= span.end:
                            return
                    elif error.fatal() or not error.retriable():
                        raise self._unreadable_error(span.partition, error.str())
                if got or position >= span.end:
                    deadline = time.monotonic() + _SILENCE_SECONDS
                if not got and position >= span.end:
                    return
                if time.monotonic() > deadline:
                    raise self._unreadable_error(span.partition, f"no record came for {_SILENCE_SECONDS:g} s")
        finally:
            consumer.close()

    def _list_numbers(self) -> list[int]:
        with self._translate_errors(self._topic):
            metadata = self._open_metadata_consumer().list_topics(self._topic, timeout=_REQUEST_SECONDS)
        found = metadata.topics[self._topic]
        if found.error is not None and found.error.code() != _library().KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._unreadable_error(self._topic, found.error.str())
        return sorted(found.partitions)

    def _fetch_offsets(self, numbers: list[int], at: int) -> dict[int, int]:
        """Fetch the first or last offset of each partition, or that of the first record since a time; -1: none."""
        kafka = _library()
        wanted = [kafka.TopicPartition(self._topic, number, at) for number in numbers]
        if not wanted:
            return {}
        with self._translate_errors(self._topic):
            found = self._open_metadata_consumer().offsets_for_times(wanted, timeout=_REQUEST_SECONDS)
            for one in found:
                if one.error is not None:
                    raise kafka.KafkaException(one.error)
        return {one.partition: one.offset for one in found}

    def _open_metadata_consumer(self) -> Consumer:
        """Open the consumer that only requests offsets."""
        if self._metadata_consumer is None:
            self._metadata_consumer = self._create_consumer({})
        return self._metadata_consumer

    def _create_consumer(self, more: Mapping[str, str]) -> Consumer:
        return cast(
            "Consumer",
            _library().Consumer(
                {
                    "bootstrap.servers": self._brokers,
                    "group.id": "penstock",  # librdkafka wants one; nothing is committed and nobody joins it
                    "enable.auto.commit": "false",
                    "enable.auto.offset.store": "false",
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": "false",
                    "log_level": "2",
                    **self._settings,
                    **more,
                }
            ),
        )

    @contextlib.contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        kafka = _library()
        try:
            yield
        except kafka.KafkaException as problem:
            cause: Any = problem.args[0] if problem.args else problem
            raise self._unreadable_error(
                what,
                cause.str() if hasattr(cause, "str") else str(cause),
                is_transient=is_transient_error(cause),
            ) from problem

    def _unreadable_error(self, what: str, why: str, *, is_transient: bool = False) -> ExternalError:
        return ExternalError(
            "LOG_UNREADABLE",
            f"the topic {self._topic} of Kafka cannot be read",
            where=what,
            detail=f"{why}.",
            hint="Check that the brokers run and let this user read, then start again.",
            is_transient=is_transient,
        )

    def _gone_error(self, partition: str, start: int, end: int, low: int) -> ExternalError:
        return ExternalError(
            "LOG_SPAN_GONE",
            f"Kafka has removed records of the topic {self._topic} that were not read yet",
            where=f"partition {partition}, offsets {start} to {end}",
            detail=f"The first offset it still has is {low}.",
            hint="Reset with --fresh; let the topic retain records for longer than the engine may be down.",
        )

    def _truncated_error(self, partition: str, at: int, high: int) -> ExternalError:
        return ExternalError(
            "LOG_TRUNCATED",
            f"the topic {self._topic} of Kafka ends before what was already read of it",
            where=f"partition {partition}, offset {at}",
            detail=f"Its last offset is {high}: the topic was recreated, or a broker lost records.",
            hint="Reset with --fresh.",
        )


def is_transient_error(error: Any) -> bool:
    """Whether brokers are away, starting or electing a leader: all of that passes."""
    names = (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_ENOUGH_REPLICAS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
    )
    kinds = _library().KafkaError
    codes = {getattr(kinds, name) for name in names if hasattr(kinds, name)}
    return isinstance(error, kinds) and (error.code() in codes or error.retriable())


def _library() -> Any:
    return extra("confluent_kafka", "kafka", "a log of Kafka")


def _line(value: bytes | str | None) -> bytes:
    data = value.encode() if isinstance(value, str) else value or b""
    return data.replace(b"\r\n", b" ").replace(b"\n", b" ") + b"\n"

"""A topic of Kafka as a log: partitions and offsets are Kafka's own.

Receives brokers and a topic; hands the values of records as lines. Each task that reads a span has a consumer of its
own, assigned to that partition from the span's first offset; no consumer group and no commits: the engine's epochs
say how far it has come.

Invariants: a span ends where Kafka's last stable offset was when it was cut, so that reading to its end never
waits for an open transaction. Offsets without a record (transaction marks, compacted records) are passed over.
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
from penstock.logs.beginnings import beginning, millis
from penstock.logs.contract import Chunk, Log, Partition, Span

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_EARLIEST, _LATEST = -2, -1
_ASK_SECONDS = 30.0
_SILENCE_SECONDS = 60.0
_AT_ONCE = 10_000


class KafkaLog(Log):
    """A topic: `KafkaLog("broker1:9092,broker2:9092", "clicks")`.

    `start` says where a first reader begins: "earliest", "latest", or a time (the first record as new as that).
    `finished` says that nothing will be added. `settings` go to librdkafka as they are (TLS, SASL). A newline
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
        self._start = beginning(start)
        self._finished = finished
        self._settings = dict(settings or {})
        self._begin: dict[str, int] = {}
        self._asking: Consumer | None = None
        self._latest: dict[str, int] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_asking": None, "_latest": {}}

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Settle where reading begins, once."""
        if memory and "begin" in memory:
            self.resumed(memory)
        elif self._start != "earliest":
            numbers = self._numbers()
            at = _LATEST if self._start == "latest" else millis(self._start)
            found = self._offsets(numbers, at)
            if after := [number for number in numbers if found[number] < 0]:  # nothing as new as that yet
                found |= self._offsets(after, _LATEST)
            self._begin = {f"p{number}": offset for number, offset in found.items()}
        return {"begin": self._begin}

    def resumed(self, memory: Mapping[str, object]) -> None:
        self._begin = dict(cast("Mapping[str, int]", memory.get("begin", {})))

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        numbers = self._numbers()
        earliest, latest = self._offsets(numbers, _EARLIEST), self._offsets(numbers, _LATEST)
        found = []
        for number in numbers:
            id = f"p{number}"
            low, high = earliest[number], max(latest[number], self._latest.get(id, 0))
            at = offsets.get(id)
            if at is not None and at < low:
                raise self._gone(id, at, high, low)
            if at is not None and at > high:
                raise self._shorter(id, at, high)
            self._latest[id] = high
            begin = min(max(low, self._begin.get(id, 0)), high)
            found.append(Partition(id, begin, high, self._finished))
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
        begin, held = span.start, 0
        for record in self._records(span):
            line = _line(record.value())
            lines.append(line)
            offsets.append(cast("int", record.offset()))
            held += len(line)
            if held >= chunk_bytes:
                yield Chunk(span.partition, begin, b"".join(lines), offsets=np.array(offsets, np.int64))
                lines, begin, offsets, held = [], offsets[-1] + 1, [], 0
        if lines:
            yield Chunk(span.partition, begin, b"".join(lines), offsets=np.array(offsets, np.int64))

    def stopped(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def settings(self) -> Mapping[str, object]:
        return {
            "brokers": self._brokers,
            "topic": self._topic,
            "start": str(self._start),
            "finished": self._finished,
        }

    def describe(self) -> str:
        return f"kafka {self._topic}"

    def _records(self, span: Span) -> Iterator[Message]:
        """The records of a span, by a consumer of its own."""
        kafka, number = _library(), int(span.partition[1:])
        with self._reporting(span.partition):
            consumer = self._consumer({"enable.partition.eof": "true", "auto.offset.reset": "error"})
        try:
            with self._reporting(span.partition):
                consumer.assign([kafka.TopicPartition(self._topic, number, span.start)])
            deadline = time.monotonic() + _SILENCE_SECONDS
            while True:
                with self._reporting(span.partition):
                    got = consumer.consume(min(_AT_ONCE, span.end - span.start), 0.5)
                    place = consumer.position([kafka.TopicPartition(self._topic, number)])[0].offset
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
                        raise self._gone(
                            span.partition, span.start, span.end, self._offsets([number], _EARLIEST)[number]
                        )
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:
                        # the end of the partition as it is now; what the span has more than records are marks
                        if cast("int", record.offset()) >= span.end:
                            return
                    elif error.fatal() or not error.retriable():
                        raise self._unreadable(span.partition, error.str())
                if got or place >= span.end:
                    deadline = time.monotonic() + _SILENCE_SECONDS
                if not got and place >= span.end:
                    return
                if time.monotonic() > deadline:
                    raise self._unreadable(span.partition, f"no record came for {_SILENCE_SECONDS:g} s")
        finally:
            consumer.close()

    def _numbers(self) -> list[int]:
        with self._reporting(self._topic):
            found = self._asked().list_topics(self._topic, timeout=_ASK_SECONDS).topics[self._topic]
        if found.error is not None and found.error.code() != _library().KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._unreadable(self._topic, found.error.str())
        return sorted(found.partitions)

    def _offsets(self, numbers: list[int], at: int) -> dict[int, int]:
        """For each partition: its first or last offset, or that of the first record since a time; -1 for none."""
        kafka = _library()
        wanted = [kafka.TopicPartition(self._topic, number, at) for number in numbers]
        if not wanted:
            return {}
        with self._reporting(self._topic):
            found = self._asked().offsets_for_times(wanted, timeout=_ASK_SECONDS)
            for one in found:
                if one.error is not None:
                    raise kafka.KafkaException(one.error)
        return {one.partition: one.offset for one in found}

    def _asked(self) -> Consumer:
        """The consumer that is only asked for offsets."""
        if self._asking is None:
            self._asking = self._consumer({})
        return self._asking

    def _consumer(self, more: Mapping[str, str]) -> Consumer:
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
    def _reporting(self, what: str) -> Iterator[None]:
        kafka = _library()
        try:
            yield
        except kafka.KafkaException as problem:
            told: Any = problem.args[0] if problem.args else problem
            raise self._unreadable(what, told.str() if hasattr(told, "str") else str(told)) from problem

    def _unreadable(self, what: str, why: str) -> ExternalError:
        return ExternalError(
            "LOG_UNREADABLE",
            f"the topic {self._topic} of Kafka cannot be read",
            where=what,
            detail=f"{why}.",
            hint="Check that the brokers run and let this user read, then start again.",
        )

    def _gone(self, partition: str, start: int, end: int, low: int) -> ExternalError:
        return ExternalError(
            "LOG_SPAN_GONE",
            f"Kafka has removed records of the topic {self._topic} that were not read yet",
            where=f"partition {partition}, offsets {start} to {end}",
            detail=f"The first offset it still has is {low}.",
            hint="Begin anew with --fresh; let the topic keep records for longer than the engine may be away.",
        )

    def _shorter(self, partition: str, at: int, high: int) -> ExternalError:
        return ExternalError(
            "LOG_TRUNCATED",
            f"the topic {self._topic} of Kafka ends before what was already read of it",
            where=f"partition {partition}, offset {at}",
            detail=f"Its last offset is {high}: the topic was made anew, or a broker lost records.",
            hint="Begin anew with --fresh.",
        )


def _library() -> Any:
    return extra("confluent_kafka", "kafka", "a log of Kafka")


def _line(value: bytes | str | None) -> bytes:
    data = value.encode() if isinstance(value, str) else value or b""
    return data.replace(b"\r\n", b" ").replace(b"\n", b" ") + b"\n"

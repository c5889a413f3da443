"""A sink that writes to a topic of Kafka: one record a row, its value a JSON object, each epoch one transaction.

The same transaction adds a record to the ledger, partition 0 of the topic `penstock-epochs`: by job and topic, the
epoch, the generation and the digests of the newest epochs (see `recent_epochs`).

Guarantees: readers with `isolation.level=read_committed` see all rows of an epoch or none, once. All engines of a job
have one transactional id: the last one that starts a producer fences the others and ends their open transactions. Then
it reads the ledger up to that point, and raises FENCED if it finds a higher generation.
Does not guarantee: order between partitions of the topic.
On failure: `ExternalError` SINK_UNWRITABLE or FENCED; the transaction is aborted, here or by the next producer.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.errors import ExternalError, UserError
from penstock.extras import extra
from penstock.logs.kafka import is_transient_error
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.portable import reorder_columns, to_portable
from penstock.sinks.recent_epochs import add_epoch, check_same, digest_in
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_SECONDS = 60.0
_LEDGER = "penstock-epochs"
#: the number of records at the end of the ledger that are read first
_TAIL = 200


class _ProducerFenced(Exception):
    """Another producer with this transactional id has started."""


@dataclass(frozen=True)
class _LedgerEntry:
    """What the ledger has of a job and topic."""

    epoch: int = -1
    generation: int = 0
    recent: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps(
            {"epoch": self.epoch, "generation": self.generation, "recent": self.recent}
        ).encode()

    @staticmethod
    def of(body: Mapping[str, Any]) -> _LedgerEntry:
        # former versions wrote no digests
        return _LedgerEntry(int(body["epoch"]), int(body["generation"]), str(body.get("recent", "")))


class KafkaTopic(Sink):
    """Rows in `topic`. With `key`, the text of that column is the record's key, which picks its partition.

    `ledger` is the topic that has the epochs; it is created, compacted, if it is missing. `settings` go to
    librdkafka unchanged (TLS, SASL).
    """

    def __init__(
        self,
        brokers: str,
        topic: str,
        *,
        key: str | None = None,
        ledger: str = _LEDGER,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if not brokers or not topic:
            raise UserError("BAD_OPTION", "the Kafka sink needs brokers and a topic")
        self._brokers, self.topic, self.key, self.ledger = brokers, topic, key, ledger
        self._settings = dict(settings or {})
        self._job = ""
        self._generation = 0
        self._columns: list[str] = []
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._last_epoch, self._recent = -1, ""

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Connect, and check that the topic exists."""
        self.close()
        self._job, self._generation, self._columns = job, 0, list(schema)
        self.check(schema)
        kafka = _library()
        with self._translate_errors():
            self._consumer = kafka.Consumer(
                self._common()
                | {
                    "group.id": self._id,  # librdkafka requires one; nothing is committed and nobody joins it
                    "enable.auto.commit": "false",
                    "enable.partition.eof": "true",
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": "true",
                }
            )
            found = self._consumer.list_topics(self.topic, timeout=_SECONDS).topics[self.topic]
            if found.error is not None and found.error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise kafka.KafkaException(found.error)
            self._make_ledger()

    def check(self, schema: dict[str, pl.DataType]) -> None:
        """Check that the key is among the columns."""
        if self.key is not None and self.key not in schema:
            raise UserError(
                "SINK_SCHEMA_MISMATCH",
                f"the key of {self.describe()} is not among the job's columns",
                detail=f"It is {self.key}; there are {', '.join(schema)}.",
            )

    def newest_epoch(self) -> SinkEpoch | None:
        """The epoch in the ledger, but for what a transaction hides that another engine has left open."""
        with self._translate_errors():
            found = self._read_ledger(waits=False)
        if found.epoch < 0:
            return None
        return SinkEpoch(found.epoch, digest_in(found.recent, found.epoch), found.generation)

    def take_over(self, generation: int) -> None:
        """Fence earlier producers, and write the generation to the ledger."""
        if generation == self._generation:
            return
        before, self._generation, self._producer = self._generation, generation, None
        try:
            self._retry_if_fenced(lambda: self._transaction(None, []))
        except ExternalError:
            self._generation = before
            raise

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Commit the rows and the number of the epoch in one transaction. An epoch without rows leaves nothing."""
        if rows.is_empty():
            return True
        chosen = reorder_columns(rows, self._columns)
        values = to_portable(chosen).write_ndjson().encode().splitlines()
        keys: list[str | None] = [None] * len(values)
        if self.key is not None:
            keys = to_portable(chosen.select(self.key))[self.key].cast(pl.String).to_list()
        return self._retry_if_fenced(lambda: self._transaction(epoch, list(zip(keys, values, strict=True))))

    def close(self) -> None:
        self._producer = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def describe(self) -> str:
        return f"topic {self.topic} in Kafka"

    @property
    def _id(self) -> str:
        return f"penstock-{self._job}-{self.topic}"

    def _common(self) -> dict[str, str]:
        return {"bootstrap.servers": self._brokers, "log_level": "2", **self._settings}

    def _retry_if_fenced(self, write: Any) -> bool:
        """Retry with a new producer: an engine of the same generation may have started one and ended."""
        for _ in range(3):
            with contextlib.suppress(_ProducerFenced):
                return bool(write())
            self._producer = None
        raise self._failure("other engines of the same generation write there at the same time")

    def _get_producer(self) -> Producer:
        """The producer, started: no other transaction is open. Raises if a higher generation has taken over."""
        kafka = _library()
        if self._producer is None:
            with self._translate_errors():
                producer: Producer = kafka.Producer(
                    self._common() | {"transactional.id": self._id, "linger.ms": "5"}
                )
                producer.init_transactions(_SECONDS)
                found = self._read_ledger()
            if self._generation and found.generation > self._generation:
                raise fenced_error(self.describe(), self._generation, found.generation)
            self._last_epoch, self._recent, self._producer = found.epoch, found.recent, producer
        return self._producer

    def _make_ledger(self) -> None:
        assert self._consumer is not None
        if self.ledger in self._consumer.list_topics(timeout=_SECONDS).topics:
            return
        admin = extra("confluent_kafka.admin", "kafka", "the Kafka sink")
        topic = admin.NewTopic(self.ledger, num_partitions=1, config={"cleanup.policy": "compact"})
        for future in admin.AdminClient(self._common()).create_topics([topic]).values():
            try:
                future.result(_SECONDS)
            except _library().KafkaException as problem:
                if problem.args[0].code() != _library().KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _read_ledger(self, *, waits: bool = True) -> _LedgerEntry:
        """This job's entry in the ledger, searched from its end backwards. `waits`: until all open transactions have
        ended."""
        kafka, consumer = _library(), self._consumer
        assert consumer is not None
        _, end = self._ends("read_uncommitted")
        deadline = time.monotonic() + 2 * _SECONDS
        while True:  # open transactions of other jobs hide what this job committed, until they end
            start, stable = self._ends("read_committed")
            if stable >= end or not waits:
                end = min(end, stable)
                break
            if time.monotonic() > deadline:
                raise self._failure(f"transactions in {self.ledger} stay open")
            time.sleep(0.1)
        count = _TAIL
        while True:
            first = max(start, end - count)
            found = None
            if first < end:
                consumer.assign([kafka.TopicPartition(self.ledger, 0, first)])
                found = self._find_last_record(end)
                consumer.unassign()
            if found is not None or first == start:
                return _LedgerEntry() if found is None else _LedgerEntry.of(found)
            count *= 16

    def _ends(self, isolation: str) -> tuple[int, int]:
        consumer = _library().Consumer(
            self._common()
            | {"group.id": self._id, "enable.auto.commit": "false", "isolation.level": isolation}
        )
        try:
            start, end = consumer.get_watermark_offsets(
                _library().TopicPartition(self.ledger, 0), timeout=_SECONDS, cached=False
            )
            return int(start), int(end)
        finally:
            consumer.close()

    def _find_last_record(self, end: int) -> dict[str, Any] | None:
        """This job's last record in the ledger, from the position of the consumer to an offset."""
        kafka, consumer, found = _library(), self._consumer, None
        assert consumer is not None
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            for record in consumer.consume(_TAIL, 0.2):
                error = record.error()
                if error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:
                    return found
                if error is not None:
                    raise kafka.KafkaException(error)
                if record.key() == self._id.encode():
                    found = json.loads(record.value() or b"{}")
                if (record.offset() or 0) + 1 >= end:
                    return found
        raise self._failure(f"{self.ledger} could not be read to its end")

    def _transaction(self, epoch: int | None, records: list[tuple[str | None, bytes]]) -> bool:
        kafka, producer = _library(), self._get_producer()
        if epoch is not None:
            check_same(self.describe(), self._recent, epoch, self._digest)
        if epoch is not None and epoch <= self._last_epoch:
            return False
        done = self._last_epoch if epoch is None else epoch
        recent = self._recent if epoch is None else add_epoch(self._recent, epoch, self._digest)
        failures: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        def produce(topic: str, value: bytes, key: str | None, partition: int = -1) -> None:
            while True:
                try:
                    return producer.produce(topic, value, key, partition, on_delivery=delivered)
                except BufferError:
                    producer.poll(0.1)

        line = _LedgerEntry(done, self._generation, recent).to_bytes()
        with self._translate_errors():
            producer.begin_transaction()
            try:
                for key, value in records:
                    produce(self.topic, value, key)
                produce(self.ledger, line, self._id, partition=0)
                producer.flush(_SECONDS)
                if failures:
                    raise kafka.KafkaException(failures[0])
                producer.commit_transaction(_SECONDS)
            except kafka.KafkaException:
                self._producer = None  # the next producer reads the ledger
                with contextlib.suppress(kafka.KafkaException):
                    producer.abort_transaction(10.0)
                raise
        self._last_epoch, self._recent = done, recent
        return True

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        kafka = _library()
        try:
            yield
        except kafka.KafkaException as problem:
            error: Any = problem.args[0]
            if error.code() in (
                kafka.KafkaError._FENCED,
                kafka.KafkaError.INVALID_PRODUCER_EPOCH,
                kafka.KafkaError.PRODUCER_FENCED,
            ):
                raise _ProducerFenced from problem
            raise self._failure(error.str(), is_transient=is_transient_error(error)) from problem

    def _failure(self, why: str, *, is_transient: bool = False) -> ExternalError:
        return ExternalError(
            "SINK_UNWRITABLE",
            f"could not write to {self.describe()}",
            detail=f"{why}.",
            hint="Check that the brokers run and let this user write. The rows wait for that; RESUME the job if it has "
            "failed. Readers of committed records see an epoch whole or not at all.",
            is_transient=is_transient,
        )


def _library() -> Any:
    return extra("confluent_kafka", "kafka", "the Kafka sink")

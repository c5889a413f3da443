"""A sink that writes to a topic of Kafka: a record a row, its value a JSON object, each epoch one transaction.

Receives an epoch's rows; hands them to the topic. The same transaction adds a record to the ledger, partition 0
of the topic `penstock-epochs`: by job and topic, the epoch and the generation.

Guarantees: readers with `isolation.level=read_committed` see all rows of an epoch or none, once. All engines of
a job have one transactional id: whoever begins last shuts the others out, and ends what they had open; then it
reads the ledger up to where that stood, and gives up if a higher generation has been there.
Does not guarantee: order between partitions of the topic.
On failure: `ExternalError` SINK_UNWRITABLE or FENCED; the transaction is aborted, by us or by the next to begin.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.errors import ExternalError, UserError
from penstock.extras import extra
from penstock.sinks.contract import Sink
from penstock.sinks.portable import in_order, portable
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_SECONDS = 60.0
_LEDGER = "penstock-epochs"
#: how many records of the ledger are looked at first, from its end
_TAIL = 200


class _ShutOut(Exception):
    """Another producer with our transactional id has begun."""


class KafkaTopic(Sink):
    """Rows in `topic`. With `key`, the text of that column is the record's key, which picks its partition.

    `ledger` is the topic that has the epochs; it is made, compacted, if there is none. `settings` go to
    librdkafka as they are (TLS, SASL).
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
        self._held = -1

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Connect, and see that the topic is there."""
        self.close()
        self._job, self._generation, self._columns = job, 0, list(schema)
        self.check(schema)
        kafka = _library()
        with self._reporting():
            self._consumer = kafka.Consumer(
                self._common()
                | {
                    "group.id": self._id,  # librdkafka wants one; nothing is committed and nobody joins it
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
        """Whether the key is among the columns."""
        if self.key is not None and self.key not in schema:
            raise UserError(
                "SINK_SCHEMA_MISMATCH",
                f"the key of {self.describe()} is not among the job's columns",
                detail=f"It is {self.key}; there are {', '.join(schema)}.",
            )

    def take_over(self, generation: int) -> None:
        """Shut out whoever wrote before, and put the generation into the ledger."""
        if generation == self._generation:
            return
        before, self._generation, self._producer = self._generation, generation, None
        try:
            self._again_if_shut_out(lambda: self._transaction(None, []))
        except ExternalError:
            self._generation = before
            raise

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """One transaction with the rows and the epoch's number. An epoch without rows leaves nothing."""
        if rows.is_empty():
            return True
        chosen = in_order(rows, self._columns)
        values = portable(chosen).write_ndjson().encode().splitlines()
        keys: list[str | None] = [None] * len(values)
        if self.key is not None:
            keys = portable(chosen.select(self.key))[self.key].cast(pl.String).to_list()
        return self._again_if_shut_out(lambda: self._transaction(epoch, list(zip(keys, values, strict=True))))

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

    def _again_if_shut_out(self, write: Any) -> bool:
        """An engine of the same generation may have begun after us, and be gone: then we begin again."""
        for _ in range(3):
            with contextlib.suppress(_ShutOut):
                return bool(write())
            self._producer = None
        raise self._failed("other engines of the same generation write there at the same time")

    def _begun(self) -> Producer:
        """The producer, begun: nobody else's transaction is open. Raises if a higher generation has been here."""
        kafka = _library()
        if self._producer is None:
            with self._reporting():
                producer: Producer = kafka.Producer(
                    self._common() | {"transactional.id": self._id, "linger.ms": "5"}
                )
                producer.init_transactions(_SECONDS)
                held, newest = self._told()
            if self._generation and newest > self._generation:
                raise fenced_error(self.describe(), self._generation, newest)
            self._held, self._producer = held, producer
        return self._producer

    def _make_ledger(self) -> None:
        assert self._consumer is not None
        if self.ledger in self._consumer.list_topics(timeout=_SECONDS).topics:
            return
        admin = extra("confluent_kafka.admin", "kafka", "the Kafka sink")
        made = admin.NewTopic(self.ledger, num_partitions=1, config={"cleanup.policy": "compact"})
        for future in admin.AdminClient(self._common()).create_topics([made]).values():
            try:
                future.result(_SECONDS)
            except _library().KafkaException as problem:
                if problem.args[0].code() != _library().KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _told(self) -> tuple[int, int]:
        """The epoch and the generation that the ledger has of us, looking from its end backwards; (-1, 0) if none."""
        kafka, looker = _library(), self._consumer
        assert looker is not None
        _, end = self._ends("read_uncommitted")
        deadline = time.monotonic() + 2 * _SECONDS
        while True:  # open transactions of other jobs hide what we committed, until they end
            begin, stable = self._ends("read_committed")
            if stable >= end:
                break
            if time.monotonic() > deadline:
                raise self._failed(f"transactions in {self.ledger} stay open")
            time.sleep(0.1)
        look = _TAIL
        while True:
            start = max(begin, end - look)
            found = None
            if start < end:
                looker.assign([kafka.TopicPartition(self.ledger, 0, start)])
                found = self._latest(end)
                looker.unassign()
            if found is not None or start == begin:
                return (-1, 0) if found is None else (int(found["epoch"]), int(found["generation"]))
            look *= 16

    def _ends(self, isolation: str) -> tuple[int, int]:
        asked = _library().Consumer(
            self._common()
            | {"group.id": self._id, "enable.auto.commit": "false", "isolation.level": isolation}
        )
        try:
            begin, end = asked.get_watermark_offsets(
                _library().TopicPartition(self.ledger, 0), timeout=_SECONDS, cached=False
            )
            return int(begin), int(end)
        finally:
            asked.close()

    def _latest(self, end: int) -> dict[str, Any] | None:
        """Our last record in the ledger, from where the consumer stands up to an offset."""
        kafka, looker, found = _library(), self._consumer, None
        assert looker is not None
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            for record in looker.consume(_TAIL, 0.2):
                error = record.error()
                if error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:
                    return found
                if error is not None:
                    raise kafka.KafkaException(error)
                if record.key() == self._id.encode():
                    found = json.loads(record.value() or b"{}")
                if (record.offset() or 0) + 1 >= end:
                    return found
        raise self._failed(f"{self.ledger} could not be read to its end")

    def _transaction(self, epoch: int | None, records: list[tuple[str | None, bytes]]) -> bool:
        kafka, producer = _library(), self._begun()
        if epoch is not None and epoch <= self._held:
            return False
        done = self._held if epoch is None else epoch
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

        line = json.dumps({"epoch": done, "generation": self._generation}).encode()
        with self._reporting():
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
                self._producer = None  # the next one to begin looks at the ledger
                with contextlib.suppress(kafka.KafkaException):
                    producer.abort_transaction(10.0)
                raise
        self._held = done
        return True

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
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
                raise _ShutOut from problem
            raise self._failed(error.str()) from problem

    def _failed(self, why: str) -> ExternalError:
        return ExternalError(
            "SINK_UNWRITABLE",
            f"could not write to {self.describe()}",
            detail=f"{why}.",
            hint="Check that the brokers run and let this user write, then start again: readers of committed records "
            "see the epoch whole or not at all.",
        )


def _library() -> Any:
    return extra("confluent_kafka", "kafka", "the Kafka sink")

"""Read a topic without Penstock."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def values_of(brokers: str, topic: str) -> list[bytes]:
    """Return the values of all committed records, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "test",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
            "log_level": "2",
        }
    )
    values: list[bytes] = []
    try:
        metadata = consumer.list_topics(topic, timeout=30).topics[topic]
        for number in sorted(metadata.partitions) if metadata.error is None else []:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            deadline = time.monotonic() + 60
            ended = False
            while not ended and time.monotonic() < deadline:
                for record in consumer.consume(1000, 0.2):
                    error = record.error()
                    if error is None:
                        values.append(record.value() or b"")
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended = True
            assert ended
    finally:
        consumer.close()
    return values

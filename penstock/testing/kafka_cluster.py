"""A Kafka for tests: the brokers that PENSTOCK_TEST_KAFKA names, else librdkafka's mock cluster in this process.

Hands `host:port`, where this and other processes reach it. The mock speaks Kafka's protocol over real connections, but keeps records in
memory and shows those of a transaction before it is committed: what depends on that needs real brokers.
"""

from __future__ import annotations

import os
import uuid
from importlib.util import find_spec

REAL = os.environ.get("PENSTOCK_TEST_KAFKA", "")


def why_not() -> str | None:
    """Why there is no Kafka here; None when there is."""
    return None if find_spec("confluent_kafka") else "confluent-kafka is not installed"


class KafkaCluster:
    """Brokers, and topics of a test's own. The mock lives as long as this object."""

    def __init__(self) -> None:
        from confluent_kafka import Producer

        if REAL:
            self.brokers = REAL
            return
        # the client that makes a mock cluster carries it
        self._carrier = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": "2"})
        known = self._carrier.list_topics(timeout=30).brokers.values()
        self.brokers = ",".join(f"{broker.host}:{broker.port}" for broker in known)

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"test-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": "2"})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

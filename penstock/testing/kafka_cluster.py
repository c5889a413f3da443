"""Provide a Kafka for tests: the brokers of PENSTOCK_TEST_KAFKA, else librdkafka's mock cluster in this process.

This and other processes reach it at `brokers`. The mock speaks Kafka's protocol over real connections, but it stores
records in memory and shows those of a transaction before the commit. Tests that depend on that need real brokers.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from importlib.util import find_spec
from pathlib import Path

REAL = os.environ.get("PENSTOCK_TEST_KAFKA", "")


def why_not() -> str | None:
    """Why there is no Kafka here; None when there is."""
    if find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed"
    return None if REAL or _library() is not None else "confluent-kafka's wheel has no librdkafka"


def _library() -> Path | None:
    """The librdkafka in confluent-kafka's wheel."""
    spec = find_spec("confluent_kafka")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parents[1] / "confluent_kafka.libs"
    return next(iter(sorted(folder.glob("librdkafka*"))), None)


class KafkaCluster:
    """Brokers, and new topics for each test. The mock lives as long as this process."""

    def __init__(self) -> None:
        if REAL:
            self.brokers = REAL
            return
        import confluent_kafka  # loads what librdkafka needs

        assert confluent_kafka
        self._kafka = ctypes.CDLL(str(_library()))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._kafka, name).restype = ctypes.c_void_p
        self._kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        why = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._kafka.rd_kafka_conf_new())
        self._kafka.rd_kafka_conf_set(settings, b"log_level", b"0", why, len(why))
        client = ctypes.c_void_p(self._kafka.rd_kafka_new(0, settings, why, len(why)))
        assert client.value, why.value
        self._cluster = ctypes.c_void_p(self._kafka.rd_kafka_mock_cluster_new(client, 1))
        self.brokers = self._kafka.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.topic(name="penstock-epochs")  # the mock creates no topics by itself

    def topic(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic."""
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        if not REAL:
            assert self._kafka.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0
            return name
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.brokers})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

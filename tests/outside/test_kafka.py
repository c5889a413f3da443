"""The Kafka log, and what the contract does not test of its sink: with real brokers, or librdkafka's mock
of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.errors import ExternalError, UserError
from penstock.logs import KafkaLog, Log, Span
from penstock.sinks import KafkaTopic
from penstock.testing import ListSink, run_inline
from penstock.testing.kafka_cluster import REAL, KafkaCluster
from penstock.testing.log_contract import LogContract, read_all, whole
from tests.outside.topics import values_of

Fill = Callable[[str, int, list[bytes | None]], None]


@pytest.fixture
def fill(kafka: KafkaCluster) -> Fill:
    def produce_values(topic: str, partition: int, values: list[bytes | None]) -> None:
        producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": "2", "linger.ms": "5"})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    return produce_values


def lines(count: int) -> list[bytes | None]:
    return [b"line %d %s" % (number, b"x" * (number * 7 % 90)) for number in range(count)]


class TestContract(LogContract):
    @pytest.fixture
    def log(self, kafka: KafkaCluster, fill: Fill) -> Log:
        topic = kafka.topic(2)
        fill(topic, 0, lines(600))
        fill(topic, 1, lines(300))
        return KafkaLog(kafka.brokers, topic)


def test_offsets_are_kafkas_own(kafka: KafkaCluster, fill: Fill) -> None:
    topic = kafka.topic(2)
    fill(topic, 0, lines(5))
    log = KafkaLog(kafka.brokers, topic)
    first, second = log.partitions({})
    assert (second.id, second.earliest, second.latest) == ("p1", 0, 0)
    assert (first.id, first.earliest, first.latest, first.finished) == ("p0", 0, 5, False)
    (chunk,) = log.read(Span("p0", 2, 4))
    assert chunk.offsets is not None
    assert (chunk.start, chunk.offsets.tolist()) == (2, [2, 3])
    fill(topic, 1, lines(2))
    assert [(p.id, p.latest) for p in log.partitions({"p0": 5})] == [("p0", 5), ("p1", 2)]


def test_newlines_become_blanks_and_missing_values_empty_lines(kafka: KafkaCluster, fill: Fill) -> None:
    topic = kafka.topic()
    fill(topic, 0, [b"a\nb", None, b"", b"c\r\nd\n"])
    log = KafkaLog(kafka.brokers, topic)
    assert read_all(log, whole(log.partitions({})[0])) == b"a b\n\n\nc d \n"


def test_a_first_reader_can_start_at_the_latest_record(kafka: KafkaCluster, fill: Fill) -> None:
    topic = kafka.topic()
    fill(topic, 0, lines(10))
    log = KafkaLog(kafka.brokers, topic, start="latest")
    memory = log.start(None, {})
    fill(topic, 0, [b"after"])
    assert read_all(log, whole(log.partitions({})[0])) == b"after\n"
    again = KafkaLog(kafka.brokers, topic, start="latest")
    again.start(memory, {})
    assert again.partitions({})[0].earliest == 10


@pytest.mark.may_skip("a Kafka broker of one's own")
@pytest.mark.skipif(not REAL, reason="the mock does not look for times: needs PENSTOCK_TEST_KAFKA")
def test_a_first_reader_can_start_at_a_time(kafka: KafkaCluster) -> None:
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.brokers})
    for second in range(10):
        producer.produce(topic, str(second), partition=0, timestamp=1_700_000_000_000 + second * 1000)
    producer.flush(60)
    log = KafkaLog(kafka.brokers, topic, start="2023-11-14T22:13:27Z")
    log.start(None, {})
    assert read_all(log, whole(log.partitions({})[0])) == b"7\n8\n9\n"


def test_records_removed_by_retention_are_an_error(kafka: KafkaCluster, fill: Fill) -> None:
    """The offset is before the first one, or the topic ends before what was read."""
    topic = kafka.topic()
    fill(topic, 0, lines(10))
    log = KafkaLog(kafka.brokers, topic)
    with pytest.raises(ExternalError, match=r"LOG_TRUNCATED.*partition p0, offset 17"):
        log.partitions({"p0": 17})
    if REAL:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": kafka.brokers})
        for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
            future.result(30)
        with pytest.raises(
            ExternalError, match=r"LOG_SPAN_GONE.*partition p0, offsets 4 to 10.*still has is 6"
        ):
            log.partitions({"p0": 4})
        with pytest.raises(
            ExternalError, match=r"LOG_SPAN_GONE.*partition p0, offsets 4 to 10.*still has is 6"
        ):
            read_all(log, Span("p0", 4, 10))
    else:
        with pytest.raises(ExternalError, match=r"LOG_SPAN_GONE.*partition p0, offsets 40 to 50"):
            read_all(log, Span("p0", 40, 50))


@pytest.mark.slow
def test_unreachable_brokers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.logs.kafka._REQUEST_SECONDS", 1.0)
    with pytest.raises(ExternalError, match="LOG_UNREADABLE"):
        KafkaLog("127.0.0.1:1", "clicks").partitions({})
    with pytest.raises(UserError, match="BAD_OPTION"):
        KafkaLog("", "clicks")


def test_a_query_from_kafka_to_kafka(kafka: KafkaCluster, fill: Fill, state: Path) -> None:
    topic = kafka.topic(3)
    for partition in range(3):
        values: list[bytes | None] = [
            json.dumps({"at": f"2026-03-01T00:{n // 60:02}:{n % 60:02}Z", "page": f"/p{n % 4}"}).encode()
            for n in range(200)
        ]
        values[100] = b"broken"
        fill(topic, partition, values)
    rows_by_cut = []
    for cut_records in (1 << 40, 50):
        sink, out = ListSink(), kafka.topic()
        log = ps.kafka(kafka.brokers, topic, finished=True)
        events = ps.stream(
            "events", log, ps.json_lines({"at": ps.Datetime("us", "UTC"), "page": ps.String}), time="at"
        )
        app = ps.app("test", ps.output("out", events, sink, ps.to_kafka(kafka.brokers, out, key="page")))
        reports = run_inline(app, state / str(cut_records), epoch_units=cut_records)
        assert sum(report.bad for report in reports) == 3
        rows_by_cut.append(sorted(json.dumps(row, default=str) for row in sink.rows()))
        assert len(values_of(kafka.brokers, out)) == 3 * 199
    assert rows_by_cut[0] == rows_by_cut[1]


def test_a_key_that_is_no_column_is_refused(kafka: KafkaCluster) -> None:
    with pytest.raises(UserError, match="SINK_SCHEMA_MISMATCH"):
        KafkaTopic(kafka.brokers, kafka.topic(), key="page").open("job", {"n": pl.Int64()})


@pytest.mark.slow
def test_the_sink_fails_when_brokers_are_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.kafka_topic._SECONDS", 1.0)
    with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
        KafkaTopic("127.0.0.1:1", "out").open("job", {"n": pl.Int64()})

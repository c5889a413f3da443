"""External logs and sinks, and a coordination store, with an engine on Spark."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import penstock as ps
from penstock.coordination.address import open_store
from penstock.coordination.leadership import lead_unit, leader_lease_path
from penstock.coordination.lease import read_lease
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError
from penstock.settings import Settings
from penstock.testing.kafka_cluster import KafkaCluster
from penstock.testing.zookeeper_server import ZooKeeperServer
from tests.outside.topics import values_of
from tests.server.kit import until

EVENTS = [
    {"time": 1_767_225_600 + number // 20, "user": f"u{number % 7}", "n": number} for number in range(400)
]
WINDOW_SECONDS = 5


def expected_counts() -> Counter[tuple[int, str]]:
    """Return the counts of every window but the last, which stays open since a topic never ends."""
    last = max(one["time"] for one in EVENTS) // WINDOW_SECONDS
    windows = ((one["time"] // WINDOW_SECONDS, one["user"]) for one in EVENTS)
    return Counter(one for one in windows if one[0] < last)


def run_until_the_session_ends(
    app: ps.App, settings: Settings, spark: SparkSession, zookeeper: ZooKeeperServer
) -> int:
    """Run an engine until LEASE_LOST: ZooKeeper does not answer after its second epoch. Return its generation."""
    assert settings.coordination is not None
    with lead_unit(settings.coordination, "outside", above=lambda: 0, session_seconds=6.0) as lease:
        assert lease is not None

        def watch(report: EpochReport) -> None:
            assert report.epoch < 2, "an engine without a lease ran an epoch"
            if report.epoch == 1:
                os.kill(zookeeper.pid, signal.SIGSTOP)
                try:
                    until(lambda: not lease.is_held(), 60.0)
                finally:
                    os.kill(zookeeper.pid, signal.SIGCONT)

        with pytest.raises(ExternalError) as lost:
            Engine(app, settings, spark, fence=lease).run(watch)
        assert lost.value.condition == "LEASE_LOST"
        return lease.generation


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(300)
def test_events_from_kafka_and_redis_reach_postgres_kafka_and_redis_though_zookeeper_is_lost_once(
    spark: SparkSession, tmp_path: Path, kafka: KafkaCluster, redis_address: str, postgres_address: str
) -> None:
    topic, out, key = kafka.topic(), kafka.topic(), f"test:{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": kafka.brokers})
    lines = [json.dumps(one) for one in EVENTS]
    for line in lines[::2]:
        producer.produce(topic, line, partition=0)
    assert producer.flush(60) == 0
    table = f"t_{uuid.uuid4().hex[:12]}"
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper")
    zookeeper.start()
    try:
        with redis.Redis.from_url(redis_address) as server:
            for line in lines[1::2]:
                server.xadd(key, {"line": line})
            settings = Settings(
                state=tmp_path / "state",
                master="local[2]",
                most_epoch_units=40,
                drain=True,
                warm_up=False,
                coordination=f"zk://{zookeeper.hosts}/penstock",
                unit="outside",
                session_seconds=6.0,
            )

            def build() -> ps.App:
                return app_of(kafka, topic, out, redis_address, key, postgres_address, table)

            lost = run_until_the_session_ends(build(), settings, spark, zookeeper)
            with psycopg.connect(postgres_address) as database:
                found = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert found is not None
            assert found[0] < len(expected_counts()), "the first engine left something to do"
            Engine(build(), settings, spark).run()
            rows = [json.loads(fields[b"row"]) for _, fields in server.xrange(f"{key}:out")]
        assert (
            read_lease(
                open_store(f"zk://{zookeeper.hosts}/penstock"), leader_lease_path("outside")
            ).generation
            > lost
        )
    finally:
        zookeeper.stop()
    with psycopg.connect(postgres_address) as database:
        found = database.execute(
            f'SELECT extract(epoch FROM window_start)::bigint, "user", count FROM {table}'
        ).fetchall()
    expected = expected_counts()
    assert {(at // WINDOW_SECONDS, user): count for at, user, count in found} == expected
    assert len(found) == len(expected)
    for delivered in (rows, list(map(json.loads, values_of(kafka.brokers, out)))):
        assert Counter(row["user"] for row in delivered) == Counter(user for _, user in expected)
        assert sum(row["count"] for row in delivered) == expected.total()


def app_of(
    kafka: KafkaCluster, topic: str, out: str, redis_address: str, key: str, postgres: str, table: str
) -> ps.App:
    columns: dict[str, Any] = {"time": ps.Datetime("us", "UTC"), "user": ps.String(), "n": ps.Int64()}
    decoder = ps.json_lines(columns, times={"time": "s"})
    one = ps.stream("one", ps.kafka(kafka.brokers, topic), decoder, time="time", idle_after="1s")
    other = ps.stream(
        "other", ps.redis(redis_address, key, field="line", finished=True), decoder, time="time"
    )
    counts = one.union(other).key_by("user").window(f"{WINDOW_SECONDS}s").count()
    return ps.app(
        "outside",
        ps.output(
            "counts",
            counts,
            ps.postgres(postgres, table, make_table=True),
            ps.to_kafka(kafka.brokers, out),
            ps.to_redis(redis_address, f"{key}:out"),
        ),
    )

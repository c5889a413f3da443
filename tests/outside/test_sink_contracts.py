"""The sinks of external servers meet the sink contract, with real servers."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from penstock.errors import ExternalError
from penstock.sinks import HttpPush, KafkaTopic, Postgres, RedisStream, Sink
from penstock.testing.kafka_cluster import REAL, KafkaCluster
from penstock.testing.sink_contract import SinkContract, epoch_rows, size
from tests.outside.receiver import Receiver

pytestmark = pytest.mark.process

NOTHING = pl.DataFrame(schema={"epoch": pl.Int64})


def name_of(folder: Path) -> str:
    return "out_" + sha256(str(folder).encode()).hexdigest()[:16]


def frame_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None) if rows else NOTHING


@pytest.mark.usefixtures("redis_address")
class TestRedis(SinkContract):
    writes_files = False
    remembers = True
    pause_seconds = 0.1
    kills = 2

    @staticmethod
    def make(folder: Path) -> Sink:
        return RedisStream(os.environ["PENSTOCK_TEST_REDIS"], name_of(folder))

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        import redis

        assert isinstance(sink, RedisStream)
        with redis.Redis.from_url(os.environ["PENSTOCK_TEST_REDIS"]) as server:
            entries: Any = server.xrange(sink.key)
        return frame_of([json.loads(fields[b"row"]) for _, fields in entries])


@pytest.mark.usefixtures("postgres_address")
class TestPostgres(SinkContract):
    writes_files = False
    remembers = True
    pause_seconds = 0.1
    kills = 2

    @staticmethod
    def make(folder: Path) -> Sink:
        return Postgres(os.environ["PENSTOCK_TEST_POSTGRES"], name_of(folder), make_table=True)

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        import psycopg

        assert isinstance(sink, Postgres)
        with psycopg.connect(os.environ["PENSTOCK_TEST_POSTGRES"]) as connection:
            found = connection.execute("SELECT to_regclass(%s)", (sink.table,)).fetchone()
            if found is None or found[0] is None:
                return NOTHING
            cursor = connection.execute(f"SELECT * FROM {sink.table}")
            names = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall()
        if "place" in names:  # jsonb has no order of fields, and keeps times as text
            return pl.DataFrame(
                {
                    name: pl.Series(name, [row[at] for row in rows], strict=False)
                    for at, name in enumerate(names)
                }
            )
        return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None) if rows else NOTHING


@pytest.mark.usefixtures("receiver")
class TestHttpPush(SinkContract):
    writes_files = False
    pause_seconds = 0.1
    kills = 2

    receiver: ClassVar[Receiver]

    @pytest.fixture(autouse=True)
    def _receiver(self, receiver: Receiver) -> None:
        receiver.fails_at_times = True
        type(self).receiver = receiver

    @staticmethod
    def make(folder: Path) -> Sink:
        return HttpPush(f"{os.environ['PENSTOCK_TEST_RECEIVER']}/{name_of(folder)}")

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        return frame_of(TestHttpPush.receiver.rows("/" + sink.describe().rsplit("/", 1)[1]))

    def test_the_rows_of_a_lower_generation_are_refused(self, tmp_path: Path) -> None:
        """The receiver learns a generation with the rows, so the old engine's next rows are refused."""
        old, new = self._opened(tmp_path), self._opened(tmp_path)
        old.take_over(3)
        old.write(0, epoch_rows(0))
        new.take_over(5)
        new.write(1, epoch_rows(1))
        with pytest.raises(ExternalError, match=r"FENCED.*generation 5"):
            old.write(2, epoch_rows(2))
        assert self._counted(new) == {epoch: size(epoch) for epoch in range(2)}


@pytest.mark.usefixtures("kafka")
class TestKafka(SinkContract):
    writes_files = False
    remembers = True
    pause_seconds = 0.1
    kills = 2

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: KafkaCluster, tmp_path: Path) -> None:
        kafka.topic(1, name_of(tmp_path))  # in one partition there is an order

    @staticmethod
    def make(folder: Path) -> Sink:
        return KafkaTopic(os.environ["PENSTOCK_TEST_BROKERS"], name_of(folder))

    @staticmethod
    def read(sink: Sink) -> pl.DataFrame:
        from tests.outside.topics import values_of

        assert isinstance(sink, KafkaTopic)
        return frame_of(
            [json.loads(value) for value in values_of(os.environ["PENSTOCK_TEST_BROKERS"], sink.topic)]
        )

    @pytest.mark.kill
    @pytest.mark.may_skip("a Kafka broker of one's own")
    @pytest.mark.skipif(
        not REAL, reason="the mock shows records of open transactions: needs PENSTOCK_TEST_KAFKA"
    )
    def test_a_writer_killed_at_any_moment_leaves_whole_epochs(self, tmp_path: Path) -> None:
        super().test_a_writer_killed_at_any_moment_leaves_whole_epochs(tmp_path)

    @pytest.mark.may_skip("a Kafka broker of one's own")
    @pytest.mark.skipif(not REAL, reason="the mock shuts no producer out: needs PENSTOCK_TEST_KAFKA")
    def test_the_rows_of_a_lower_generation_are_refused(self, tmp_path: Path) -> None:
        super().test_the_rows_of_a_lower_generation_are_refused(tmp_path)

    def test_a_lower_generation_that_connects_again_is_refused(self, tmp_path: Path) -> None:
        old, new = self._opened(tmp_path), self._opened(tmp_path)
        old.take_over(3)
        new.take_over(5)
        for attempt in (lambda: old.take_over(4), lambda: self._opened(tmp_path).take_over(4)):
            with pytest.raises(ExternalError, match=r"FENCED.*generation 5"):
                attempt()
        assert new.write(0, epoch_rows(0))
        again = self._opened(tmp_path)
        again.take_over(5)
        assert not again.write(0, epoch_rows(0))

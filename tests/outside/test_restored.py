"""A restored copy of a state directory writes nothing over a sink that is ahead, on real servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.sinks import KafkaTopic, Postgres, RedisStream
from penstock.sinks.contract import Sink
from penstock.testing.kafka_cluster import KafkaCluster
from tests.delivery.restored import (
    RestoredCase,
    check_a_copy_of_what_the_sink_has_continues,
    check_refused_and_skipped,
    check_refused_and_written_again,
)
from tests.outside import test_sink_contracts as contracts

pytestmark = pytest.mark.process
CHECKS = [
    check_refused_and_skipped,
    check_refused_and_written_again,
    check_a_copy_of_what_the_sink_has_continues,
]


def case_of(folder: Path, kind: Any, make: Any) -> RestoredCase:
    def read() -> list[int]:
        rows = kind.read(make())
        return sorted(rows["n"].to_list()) if "n" in rows.columns else []

    return RestoredCase(folder, make, read)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.usefixtures("postgres_address")
def test_postgres(check: Any, tmp_path: Path) -> None:
    def make() -> Sink:
        address = os.environ["PENSTOCK_TEST_POSTGRES"]
        return Postgres(address, contracts.name_of(tmp_path), make_table=True)

    check(case_of(tmp_path, contracts.TestPostgres, make))


@pytest.mark.usefixtures("postgres_address")
def test_rows_by_key_are_replaced_by_what_is_written_again(tmp_path: Path) -> None:
    def make() -> Sink:
        address = os.environ["PENSTOCK_TEST_POSTGRES"]
        return Postgres(address, contracts.name_of(tmp_path), key="n", make_table=True)

    case = case_of(tmp_path, contracts.TestPostgres, make)
    case.restore_old_copy()
    case.decide(case.refuse(), "write-again")
    case.run(2)
    assert case.read() == list(range(case.numbers.count))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.usefixtures("redis_address")
def test_redis(check: Any, tmp_path: Path) -> None:
    def make() -> Sink:
        return RedisStream(os.environ["PENSTOCK_TEST_REDIS"], contracts.name_of(tmp_path))

    check(case_of(tmp_path, contracts.TestRedis, make))


@pytest.mark.parametrize("check", CHECKS)
def test_kafka(check: Any, kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka.topic(1, contracts.name_of(tmp_path))

    def make() -> Sink:
        return KafkaTopic(kafka.brokers, contracts.name_of(tmp_path))

    check(case_of(tmp_path, contracts.TestKafka, make))

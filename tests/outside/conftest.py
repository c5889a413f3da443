"""Real servers for the tests of this folder, where they are installed. Children find them by the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.testing import kafka_cluster, postgres_server, redis_server
from tests.outside.receiver import Receiver


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := redis_server.why_not():
        pytest.skip(reason)
    server = redis_server.RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    os.environ["PENSTOCK_TEST_REDIS"] = server.address
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    server = postgres_server.PostgresServer()
    try:
        server.start()
        os.environ["PENSTOCK_TEST_POSTGRES"] = server.address
        yield server.address
    finally:
        server.remove()


@pytest.fixture(scope="session")
def kafka() -> kafka_cluster.KafkaCluster:
    if reason := kafka_cluster.why_not():
        pytest.skip(reason)
    cluster = kafka_cluster.KafkaCluster()
    os.environ["PENSTOCK_TEST_BROKERS"] = cluster.brokers
    return cluster


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver_:
        os.environ["PENSTOCK_TEST_RECEIVER"] = receiver_.url
        yield receiver_

"""Sinks: `jsonl`, `parquet`, `sqlite`, `console`, `postgres`, `to_kafka`, `to_redis` and `http_push` make them."""

from penstock.sinks.console import Console
from penstock.sinks.console import Console as console
from penstock.sinks.contract import Sink
from penstock.sinks.files import JsonLines, Parquet
from penstock.sinks.files import JsonLines as jsonl
from penstock.sinks.files import Parquet as parquet
from penstock.sinks.http_push import HttpPush
from penstock.sinks.http_push import HttpPush as http_push
from penstock.sinks.kafka_topic import KafkaTopic
from penstock.sinks.kafka_topic import KafkaTopic as to_kafka
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres import Postgres as postgres
from penstock.sinks.redis_stream import RedisStream
from penstock.sinks.redis_stream import RedisStream as to_redis
from penstock.sinks.sqlite import Sqlite
from penstock.sinks.sqlite import Sqlite as sqlite

__all__ = [
    "Sink",
    "JsonLines",
    "Parquet",
    "Sqlite",
    "Console",
    "Postgres",
    "KafkaTopic",
    "RedisStream",
    "HttpPush",
    "jsonl",
    "parquet",
    "sqlite",
    "console",
    "postgres",
    "to_kafka",
    "to_redis",
    "http_push",
]

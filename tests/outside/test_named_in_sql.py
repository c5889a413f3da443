"""Servers named in SQL: the arguments of FROM and INTO, and which servers may be named over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.server.statement_guard import AllowedServers, StatementGuard
from penstock.sinks import HttpPush, KafkaTopic, Postgres, RedisStream
from penstock.sql.connectors import build_sinks, build_stream
from penstock.sql.parse import parse
from penstock.sql.statements import Call, CreateJob, CreateStream

STREAM = "CREATE STREAM s FROM {} FORMAT json(ts TIMESTAMP) EVENT TIME ts"
JOB = "CREATE JOB j AS SELECT ts FROM s INTO {}"
OPEN = [
    "cache:6379",
    "db.example:5432",
    "hooks.example:443",
    "127.0.0.1:8000",
    "b1:9092",
    "b2:9093",
    "[::1]:6379",
]


@pytest.mark.parametrize(
    ("log", "description"),
    [
        ("kafka('b1:9092,b2:9093', 'clicks')", "kafka clicks"),
        ("kafka('b1', 'clicks', start => 'latest', finished => TRUE)", "kafka clicks"),
        ("kafka(brokers => 'b1', topic => 'clicks')", "kafka clicks"),
        ("redis('redis://cache:6379/0', 'clicks', field => 'line')", "redis clicks"),
        ("redis('redis://cache', 'clicks', start => '2026-03-01T00:00:00Z')", "redis clicks"),
    ],
)
def test_streams_read_from_servers(log: str, description: str) -> None:
    (statement,) = parse(STREAM.format(log))
    assert isinstance(statement, CreateStream)
    stream = build_stream(statement)
    assert description in stream.node.describe()


def test_sinks_write_to_servers() -> None:
    calls = [
        "kafka('b1:9092', 'out', key => 'page')",
        "redis('redis://cache:6379/0', 'out', most_entries => 1000)",
        "postgres('postgresql://db.example/shop', 'shop.answers', key => 'page, day', make_table => TRUE)",
        "http_push('https://hooks.example/x', patience_seconds => 5)",
    ]
    (statement,) = parse(JOB.format(", ".join(calls)))
    assert isinstance(statement, CreateJob)
    topic, stream, table, push = build_sinks(statement.sinks)
    assert isinstance(topic, KafkaTopic)
    assert topic.key == "page"
    assert isinstance(stream, RedisStream)
    assert stream.most_entries == 1000
    assert isinstance(table, Postgres)
    assert (table.key, table.make_table) == (("page", "day"), True)
    assert isinstance(push, HttpPush)


@pytest.mark.parametrize(
    ("sink", "condition"),
    [
        ("kafka('b1:9092')", "BAD_SQL"),
        ("redis('redis://cache', 'k', 'more')", "BAD_ARGUMENT|BAD_SQL"),
        ("kafka('b1:9092', 'out', settings => 'x')", "UNKNOWN_OPTION"),
        ("http_push('https://hooks.example/x', headers => 'x')", "UNKNOWN_OPTION"),
        ("http_push('nowhere')", "BAD_OPTION"),
        ("postgres('postgresql://db.example/shop', 'a.b.c')", "BAD_TABLE_NAME"),
    ],
)
def test_invalid_arguments_of_sinks_are_refused(sink: str, condition: str) -> None:
    (statement,) = parse(JOB.format(sink))
    assert isinstance(statement, CreateJob)
    with pytest.raises(UserError, match=condition):
        build_sinks(statement.sinks)


def guard(tmp_path: Path) -> StatementGuard:
    return StatementGuard((), tmp_path / "state", AllowedServers(OPEN))


@pytest.mark.parametrize(
    "text",
    [
        STREAM.format("kafka('b1,b2:9093', 'clicks')"),
        STREAM.format("redis('redis://cache/0', 'clicks')"),
        STREAM.format("redis('redis://me:pw@CACHE:6379', 'clicks')"),
        STREAM.format("redis('rediss://[::1]', 'clicks')"),
        STREAM.format("redis(address => 'redis://cache', keys => 'clicks')"),
        JOB.format("postgres('postgresql://me@db.example/shop', 't')"),
        JOB.format("http_push('https://hooks.example/x?a=b')"),
        JOB.format("http_push('http://127.0.0.1:8000/x')"),
    ],
)
def test_servers_that_the_operator_allows_can_be_named(text: str, tmp_path: Path) -> None:
    guard(tmp_path).check(parse(text))
    with pytest.raises(UserError, match="ADDRESS_NOT_ALLOWED"):
        StatementGuard((), tmp_path / "state").check(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        STREAM.format("kafka('b1:9092,evil:9092', 'clicks')"),
        STREAM.format("kafka('b1:9093', 'clicks')"),
        STREAM.format("kafka('b1:9092', brokers => 'evil:9092')"),
        STREAM.format("kafka('SASL_SSL://b1:9092', 'clicks')"),
        STREAM.format("redis('redis://other:6379', 'clicks')"),
        STREAM.format("redis('unix:///run/redis.sock', 'clicks')"),
        STREAM.format("redis('redis://cache:6379?host=evil', 'clicks')"),
        STREAM.format("redis('redis://evil@cache:6379@evil', 'clicks')"),
        STREAM.format("redis('redis://cache:6379\\@evil', 'clicks')"),
        STREAM.format("redis('cache:6379', 'clicks')"),
        JOB.format("postgres('postgresql://db.example,evil/shop', 't')"),
        JOB.format("postgres('postgresql://db.example/shop?host=evil', 't')"),
        JOB.format("postgres('postgresql://db.example/shop?sslkey=/etc/key', 't')"),
        JOB.format("postgres('host=db.example', 't')"),
        JOB.format("postgres('service=other', 't')"),
        JOB.format("postgres('postgresql://%2Frun%2Fpostgresql/shop', 't')"),
        JOB.format("postgres('postgresql:///shop', 't')"),
        JOB.format("http_push('http://169.254.169.254/latest')"),
        JOB.format("http_push('https://hooks.example:8443/x')"),
        JOB.format("http_push('https://hooks.example#@evil/')"),
    ],
)
def test_other_servers_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ADDRESS_NOT_ALLOWED"):
        guard(tmp_path).check(parse(text))


@pytest.mark.parametrize(
    "url", [r"https://evil\@hooks.example/", "https://hooks.example\t/", "https://hooks.exämple/", None, 7]
)
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(UserError, match="ADDRESS_NOT_ALLOWED"):
        AllowedServers(OPEN).check(Call("http_push", (url,)))


def test_no_file_is_named_over_http(tmp_path: Path) -> None:
    text = JOB.format("http_push('https://hooks.example/x', token_file => '/etc/passwd')")
    with pytest.raises(UserError, match="NOT_OVER_HTTP"):
        guard(tmp_path).check(parse(text))


@pytest.mark.parametrize("address", ["cache", "redis://cache:6379", "cache:x", "a b:1", ""])
def test_an_allowed_server_needs_host_and_port(address: str) -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        AllowedServers([address])

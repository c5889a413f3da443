"""The log of Redis streams, with a real server: the contract, ids, trimming, where reading starts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import redis as library

import penstock as ps
from penstock.catalogue.program import Program
from penstock.errors import ExternalError, UserError
from penstock.logs import Log, RedisLog, Span
from penstock.logs.redis_streams import id_of, offset_of
from penstock.sinks import RedisStream
from penstock.testing import ListSink, redis_server, run_inline
from penstock.testing.inline import InlineEngine
from penstock.testing.log_contract import LogContract, read_all


@pytest.fixture
def server(redis_address: str) -> Iterator[library.Redis]:
    with library.Redis.from_url(redis_address) as found:
        yield found


@pytest.fixture
def key() -> str:
    return f"test:{uuid.uuid4().hex[:12]}"


def add_entries(
    server: library.Redis, key: str, count: int, *, ms: Any = lambda n: 1_700_000_000_000 + n
) -> None:
    pipeline = server.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(
            key, {"line": f"line {number} {'x' * (number * 7 % 90)}"}, id=f"{ms(number)}-{number % 3 + 1}"
        )
    pipeline.execute()


class TestLines(LogContract):
    @pytest.fixture
    def log(self, server: library.Redis, key: str, redis_address: str) -> Log:
        add_entries(server, key, 600)
        add_entries(
            server, key + "b", 5_000, ms=lambda n: 1_700_000_000_000 + n // 3 + (n > 2_000) * 86_400_000
        )
        return RedisLog(redis_address, [key, key + "b"], field="line")


class TestTrimmed(LogContract):
    @pytest.fixture
    def log(self, server: library.Redis, key: str, redis_address: str) -> Log:
        add_entries(server, key, 900)
        server.xtrim(key, maxlen=600, approximate=False)
        return RedisLog(redis_address, key, finished=True)

    #: requests offsets that have been trimmed, which is an error
    test_latest_never_goes_back = None  # type: ignore[assignment]


@pytest.mark.parametrize("id", ["0-1", "5-0", "1700000000000-7", "8796093022207-1048575"])
def test_an_id_is_an_offset(id: str) -> None:
    assert id_of(offset_of(id)) == id


def test_ids_keep_their_order() -> None:
    ids = ["1-0", "1-5", "2-0", "1700000000000-0", "1700000000000-999999", "1700000000001-0"]
    assert sorted(ids, key=offset_of) == ids


def test_an_id_that_does_not_fit_is_an_error(server: library.Redis, key: str, redis_address: str) -> None:
    server.xadd(key, {"line": "x"}, id="18446744073709551614-0")
    with pytest.raises(ExternalError, match="LOG_UNREADABLE"):
        RedisLog(redis_address, key).partitions({})


def test_all_fields_are_a_json_object(server: library.Redis, key: str, redis_address: str) -> None:
    server.xadd(key, {"page": '/a\n"ü', "n": 3}, id="1-1")
    log = RedisLog(redis_address, key)
    (partition,) = log.partitions({})
    data = read_all(log, Span(key, partition.earliest, partition.latest))
    assert json.loads(data) == {"page": '/a\n"ü', "n": "3"}


def test_a_newline_in_a_value_is_a_blank(server: library.Redis, key: str, redis_address: str) -> None:
    server.xadd(key, {"line": "a\nb\r\nc"}, id="1-1")
    server.xadd(key, {"other": "no line here"}, id="1-2")
    log = RedisLog(redis_address, key, field="line")
    (partition,) = log.partitions({})
    assert read_all(log, Span(key, partition.earliest, partition.latest)) == b"a b c\n\n"


def test_entries_trimmed_before_they_were_read_are_an_error(
    server: library.Redis, key: str, redis_address: str
) -> None:
    add_entries(server, key, 300)
    log = RedisLog(redis_address, key, field="line")
    (partition,) = log.partitions({})
    middle = log.cut(key, partition.earliest, 100)
    server.xtrim(key, maxlen=50, approximate=False)
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE") as caught:
        log.partitions({key: middle})
    assert key in str(caught.value)
    assert id_of(middle) in str(caught.value)
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(log, Span(key, middle, partition.latest))
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(log, Span(key, partition.earliest, partition.latest))
    server.delete(key)
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(log, Span(key, middle, partition.latest))


def test_entries_may_be_trimmed_after_they_were_read(
    server: library.Redis, key: str, redis_address: str
) -> None:
    add_entries(server, key, 300)
    log = RedisLog(redis_address, key, field="line")
    (partition,) = log.partitions({})
    server.xtrim(key, maxlen=0, approximate=False)
    server.xadd(key, {"line": "new"})
    (now,) = log.partitions({key: partition.latest})
    assert read_all(log, Span(key, partition.latest, now.latest)) == b"new\n"


def test_entries_in_bursts_are_cut_near_the_requested_size(
    server: library.Redis, key: str, redis_address: str
) -> None:
    """One entry a second, then a hundred a millisecond."""
    pipeline = server.pipeline(transaction=False)
    for n in range(2_000):
        pipeline.xadd(key, {"line": str(n)}, id=f"{1_700_000_000_000 + n * 1000}-0")
    for n in range(10_000):
        pipeline.xadd(key, {"line": str(n)}, id=f"{1_700_010_000_000 + n // 100}-{n % 100}")
    pipeline.execute()
    log = RedisLog(redis_address, key, field="line")
    (partition,) = log.partitions({})
    start, sizes = partition.earliest, []
    while start < partition.latest:
        end = log.cut(key, start, 1_500)
        sizes.append(read_all(log, Span(key, start, end)).count(b"\n"))
        assert end == partition.latest or log.units(key, start, end) == 1_500
        start = end
    assert sum(sizes) == 12_000
    assert sizes[0] == 1_500, "entries at even distances are cut exactly"
    # where an entry's neighbours are nearer than its millisecond is long, a step ends with the millisecond
    assert sizes[1:-1] == [500 + 200, *[500] * 19], "a third of what was requested in a burst, and never more"


def test_a_first_reader_can_start_at_the_latest_entry_or_at_a_time(
    server: library.Redis, key: str, redis_address: str
) -> None:
    add_entries(server, key, 100)
    late = RedisLog(redis_address, key, start="latest", field="line")
    memory = late.start(None, {})
    server.xadd(key, {"line": "after"}, id="1700000001000-0")
    (partition,) = late.partitions({})
    assert read_all(late, Span(key, partition.earliest, partition.latest)) == b"after\n"
    again = RedisLog(redis_address, key, start="latest", field="line")
    server.xadd(key, {"line": "more"}, id="1700000002000-0")
    again.start(memory, {})
    assert again.partitions({})[0].earliest == partition.earliest
    timed = RedisLog(redis_address, key, start=datetime.fromtimestamp(1_700_000_000.098, UTC), field="line")
    timed.start(None, {})
    (partition,) = timed.partitions({})
    lines = read_all(timed, Span(key, partition.earliest, partition.latest)).decode().splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["line", "98"], ["line", "99"]]


def test_an_unreachable_server_is_an_error() -> None:
    log = RedisLog("redis://127.0.0.1:1/0", "clicks")
    with pytest.raises(ExternalError, match="LOG_UNREADABLE"):
        log.partitions({})
    with pytest.raises(UserError, match="BAD_OPTION"):
        RedisLog("redis://127.0.0.1:1/0", [])
    with pytest.raises(UserError, match="BAD_OPTION"):
        RedisLog("redis://127.0.0.1:1/0", "clicks", start="yesterday")


def test_a_query_from_redis_to_redis(
    server: library.Redis, key: str, redis_address: str, state: Path
) -> None:
    """Undecodable entries become dead letters; results do not depend on how epochs were cut."""
    for number in range(500):
        text = json.dumps(
            {"at": f"2026-03-01T00:{number // 60:02}:{number % 60:02}Z", "page": f"/p{number % 3}"}
        )
        server.xadd(key, {"event": text if number != 250 else "broken"}, id=f"{1000 + number * number}-0")
    rows_by_cut: list[list[dict[str, Any]]] = []
    for units in (1 << 40, 37):
        sink, out = ListSink(), f"{key}:{units}"
        log = ps.redis(redis_address, key, field="event", finished=True)
        events = ps.stream(
            "events", log, ps.json_lines({"at": ps.Datetime("us", "UTC"), "page": ps.String}), time="at"
        )
        app = ps.app("test", ps.output("out", events, sink, ps.to_redis(redis_address, out)))
        reports = run_inline(app, state / str(units), epoch_units=units)
        assert sum(report.bad for report in reports) == 1
        assert units > 100 or len(reports) > 5
        rows_by_cut.append(sink.rows())
        entries: Any = server.xrange(out)
        assert len(entries) == 499
    assert rows_by_cut[0] == rows_by_cut[1]


def test_a_job_in_sql_from_redis_to_redis(
    server: library.Redis, key: str, redis_address: str, state: Path
) -> None:
    for number in range(120):
        text = json.dumps(
            {"at": f"2026-03-01T00:{number // 60:02}:{number % 60:02}Z", "page": f"/p{number % 3}"}
        )
        server.xadd(key, {"event": text}, id=f"{1000 + number}-0")
    sql = f"""
        CREATE STREAM events FROM redis('{redis_address}', '{key}', field => 'event', finished => TRUE)
            FORMAT json(at TIMESTAMP, page STRING) EVENT TIME at;
        CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM events GROUP BY page WINDOWING 1 MINUTE
            INTO redis('{redis_address}', '{key}:out');
    """
    engine = InlineEngine(Program("test", state, begin=sql), state, epoch_units=25)
    try:
        assert len(list(engine.steps())) > 3
    finally:
        engine.close()
    entries: Any = server.xrange(f"{key}:out")
    rows = [json.loads(fields[b"row"]) for _, fields in entries]
    assert sorted((row["page"], row["n"]) for row in rows) == [
        (page, 20) for page in ("/p0", "/p1", "/p2") for _ in range(2)
    ]


@pytest.mark.process
def test_a_killed_server_keeps_epochs_whole(tmp_path: Path) -> None:
    if reason := redis_server.why_not():
        pytest.skip(reason)
    server = redis_server.RedisServer(tmp_path / "redis")
    server.start()
    try:
        sink = RedisStream(server.address, "out")
        sink.open("job", {"n": pl.Int64()})
        assert sink.write(0, pl.DataFrame({"n": [1, 2]}))
        server.stop()
        with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
            sink.write(1, pl.DataFrame({"n": [3]}))
        server.start()
        assert not sink.write(0, pl.DataFrame({"n": [1, 2]}))
        assert sink.write(1, pl.DataFrame({"n": [3]}))
        with library.Redis.from_url(server.address) as client:
            assert client.xlen("out") == 3
    finally:
        server.stop()


def test_a_key_with_something_else_is_refused(server: library.Redis, key: str, redis_address: str) -> None:
    server.set(key, "text")
    with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
        RedisStream(redis_address, key).open("job", {"n": pl.Int64()})


def test_a_stream_is_trimmed_to_about_its_most_entries(
    server: library.Redis, key: str, redis_address: str
) -> None:
    sink = RedisStream(redis_address, key, most_entries=100)
    sink.open("job", {"n": pl.Int64()})
    for epoch in range(10):
        sink.write(epoch, pl.DataFrame({"n": range(100)}))
    assert 100 <= server.xlen(key) < 400

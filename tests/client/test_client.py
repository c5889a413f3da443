"""The client: its calls, typed replies, and the service's errors, which it raises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from penstock.client import Client, connect
from penstock.errors import ExternalError, UserError
from tests.server import kit

TOKEN = "a-token-of-24-characters"


@pytest.fixture
def site(state: Path) -> Iterator[kit.Site]:
    with kit.site(state, events=100, token=TOKEN) as running:
        yield running


@pytest.fixture
def client(site: kit.Site) -> Iterator[Client]:
    with connect(site.url, TOKEN) as connected:
        yield connected


def test_the_client_reads_status_streams_and_jobs(client: Client) -> None:
    assert client.status().events == 100
    assert [stream.name for stream in client.streams()] == ["clicks"]
    (job,) = client.jobs()
    assert (job.name, job.life) == ("pages", "running")
    assert [column.name for column in client.job("pages").columns] == ["page", "n"]
    assert client.dead_letters("clicks") == client.late_events("clicks") == []


def test_the_client_reads_the_results_of_jobs(client: Client, site: kit.Site) -> None:
    rows = client.ask("pages")
    assert rows.schema == {"page": pl.String, "n": pl.Int64}
    result = client.answer("pages")
    assert result is not None
    assert (result.epoch, len(result)) == (0, rows.height)
    assert result.rows.equals(rows)
    assert result.dicts() == rows.to_dicts()
    assert client.message("pages", {"page": "/a"})[0]["page"] == "/a"
    client.create("new", "SELECT page FROM clicks WHERE status = 999")
    assert client.answer("new") is None
    assert client.ask("new").is_empty()
    assert [result.epoch for result in client.results("pages")] == [0]


def test_the_client_sends_commands(client: Client, site: kit.Site) -> None:
    assert (
        client.create("few", "SELECT page FROM clicks WHERE status = $s", parameters={"s": 404}).command == 2
    )
    assert client.alter("few", parameters={"s": 200}).state == "kept"
    assert client.alter("few", where="status = 500").state == "kept"
    assert client.alter("few", "SELECT user FROM clicks").state == "kept"
    for call in (client.pause, client.resume, client.flush, client.empty):
        assert call("pages").name == "pages"
    assert client.drop("few").says == "dropped job few"
    stream = {
        "name": "made",
        "log": {"kind": "generated", "options": {"rate": 5}},
        "format": {"kind": "combined_log"},
        "time": "time",
    }
    assert client.create_stream(stream).name == "made"
    assert client.drop_stream("made").says == "dropped stream made"
    paused, shown = client.sql("PAUSE JOB pages; SHOW JOBS")
    assert paused.command is not None
    assert shown.rows[0]["life"] == "paused"


def test_events_are_pushed_once_in_several_requests(
    client: Client, site: kit.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.connection._PUSH_BYTES", 500)
    later = kit.lines(150)[100:]
    assert client.push("clicks", later) == 50
    assert (
        client.push(
            "clicks", [{"ts": "2026-03-01T13:00:00Z", "page": "/z", "user": "u", "bytes": 1, "status": 200}]
        )
        == 1
    )
    assert client.push("clicks", []) == 0
    site.running.steps()
    assert client.status().events == 151
    with pytest.raises(UserError, match="BAD_EVENT"):
        client.push("clicks", ["two\nlines"])


def test_the_client_raises_the_errors_of_the_service(client: Client) -> None:
    with pytest.raises(UserError) as raised:
        client.create("x", "SELECT page\nFROM clicks WHERE nope = 1")
    error = raised.value
    assert (error.condition, error.where) == ("UNKNOWN_COLUMN", "line 2, column 19")
    assert error.hint is not None
    for call in (client.ask, client.answer, client.job, client.pause, client.drop):
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            call("no such job")
    with pytest.raises(UserError, match="UNKNOWN_JOB"):
        next(iter(client.subscribe("nobody")))
    with pytest.raises(UserError, match="BAD_CHANGE"):
        client.alter("pages")


@pytest.mark.slow
def test_a_wrong_token_and_an_unreachable_service_raise(site: kit.Site) -> None:
    with connect(site.url, "wrong") as stranger, pytest.raises(UserError, match="NOT_AUTHORISED"):
        stranger.jobs()
    with connect("http://127.0.0.1:9", timeout_seconds=2) as nobody:
        with pytest.raises(ExternalError, match="SERVICE_UNREACHABLE"):
            nobody.jobs()
        with pytest.raises(ExternalError, match="SERVICE_UNREACHABLE"):
            next(iter(nobody.subscribe("x", patience_seconds=0.1)))
    with pytest.raises(UserError, match="BAD_URL"):
        connect("localhost:8080")


def test_the_token_is_read_from_the_environment(site: kit.Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
    with connect(site.url) as client:
        assert client.jobs()


@pytest.mark.process
def test_importing_the_client_imports_neither_spark_nor_the_server() -> None:
    code = (
        "import sys, penstock.client; print({'pyspark', 'py4j', 'fastapi', 'uvicorn'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_former_name_of_a_result_warns() -> None:
    import penstock.client

    with pytest.warns(DeprecationWarning, match="Result"):
        assert penstock.client.Told is penstock.client.Result
    with pytest.raises(AttributeError):
        _ = penstock.client.Nothing

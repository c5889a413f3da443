"""A client that disconnects before the response is no error; and logs are JSON lines of one form."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import Message, Receive, Scope, Send

import penstock as ps
from penstock.catalogue.program import Program
from penstock.engine.gauges import Gauges
from penstock.server.epoch_history import status_values
from penstock.server.limits import Limits
from penstock.server.middleware import Gate
from penstock.server.structured_log import JsonLines, log_as_json
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from tests.catalogue import kit as jobs_kit
from tests.server import kit


def send_request(failure: Exception, *, leaves: bool) -> tuple[Gate, list[Message]]:
    """Send a request that fails in the application, from a client that disconnects or stays."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            raise failure
        except Exception:  # as Starlette does: it responds and raises the error again
            await send({"type": "http.response.start", "status": 500, "headers": []})
            raise

    async def receive() -> Message:
        return {"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    gate = Gate(app, Limits(), None)
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/ui/x.js",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(gate(scope, receive, send))
    return gate, sent


def test_a_client_that_disconnects_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.server")
    gate, sent = send_request(RuntimeError("No response returned."), leaves=True)
    assert (dict(gate.responses), sent, caplog.records) == ({}, [], [])


@pytest.mark.parametrize(("text", "leaves"), [("No response returned.", False), ("a defect", True)])
def test_a_defect_is_reported_even_if_the_client_disconnects(text: str, leaves: bool) -> None:
    with pytest.raises(RuntimeError, match=text):
        send_request(RuntimeError(text), leaves=leaves)


def test_an_incomplete_body_is_no_defect(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state") as site:
        at = urlsplit(site.url)
        with socket.create_connection((at.hostname, at.port)) as line:
            head = f"POST /streams/clicks/events HTTP/1.1\r\nHost: {at.netloc}\r\n"
            line.sendall(
                f"{head}Content-Type: application/x-ndjson\r\nContent-Length: 900\r\n\r\nhalf".encode()
            )

        def find_log_lines() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = site.get("/logs")
            return found if any(line["facts"].get("status") == 499 for line in found) else []

        lines = kit.until(find_log_lines)
        assert {line["level"] for line in lines} == {"info"}
        assert site.get("/health")["status"] == "ok"


def test_log_lines_have_their_own_time_also_those_of_the_pages() -> None:
    record = logging.LogRecord("penstock", logging.INFO, "", 0, "came back", None, None)
    record.facts = {"at": 1794825063.593, "epochs": 1}
    line = json.loads(JsonLines().format(record))
    assert line["at"].endswith("+00:00")
    assert line["epochs"] == 1
    loggers = {name: logging.getLogger(name).__dict__.copy() for name in ("penstock", "uvicorn", "nicegui")}
    before = {name: list(logging.getLogger(name).handlers) for name in loggers}
    written = io.StringIO()
    try:
        log_as_json(written)
        logging.getLogger("nicegui").warning("/ui/dead not found")
    finally:
        for name, facts in loggers.items():
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = before[name], facts["propagate"]
            logger.setLevel(facts["level"])
    assert json.loads(written.getvalue())["event"] == "/ui/dead not found"


def test_every_stream_has_its_watermark(tmp_path: Path) -> None:
    found = jobs_kit.events(200)
    line = [json.dumps(found[0])]
    old = ps.stream(
        "old",
        ListLog({"p0": line}, finished=False),
        ps.json_lines({"ts": ps.Datetime("us", "UTC")}),
        time="ts",
    )
    live = jobs_kit.of_log(ListLog({"p0": [json.dumps(event) for event in found]}, finished=False))
    sql = "CREATE JOB a AS SELECT page FROM clicks; CREATE JOB b AS SELECT ts FROM old"
    jobs, gauges = Program("two", tmp_path, streams={"clicks": live, "old": old}, begin=sql), Gauges()
    engine = InlineEngine(jobs, tmp_path)
    try:
        report = engine.step()
        assert report is not None
        gauges.add(report)
    finally:
        engine.close()
    values = status_values(gauges)
    assert values["watermark"] == values["watermarks"]["old"] == min(values["watermarks"].values())
    assert values["watermarks"]["clicks"] > values["watermarks"]["old"]


@pytest.mark.process
def test_a_service_logs_that_it_listens_once_it_owns_the_state(tmp_path: Path) -> None:
    serve = ["serve", "--empty", "--state", "state", "--no-ui", "--listen", "127.0.0.1:0"]
    other = InlineEngine(Program("service", tmp_path / "state"), tmp_path / "state")
    try:
        completed = subprocess.run(
            [sys.executable, "-c", "from penstock.cli.commands import main; main()", *serve],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        other.close()
    assert completed.returncode != 0
    assert "STATE_IN_USE" in completed.stderr
    assert "listening" not in completed.stderr

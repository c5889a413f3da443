"""Events over HTTP into a segment log: on disk before the response, and once, also through kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.client import connect
from penstock.errors import ExternalError, UserError
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.store import Store
from penstock.server.stream_writers import MAX_SEQUENCE, SegmentWriters
from penstock.testing.log_contract import read_all, whole
from penstock.testing.serving import serving
from tests.server.kit import LINES, until

pytestmark = pytest.mark.process

COLUMNS = {"at": ps.Datetime("us", "UTC"), "n": ps.Int64()}
COUNT = "CREATE JOB seen AS SELECT n FROM clicks"


def lines_of(directory: Path) -> list[bytes]:
    log = SegmentLog(directory)
    return [line for one in log.partitions({}) for line in read_all(log, whole(one)).splitlines()]


def event(n: int) -> dict[str, Any]:
    return {"at": f"2026-03-01T12:{n // 60 % 60:02}:{n % 60:02}Z", "n": n}


@contextmanager
def service(folder: Path, port: int = 0) -> Iterator[Any]:
    clicks = ps.stream(
        "clicks", ps.segments(folder / "log" / "clicks"), ps.json_lines(COLUMNS), time="at", lateness="1h"
    )
    (folder / "log").mkdir(exist_ok=True)
    jobs = Program("pushed", folder / "state", streams={"clicks": clicks}, begin=COUNT)
    with serving(jobs, folder / "state", port=port) as running:
        yield running


def test_pushed_events_are_on_disk_and_reach_the_jobs(tmp_path: Path) -> None:
    with service(tmp_path) as running, connect(running.url) as client:
        assert client.streams()[0].takes_events
        assert client.push("clicks", map(event, range(300))) == 300
        assert len(lines_of(tmp_path / "log" / "clicks")) == 300
        found: set[int] = set()
        for result in client.subscribe("seen", since=0):
            found |= {row["n"] for row in result.dicts()}
            if len(found) == 300:
                break
        with pytest.raises(ExternalError, match="LOG_TAKEN"):
            Store(tmp_path / "log" / "clicks")
    Store(tmp_path / "log" / "clicks").close()  # the service has released it


def test_a_body_that_is_sent_again_counts_once(tmp_path: Path) -> None:
    with service(tmp_path) as running, httpx.Client(base_url=running.url, timeout=20) as http:

        def push(sequence: int | None, body: str, producer: str | None = "web") -> dict[str, int]:
            query = {"producer": producer, "sequence": sequence}
            parameters = {name: value for name, value in query.items() if value is not None}
            answer = http.post("/streams/clicks/events", params=parameters, content=body, headers=LINES)
            assert answer.status_code == 200, answer.text
            reply: dict[str, int] = answer.json()
            return reply

        assert push(0, "a\nb\n") == {"events": 2, "taken": 2}
        assert push(0, "a\nb\n") == {"events": 2, "taken": 0}
        assert push(5, "c") == {"events": 1, "taken": 1}
        assert push(4, "before") == {"events": 1, "taken": 0}
        assert push(5, "c and more\nd") == {"events": 2, "taken": 0}
        assert push(0, "x", "another") == {"events": 1, "taken": 1}
        assert push(None, "y", None) == push(None, "y", None) == {"events": 1, "taken": 1}
        assert push(9, "\n \n") == {"events": 0, "taken": 0}
        assert push(MAX_SEQUENCE, "last") == {"events": 1, "taken": 1}
        for wrong in ({"producer": "service", "sequence": 1}, {"producer": "a b", "sequence": 1}):
            answer = http.post("/streams/clicks/events", params=wrong, content="z", headers=LINES)
            assert (answer.status_code, answer.json()["condition"]) == (422, "BAD_PRODUCER")
        wrong = {"producer": "web", "sequence": MAX_SEQUENCE + 1}
        assert (
            http.post("/streams/clicks/events", params=wrong, content="z", headers=LINES).status_code == 422
        )
        found = sorted(lines_of(tmp_path / "log" / "clicks"))
        assert found == [b"a", b"b", b"c", b"last", b"x", b"y", b"y"]


def test_a_json_array_is_pushed_as_its_events(tmp_path: Path) -> None:
    with service(tmp_path) as running, httpx.Client(base_url=running.url, timeout=20) as http:

        def push(body: str, **query: Any) -> httpx.Response:
            kind = {"content-type": "application/json; charset=utf-8"}
            return http.post("/streams/clicks/events", params=query, content=body, headers=kind)

        array = json.dumps([event(1), event(2) | {"word": "Füße\n"}], indent=2)
        assert push(array, producer="web", sequence=0).json() == {"events": 2, "taken": 2}
        assert push(array, producer="web", sequence=0).json() == {"events": 2, "taken": 0}
        assert push(json.dumps(event(3), indent=2)).json() == {"events": 1, "taken": 1}
        assert push("[]").json() == push("").json() == {"events": 0, "taken": 0}
        for wrong in ("[1]", "[[{}]]", '{"n": 1}\n{"n": 2}', "[" * 100_000, '"n"'):
            refused = push(wrong)
            assert (refused.status_code, refused.json()["condition"]) == (422, "NOT_JSON")
        found = [json.loads(line) for line in lines_of(tmp_path / "log" / "clicks")]
        assert found == [event(1), event(2) | {"word": "Füße\n"}, event(3)]


def test_events_for_a_log_that_a_gateway_writes_are_refused(tmp_path: Path) -> None:
    gateway = Store(tmp_path / "log" / "clicks")
    try:
        with (
            service(tmp_path) as running,
            connect(running.url) as client,
            pytest.raises(UserError, match="STREAM_TAKES_NO_EVENTS"),
        ):
            client.push("clicks", [event(1)])
    finally:
        gateway.close()


def test_concurrent_pushes_share_groups_and_none_is_lost(tmp_path: Path) -> None:
    writers, directory = SegmentWriters(), tmp_path / "clicks"

    def push(who: int) -> None:
        for n in range(40):
            assert writers.append(directory, [b"%d %d" % (who, n)], f"p{who}", n) == 1
            assert writers.append(directory, [b"%d %d" % (who, n)], f"p{who}", n) == 0

    threads = [threading.Thread(target=push, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writers.close()
    found = lines_of(directory)
    assert sorted(found) == sorted(b"%d %d" % (who, n) for who in range(8) for n in range(40))
    for who in range(8):
        own_lines = [line for line in found if line.startswith(b"%d " % who)]
        assert own_lines == [b"%d %d" % (who, n) for n in range(40)]


def main(folder: str, port: str) -> None:
    """Run the service that is killed."""
    with service(Path(folder), int(port)):
        print("up", flush=True)
        signal.pause()


@contextmanager
def _process(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    code = "import sys; from tests.server.test_stream_writers import main; main(*sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(port)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_client_continues_through_kills_and_the_log_has_every_event_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    total, pushed = 150, 0

    def push() -> None:
        nonlocal pushed
        with connect(f"http://127.0.0.1:{port}", timeout_seconds=90) as client:
            for n in range(total):
                assert client.push("clicks", [event(2 * n), event(2 * n + 1)]) == 2
                pushed = n + 1

    thread = threading.Thread(target=push, daemon=True)
    for round in range(3):
        with _process(tmp_path, port) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"up\n"
            if round == 0:
                thread.start()
            goal = total if round == 2 else min(pushed + 40, total)
            until(lambda goal=goal: pushed >= goal or not thread.is_alive(), 90)
    thread.join(60)
    assert pushed == total
    found = [json.loads(line)["n"] for line in lines_of(tmp_path / "log" / "clicks")]
    assert found == list(range(2 * total))

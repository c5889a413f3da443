"""`penstock serve` as a process, with the real engine: with commands and subscribers, killed and restarted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import Result, connect
from penstock.errors import ExternalError
from tests.server.kit import until

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(600)]

SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 500, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS
"""
COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]


class Served:
    """`penstock serve jobs.sql`, in a process group of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        (folder / "jobs.sql").write_text(SCRIPT)
        arguments = ["serve", "jobs.sql", "--state", "state", "--master", "local[2]"]
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, "--listen", f"127.0.0.1:{port}"],
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Do what `timeout` or a supervisor does: send the signal to every process of the group, also the JVM."""
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[], Served]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started: list[Served] = []

    def start() -> Served:
        started.append(Served(tmp_path, port))
        return started[-1]

    (tmp_path / "url").write_text(f"http://127.0.0.1:{port}")
    yield start
    for one in started:
        one.kill()


def test_a_subscriber_survives_a_kill_of_the_engine(served: Callable[[], Served], tmp_path: Path) -> None:
    engine, again = served(), 3
    with connect((tmp_path / "url").read_text()) as client:

        def wait_for(condition: Callable[[], bool]) -> None:
            def found() -> bool:
                nonlocal engine, again
                if engine.process.poll() is not None:
                    lines = engine.log.read_text()[-3_000:]
                    # Spark waits ten seconds for a worker, which a busy machine may not give it
                    assert again > 0, lines
                    assert "failed to connect back" in lines, lines
                    engine, again = served(), again - 1
                return condition()

            until(found, 250)

        def running() -> bool:
            try:
                return client.status().phase == "running"
            except ExternalError:
                return False

        wait_for(running)
        query = "SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 1 SECONDS"
        assert client.create("paths", query).says.startswith("created job paths")
        results: list[Result] = []
        ended = threading.Event()

        def listen() -> None:
            for one in client.subscribe("paths", since=0):
                results.append(one)
                if ended.is_set():
                    return

        listener = threading.Thread(target=listen)
        listener.start()
        wait_for(lambda: len(results) >= 3)
        assert client.alter("paths", where="status = 200").state == "kept"
        assert client.ask("paths").columns == ["path", "n"]
        before = len(results)
        wait_for(lambda: len(results) >= before + 2)

        engine.kill()
        before = len(results)
        engine = served()
        wait_for(running)
        assert "status = 200" in client.job("paths").query
        wait_for(lambda: len(results) >= before + 5)
        ended.set()
        listener.join(60)
        assert not listener.is_alive()

        retained = {
            one.epoch: one.dicts() for one in client.results("paths") if one.epoch <= results[-1].epoch
        }
        assert [one.epoch for one in results] == sorted(retained), "every epoch once, in order"
        assert all(one.dicts() == retained[one.epoch] for one in results)
        status = client.status()
        assert status.latency_seconds is not None
        assert status.events_per_second > 0
        assert "clicks" in status.backlog

    assert engine.end() == 0
    logged = [json.loads(line) for line in engine.log.read_text().splitlines() if line.startswith("{")]
    assert {"listening", "running", "executed", "ended"} <= {line["event"] for line in logged}

"""The job socket: its lines keep their keys, and the client reads the records that the engine wrote."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from penstock.engine.job_client import JobClient
from penstock.engine.job_server import JobServer, ResultRows
from tests.catalogue import kit
from tests.catalogue.kit import append_events, growing_log

COUNT = "CREATE JOB n AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"


def test_a_client_reads_the_replies_and_results_of_the_engine(tmp_path: Path) -> None:
    log, events = growing_log()
    append_events(log, events)
    with kit.running(tmp_path, kit.of_log(log), COUNT) as (jobs, engine), JobServer(jobs, tmp_path) as server:
        with JobClient(tmp_path) as client:
            (created,) = client.execute("CREATE JOB seen AS SELECT user, status FROM clicks")
            assert created.message.startswith("created job seen")
            assert (created.name, created.command) == ("seen", jobs.commands)
            assert client.execute("SHOW JOBS") == jobs.execute("SHOW JOBS")
            assert client.ask("seen") is None
            list(engine.steps())
            result = jobs.ask("seen")
            assert result is not None
            rows = [list(row) for row in result.rows.rows()]
            assert client.ask("seen") == ResultRows(result.epoch, ["user", "status"], rows)
            assert [one.epoch for one in client.since("n", 0)] == [one.epoch for one in jobs.since("n", 0)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, line.makefile("rwb") as file:
            line.connect(server.path)
            file.write(b'{"execute": "PAUSE JOB n"}\n{"ask": "seen"}\n')
            file.flush()
            (paused,) = json.loads(file.readline())["ok"]
            assert list(paused) == ["says", "name", "state", "command", "rows", "question"]
            assert json.loads(file.readline()) == {
                "ok": {"epoch": result.epoch, "columns": ["user", "status"], "rows": rows}
            }

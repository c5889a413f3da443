"""Jobs on a real engine that is killed and started again; the commands come from outside its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.job_client import JobClient
from penstock.errors import ExternalError, PenstockError
from tests.cli.kit import CommandResult, run_in_process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 2000, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS;
CREATE JOB popular AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path ORDER BY n DESC LIMIT 3 WINDOWING 1 SECONDS;
CREATE JOB errors AS SELECT path, status FROM clicks WHERE status >= 400
"""
APP = f"""
import threading
import penstock as ps

LOCK = threading.Lock()

def _upper(values):
    return values.str.to_uppercase()

def _locked(values):
    with LOCK:
        return values

functions = {{
    "named": lambda column: column.map_batches(_upper, return_dtype=ps.String),
    "unnamed": lambda column: column.map_batches(lambda values: _upper(values), return_dtype=ps.String),
    "locked": lambda column: column.map_batches(_locked, return_dtype=ps.String),
}}
NAMED = "; CREATE JOB named AS SELECT named(path) AS path FROM clicks"
app = ps.jobs_app("shop", '''{SCRIPT}''' + NAMED, functions=functions)
"""
COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]


class Running:
    """`penstock run` of a file, in a process group of its own."""

    def __init__(
        self, folder: Path, name: str = "jobs.sql", text: str = SCRIPT, *, master: str = "local[2]"
    ) -> None:
        self.state = folder / "state"
        (folder / name).write_text(text)
        arguments = ["run", name, "--state", str(self.state), "--master", master]
        self._log = open(folder / "printed", "ab")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=folder, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def wait_for(self, condition: Callable[[JobClient], Any], seconds: float = 200) -> Any:
        """Wait until the engine returns something for the condition; return that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the engine has ended"
            try:
                with JobClient(self.state) as client:
                    found = condition(client)
                if found:
                    return found
            except ExternalError:
                pass  # the engine does not listen yet
            time.sleep(0.1)
        raise AssertionError("the engine did not answer in time")

    def run_command(self, *arguments: str) -> CommandResult:
        """Run a command on this engine's state directory, in this process."""
        return run_in_process(*arguments, "--state", str(self.state))


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*file: str) -> Running:
        started.append(Running(tmp_path, *file))
        return started[-1]

    yield start
    for engine in started:
        engine.kill()


def life(client: JobClient, job: str) -> str | None:
    rows = client.execute("SHOW JOBS")[0].rows
    return next((row["life"] for row in rows if row["job"] == job), None)


def test_functions_of_an_app_file_run_in_the_workers(engines: Callable[..., Running]) -> None:
    engine = engines("shop.py", APP)
    created = engine.wait_for(
        lambda client: client.execute("CREATE JOB unnamed AS SELECT unnamed(path) AS path FROM clicks")
    )
    assert created[0].message.startswith("created")
    for job in ("named", "unnamed"):
        rows = engine.wait_for(lambda client, job=job: (a := client.ask(job)) and a.rows)
        assert {path for (path,) in rows} == {path.upper() for (path,) in rows}
    refused = engine.run_command("jobs", "create", "bad", "SELECT locked(path) AS path FROM clicks")
    assert (refused.returncode, "NOT_SENDABLE" in refused.stderr) == (2, True), refused.stderr
    epoch = engine.wait_for(lambda client: client.ask("named")).epoch
    assert engine.wait_for(lambda client: client.ask("named").epoch > epoch), "the engine continues"
    with JobClient(engine.state) as client:
        assert {life(client, job) for job in ("named", "unnamed", "errors")} == {"running"}


def test_commands_change_running_jobs_and_survive_a_kill(engines: Callable[[], Running]) -> None:
    engine = engines()
    first = engine.wait_for(lambda client: client.ask("popular"))
    assert first.columns == ["path", "n"]
    assert len(first.rows) % 3 == 0, "the first epoch may emit several windows"

    created = engine.run_command(
        "jobs", "create", "plain", "SELECT path, status FROM clicks WHERE status = 200"
    )
    assert (created.returncode, created.stdout.split(";")[0]) == (0, "created job plain"), created.stderr
    assert engine.wait_for(lambda client: client.ask("plain")).columns == ["path", "status"]
    altered = engine.run_command("jobs", "alter", "popular", "SET LIMIT 1")
    assert "its state is kept" in altered.stdout
    assert engine.wait_for(lambda client: (a := client.ask("popular")) and len(a.rows) == 1 and a)
    refused = engine.run_command("jobs", "drop", "nobody")
    assert refused.returncode == 2
    assert "UNKNOWN_JOB" in refused.stderr
    result = engine.run_command("ask", "popular", "--json")
    assert json.loads(result.stdout)["rows"]
    assert engine.run_command("jobs", "pause", "errors").returncode == 0

    engine.kill()
    with pytest.raises(PenstockError), JobClient(engine.state) as client:
        client.ask("popular")
    again = engines()
    epoch = again.wait_for(lambda client: client.ask("plain")).epoch
    later = again.wait_for(lambda client: (a := client.ask("plain")) and a.epoch > epoch and a)
    assert later.columns == ["path", "status"]
    with JobClient(again.state) as client:
        assert life(client, "errors") == "paused"
        assert life(client, "plain") == "running"
        assert (
            "LIMIT 1"
            in next(r for r in client.execute("SHOW JOBS")[0].rows if r["job"] == "popular")["query"]
        )
    live = again.run_command("sql", "SELECT path FROM clicks WHERE status = 404", "--for", "3s")
    assert live.returncode == 0, live.stderr
    assert all(set(json.loads(line)) == {"path"} for line in live.stdout.splitlines())
    with JobClient(again.state) as client:
        assert all(not row["job"].startswith("sql_") for row in client.execute("SHOW JOBS")[0].rows)

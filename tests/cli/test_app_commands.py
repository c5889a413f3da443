"""An engine that was started with an app accepts commands from other processes and keeps them after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine.job_client import JobClient
from tests.cli.test_deploy_command import STREAM, rows_of, write
from tests.cli.test_jobs_commands import Running, life

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

APP = (
    STREAM
    + """
shouted = clicks.map_batches(loud).select("path", "status")
counts = clicks.key_by("path").window("1s").count()
app = ps.app(
    "shop",
    ps.output("shouted", shouted, ps.jsonl("out/shouted")),
    ps.output("counts", counts, ps.jsonl("out/counts")),
)
"""
)
LESS = APP.replace('.select("path", "status")', '.filter(pl.col("status") >= 400).select("path", "status")')
BUSY = "SELECT path, count AS n FROM counts WHERE count > 1"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    write(tmp_path, APP)
    started: list[Running] = []

    def start_one(*, master: str = "inline") -> Running:
        started.append(Running(tmp_path, "app.py", APP, master=master))
        return started[-1]

    yield start_one
    for engine in started:
        engine.kill()


def epochs_of(folder: Path, output: str) -> list[int]:
    """Return the epochs in which an output wrote rows."""
    return sorted(int(file.stem.rpartition("-")[2]) for file in (folder / "out" / output).glob("*.jsonl"))


def change_an_app_while_it_runs(start: Callable[..., Running], folder: Path, master: str) -> None:
    """Create a job over the app's output, pause, alter and drop outputs, kill, and start again with the same file."""
    engine = start(master=master)
    engine.wait_for(lambda client: len(epochs_of(folder, "counts")) > 1)
    assert "created job busy" in engine.run_command("jobs", "create", "busy", BUSY).stdout
    engine.wait_for(rows_of("busy"))

    assert "paused job counts" in engine.run_command("jobs", "pause", "counts").stdout
    last = engine.wait_for(rows_of("busy")).epoch
    assert "resumed job counts" in engine.run_command("jobs", "resume", "counts").stdout
    engine.wait_for(rows_of("busy", last))

    (folder / "less").mkdir()
    less = write(folder / "less", LESS)
    deployed = engine.run_command("deploy", less).stdout.splitlines()
    assert deployed == [
        "altered job shouted; it needs no state",
        "job counts is unchanged; its state is kept",
    ]
    assert "epoch" in engine.run_command("ask", "counts").stdout

    engine.kill()
    again = start(master=master)
    again.wait_for(rows_of("busy", last))
    assert "dropped job shouted" in again.run_command("jobs", "drop", "shouted").stdout
    # an epoch was under way when the command came; it ends no later than the next rows of another job
    before = again.wait_for(rows_of("busy")).epoch
    last_epoch = again.wait_for(rows_of("busy", before)).epoch
    again.wait_for(rows_of("busy", last_epoch + 2))
    assert max(epochs_of(folder, "shouted")) <= last_epoch
    with JobClient(again.state) as client:
        assert (life(client, "counts"), life(client, "busy"), life(client, "shouted")) == (
            "running",
            "running",
            None,
        )
    jobs = json.loads(again.run_command("jobs", "list", "--json").stdout)
    assert [row["job"] for row in jobs] == ["counts", "busy"]
    assert "counts" in again.run_command("jobs", "show", "counts").stdout


@pytest.mark.slow
def test_an_app_accepts_commands_and_survives_a_kill(start: Callable[..., Running], tmp_path: Path) -> None:
    change_an_app_while_it_runs(start, tmp_path, "inline")


@pytest.mark.spark
def test_the_same_on_spark(start: Callable[..., Running], tmp_path: Path) -> None:
    change_an_app_while_it_runs(start, tmp_path, "local[2]")

"""How soon a changed job answers, and how long an answer takes to be had: an engine with many jobs on a live stream.

Receives how many jobs and how often; hands an outcome with samples in ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.job_queries import STREAM, Job
from bench.outcome import Outcome
from bench.penstock_jobs import script
from bench.penstock_runs import clicks, started
from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.engine.job_client import JobClient
from penstock.engine.job_server import JobServer
from penstock.logs import GeneratedLog
from penstock.settings import Settings

#: events a second, of all servers together
RATE = 2_000
_DEADLINE_SECONDS = 60.0
#: alters before those that are measured
_WARM = 5
_MARKED = "SELECT {} AS version, path FROM clicks WHERE status >= 400"


def latency(jobs: Sequence[Job], alters: int, asks: int, place: Path) -> list[Outcome]:
    """The outcomes of altering a job so often, and of asking one so often, each with a sample for every time."""
    state = place / "state"
    log = GeneratedLog(partitions=2, rate=RATE)
    program = Program(
        "bench",
        state,
        streams={STREAM: clicks(log)},
        begin=f"{script(jobs)};\nCREATE JOB marked AS {_MARKED.format(0)}",
    )
    settings = Settings(state=state, epoch_seconds=0.5, catch_up_seconds=0.5)
    engine, ready = Engine(program, settings, started()), threading.Event()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            engine.run(on_phase=lambda phase: ready.set() if phase == "running" else None)
        except BaseException as failure:
            ended.append(failure)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait(_DEADLINE_SECONDS)
        with JobServer(program, state), JobClient(state) as client:
            _until(client, 0, ended)
            for version in range(-_WARM, 0):
                _altered(client, version, ended)
            changed = [_altered(client, version, ended) for version in range(1, alters + 1)]
            asked = [_asked(client) for _ in range(asks)]
    finally:
        engine.stop()
        thread.join()
    return [
        Outcome(alters, sum(changed) / 1000, alters, samples=changed),
        Outcome(asks, sum(asked) / 1000, asks, samples=asked),
    ]


def _altered(client: JobClient, version: int, ended: Sequence[BaseException]) -> float:
    """From a command to the first row that shows it, in ms."""
    began = time.perf_counter()
    client.execute(f"ALTER JOB marked AS {_MARKED.format(version)}")
    _until(client, version, ended)
    return (time.perf_counter() - began) * 1000


def _until(client: JobClient, version: int, ended: Sequence[BaseException]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        result = client.ask("marked")
        if result is not None and result.rows and result.rows[-1][0] == version:
            return
        if ended:
            raise ended[0]
        if time.monotonic() > deadline:
            raise TimeoutError(f"version {version} of the job never answered")
        time.sleep(0.002)


def _asked(client: JobClient) -> float:
    began = time.perf_counter()
    client.ask("marked")
    time.sleep(0.001)
    return (time.perf_counter() - began - 0.001) * 1000

"""How soon an altered job emits, and how long a request for a result takes: an engine with many jobs on a live stream.

The outcomes have samples in ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.job_queries import STREAM, Job
from bench.outcome import Outcome
from bench.penstock_jobs import script
from bench.penstock_runs import clicks, start_session
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


def latency(jobs: Sequence[Job], alters: int, requests: int, folder: Path) -> list[Outcome]:
    """Return the outcomes of altering a job and of requesting its result, each with a sample for every time."""
    state = folder / "state"
    log = GeneratedLog(partitions=2, rate=RATE)
    program = Program(
        "bench",
        state,
        streams={STREAM: clicks(log)},
        begin=f"{script(jobs)};\nCREATE JOB marked AS {_MARKED.format(0)}",
    )
    settings = Settings(state=state, epoch_seconds=0.5, catch_up_seconds=0.5)
    engine, ready = Engine(program, settings, start_session()), threading.Event()
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
            _wait_for_version(client, 0, ended)
            for version in range(-_WARM, 0):
                _time_alter(client, version, ended)
            alter_times = [_time_alter(client, version, ended) for version in range(1, alters + 1)]
            request_times = [_time_request(client) for _ in range(requests)]
    finally:
        engine.stop()
        thread.join()
    return [
        Outcome(alters, sum(alter_times) / 1000, alters, samples=alter_times),
        Outcome(requests, sum(request_times) / 1000, requests, samples=request_times),
    ]


def _time_alter(client: JobClient, version: int, ended: Sequence[BaseException]) -> float:
    """Return the time from a command to the first row that shows it, in ms."""
    started_at = time.perf_counter()
    client.execute(f"ALTER JOB marked AS {_MARKED.format(version)}")
    _wait_for_version(client, version, ended)
    return (time.perf_counter() - started_at) * 1000


def _wait_for_version(client: JobClient, version: int, ended: Sequence[BaseException]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        result = client.ask("marked")
        if result is not None and result.rows and result.rows[-1][0] == version:
            return
        if ended:
            raise ended[0]
        if time.monotonic() > deadline:
            raise TimeoutError(f"version {version} of the job never emitted")
        time.sleep(0.002)


def _time_request(client: JobClient) -> float:
    started_at = time.perf_counter()
    client.ask("marked")
    time.sleep(0.001)
    return (time.perf_counter() - started_at - 0.001) * 1000

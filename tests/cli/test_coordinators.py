"""Coordinators as processes: each accepts commands, one is killed meanwhile, and the engine may be down."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.catalogue.master_placement import manager_of
from penstock.cli.load_app import load
from penstock.client import connect
from penstock.client.own_token import OwnToken
from penstock.testing.inline import InlineEngine
from tests.server.kit import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(600)]

SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 200, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS;
CREATE JOB seen AS SELECT path, status FROM clicks;
"""
COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]
CHANGES = ("ALTER JOB {} SET WHERE status = 500", "PAUSE JOB {}", "RESUME JOB {}") * 2
WAIT = 180.0


class Process:
    """A serving command of Penstock in a process."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, "--state", "state", "--coordination", "store", "--name", name],
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def logged(self, event: str) -> dict[str, Any] | None:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next((line for line in reversed(lines) if line["event"] == event), None)

    def url(self) -> str:
        def running() -> Any:
            assert self.process.poll() is None, self.log.read_text()[-3_000:]
            return self.logged("running") and self.logged("listening")

        response_data: str = until(running, WAIT)["url"]
        return response_data

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


Start = Callable[..., Process]


def _managers_as_assigned(url: str, names: list[str]) -> dict[str, str] | None:
    """Return which coordinator manages each job, if that is the assignment for these names."""
    response_data = _managers(url)
    return response_data if response_data == {job: manager_of(job, names) for job in response_data} else None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "jobs.sql").write_text(SCRIPT)
    started: list[Process] = []

    def start_process(name: str, command: str = "coordinator", *more: str) -> Process:
        started.append(Process(tmp_path, name, command, "jobs.sql", "--listen", "127.0.0.1:0", *more))
        return started[-1]

    yield start_process
    for one in started:
        one.kill()


class Client:
    """Sends commands to one coordinator and, if that does not reply, the same command to the next."""

    def __init__(self, urls: list[str], first: int, patience: float = 0.0) -> None:
        self._urls, self._patience = urls[first:] + urls[:first], patience
        self._http = httpx.Client(timeout=10 if patience else 60)
        self.by: Counter[str] = Counter()

    def sql(self, text: str) -> dict[str, Any]:
        key, until = {"idempotency-key": uuid.uuid4().hex}, time.monotonic() + self._patience
        for url in itertools.cycle(self._urls) if self._patience else self._urls:
            assert not self._patience or time.monotonic() < until, "no coordinator replied in time"
            try:
                response = self._http.post(f"{url}/sql", json={"sql": text}, headers=key, auth=OwnToken(url))
            except httpx.TransportError:
                continue
            assert response.status_code == 200, response.text
            self.by[response.headers["penstock-coordinator"]] += 1
            answer: dict[str, Any] = response.json()["answers"][0]
            return answer
        raise AssertionError("no coordinator replied")


def _get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=60, auth=OwnToken(url))


def _coordinators(url: str) -> list[dict[str, Any]]:
    """Return the coordinators that one of them knows."""
    response_data: list[dict[str, Any]] = _get(f"{url}/coordinators").json()
    return response_data


def _managers(url: str) -> dict[str, str]:
    return {job["name"]: job["coordinator"] for job in _get(f"{url}/jobs").json()}


def test_no_command_is_lost_or_executed_twice_when_a_coordinator_is_killed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state, names = tmp_path / "state", ["one", "two", "three"]
    jobs = load(Path("jobs.sql")).on(state)  # type: ignore[union-attr]
    engine, stop = InlineEngine(jobs, state), threading.Event()

    def epochs() -> None:
        while not stop.wait(0.05):
            engine.step()

    running = threading.Thread(target=epochs)
    running.start()
    try:
        coordinators = [start(name) for name in names]
        urls = [one.url() for one in coordinators]
        until(lambda: all(len(_coordinators(url)) == 3 for url in urls), WAIT)
        clients = [Client(urls, n) for n in range(3)]
        done: list[tuple[str, int]] = []
        halfway, killed = threading.Semaphore(0), threading.Event()

        def command(number: int) -> None:
            client = clients[number]
            for n in range(6):
                job = f"j{number}_{n}"
                client.sql(f"CREATE JOB {job} AS SELECT path FROM clicks WHERE status = 404")
                changed = 0
                for verb in CHANGES:
                    client.sql(verb.format(job))
                    changed += 1
                done.append((job, changed))
                if n == 2:
                    halfway.release()
                elif n == 4:
                    killed.wait(WAIT)

        threads = [threading.Thread(target=command, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert halfway.acquire(timeout=WAIT)
        # on a busy machine a coordinator may be missing for a moment
        before = until(lambda: _managers_as_assigned(urls[0], names), WAIT)
        coordinators[1].kill()
        killed.set()
        for thread in threads:
            thread.join(WAIT)
        assert len(done) == 18, "every command got a reply"

        remaining = [urls[0], urls[2]]
        until(lambda: all(len(_coordinators(url)) == 2 for url in remaining), WAIT)
        until(lambda: all(_managers_as_assigned(url, ["one", "three"]) for url in remaining), WAIT)
        after = {job: manager_of(job, ["one", "three"]) for job in before}
        assert {job for job in before if after[job] != before[job]} == {
            job for job, name in before.items() if name == "two"
        }, "only its jobs have moved"
        assert set(before.values()) == set(names), "each of the three managed some"
        assert sum((client.by for client in clients), Counter()).keys() == set(names)

        versions = {name: entry.version for name, entry in jobs.catalogue.jobs.items() if name != "seen"}
        assert versions == {job: 1 + changed for job, changed in done}, "each once"
        for url in remaining:
            with connect(url) as client:
                assert client.ask("seen").columns == ["path", "status"]
                epochs_seen = [
                    one.epoch for one, _ in zip(client.subscribe("seen", since=0), range(3), strict=False)
                ]
                assert epochs_seen == sorted(set(epochs_seen))
                first = {one.epoch: one.dicts() for one in client.results("seen")}
        assert first
        assert all(
            [dict(zip(a.rows.columns, row, strict=True)) for row in a.rows.rows()] == first[a.epoch]
            for a in jobs.since("seen", 0)
            if a.epoch in first
        )
        assert coordinators[0].end() == 0
        until(lambda: _managers_as_assigned(urls[2], ["three"]), WAIT)
        assert clients[2].sql("DROP JOB j0_0")["says"] == "dropped job j0_0"
    finally:
        stop.set()
        running.join()
        engine.close()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_coordinators_are_killed_and_paused_again_and_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, state, names = random.Random(11), tmp_path / "state", ["one", "two", "three"]
    jobs = load(Path("jobs.sql")).on(state)  # type: ignore[union-attr]
    engine, stop = InlineEngine(jobs, state), threading.Event()
    coordinators = {name: start(name) for name in names}
    urls = {name: one.url() for name, one in coordinators.items()}
    versions: dict[str, int] = {}
    errors: list[BaseException] = []

    def epochs() -> None:
        while not stop.wait(0.05):
            engine.step()

    def command(first: int) -> None:
        n = 0
        while not stop.is_set():
            job = f"j{first}_{n}"
            n += 1
            try:
                for verb in ("CREATE JOB {} AS SELECT path FROM clicks", *CHANGES):
                    Client([urls[name] for name in names], first, patience=WAIT).sql(verb.format(job))
                    versions[job] = versions.get(job, 0) + 1
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=command, args=(first,)) for first in range(3)]
    for thread in (threading.Thread(target=epochs), *threads):
        thread.start()
    try:
        for _ in range(8):
            name = draw.choice(names)
            if draw.random() < 0.5:
                coordinators[name].kill()
                coordinators[name] = start(name)
                urls[name] = coordinators[name].url()
            else:
                os.kill(coordinators[name].process.pid, signal.SIGSTOP)
                threading.Event().wait(4)  # its session has expired by then
                os.kill(coordinators[name].process.pid, signal.SIGCONT)
            threading.Event().wait(2)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT)
    assert not errors
    assert len(versions) > 20
    response_data = {name: entry.version for name, entry in jobs.catalogue.jobs.items() if name != "seen"}
    assert response_data == versions
    engine.close()


def test_coordinators_continue_while_the_engine_is_down(start: Start, tmp_path: Path) -> None:
    def cli(*arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--state", "state"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    engine = start("engine", "serve", "--master", "inline", "--epoch", "200ms")
    engine_url = engine.url()
    other = start("other")
    other_url = other.url()
    until(lambda: len(_coordinators(engine_url)) == 2, WAIT)
    jobs = [f"j{n}" for n in range(8)]
    by: Counter[str] = Counter()
    for number, job in enumerate(jobs):
        body = {"name": job, "query": "SELECT path FROM clicks"}
        url = (engine_url, other_url)[number % 2]
        response = httpx.post(f"{url}/jobs", json=body, timeout=60, auth=OwnToken(url))
        assert response.status_code == 201, response.text
        by[response.headers["penstock-coordinator"]] += 1
    assert set(by) == {"engine", "other"}, "each by the coordinator that it was sent to or forwarded to"

    def all_are_listed() -> bool:
        rows = json.loads(cli("jobs", "list", "--json"))
        response_data = {row["job"]: row["coordinator"] for row in rows}
        return response_data == {job: manager_of(job, ["engine", "other"]) for job in [*jobs, "seen"]}

    until(all_are_listed, WAIT)
    assert sum(one["jobs"] for one in _coordinators(other_url)) == 9

    def has_results(job: str) -> Any:
        response_data = [_get(f"{url}/jobs/{job}/answer").json() for url in (engine_url, other_url)]
        return all(one["epoch"] is not None for one in response_data)

    for job in jobs[:2]:
        until(lambda job=job: has_results(job), WAIT)
    engine.kill()
    assert "paused job j0" in cli("jobs", "pause", "j0")
    with connect(other_url) as client:
        assert client.ask("j1").columns == ["path"]
        assert client.alter("j1", where="status = 404").state == "kept"
        assert client.drop("j2").says == "dropped job j2"
    again = start("engine", "serve", "--master", "inline", "--epoch", "200ms")
    with connect(again.url()) as client:
        lives = {job.name: job.life for job in client.jobs()}
        assert lives["j0"] == "paused"
        assert "j2" not in lives
        assert "404" in client.job("j1").query
        epoch = client.status().epoch
        until(lambda: client.status().epoch > epoch, WAIT)
    assert again.end() == 0
    assert other.end() == 0

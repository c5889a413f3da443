"""A served unit as processes, and threads that subscribe to it and push events."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.client import Result, connect
from penstock.errors import PenstockError
from penstock.ha.unit import Unit, UnitEngine, UnitRecord
from tests.server.kit import until

COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]
WAIT = 90.0


def event(n: int) -> dict[str, Any]:
    return {"at": f"2026-03-01T12:{n // 60 % 60:02}:{n % 60:02}Z", "n": n}


class Site:
    """The processes of a served unit in a folder; close it at the end."""

    def __init__(
        self, folder: Path, *arguments: str, master: str = "inline", lease: str = "6s", wait: float = WAIT
    ) -> None:
        self.folder, self.state, self._wait = folder, folder / "state", wait
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._arguments = [*arguments, "--epoch", "200ms", "--master", master, "--lease-timeout", lease]
        self._started: list[subprocess.Popen[bytes]] = []
        self._pids: set[int] = set()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the service."""
        return self.command(
            "serve", *self._arguments, "--ha", "--state", "state", "--listen", self.url.partition("//")[2]
        )

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        self._started.append(process)
        return process

    def engines(self) -> dict[str, UnitEngine]:
        """Return the engines that are up."""
        unit = Unit.at(self.state)
        try:
            engines = {name: engine for name, engine in unit.engines().items() if engine.seems_up}
            self._pids |= {engine.pid for engine in engines.values()}
            return engines
        finally:
            unit.close()

    def record(self) -> UnitRecord:
        unit = Unit.at(self.state)
        try:
            return unit.record()
        finally:
            unit.close()

    def find_ready_engines(self, *phases: str) -> dict[str, UnitEngine] | None:
        """Return the engines if one leads and the others are in the given phases."""
        with suppress(PenstockError):
            engines, leader = self.engines(), self.record().leader
            others = [engine.phase for name, engine in engines.items() if name != leader]
            if leader in engines and engines[leader].phase == "primary" and others == [*phases]:
                return engines
        return None

    def is_coordinated_again(self) -> bool:
        """Whether a restarted service coordinates: first it waits until the session of the killed one has ended."""
        record = self.record()
        return len(self.logged(f"engine {record.leader} leads (generation {record.generation})")) == 2

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Wait until the condition holds and return its value; on failure show the logs."""
        try:
            return until(condition, self._wait)
        except AssertionError:
            logs = sorted((self.state / "ha" / "logs").glob("*.log"))
            logs_text = "\n".join(
                f"== {log}\n{log.read_text()[-2_000:]}" for log in [*logs, self.folder / "log"]
            )
            raise AssertionError(logs_text) from None

    def kill(self, *names: str) -> None:
        """Send SIGKILL to engines."""
        engines = self.engines()
        for name in names:
            os.kill(engines[name].pid, signal.SIGKILL)

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text().splitlines()
        return [
            result
            for line in lines
            if line.startswith("{") and (result := json.loads(line))["event"] == event
        ]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        with suppress(PenstockError):
            unit = Unit.at(self.state)
            unit.change(lambda now: UnitRecord(**vars(now) | {"phase": "stopping"}))
            unit.close()
            # those that are still starting end by themselves, on a busy machine after they have started Spark
            until(lambda: not self.engines(), 90)
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Listener:
    """Subscribes to a job on a thread, without end."""

    def __init__(self, url: str, job: str) -> None:
        self.results: list[Result] = []
        self.error: Exception | None = None
        self._url, self._job = url, job
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with connect(self._url) as client:
                for result in client.subscribe(self._job, since=0):
                    self.results.append(result)
        except Exception as error:
            self.error = error

    def numbers(self) -> list[int]:
        """Return the numbers of all results, in order."""
        assert self.error is None, self.error
        return [row["n"] for result in list(self.results) for row in result.dicts()]


class Feeder:
    """Counts on a thread and pushes every number."""

    def __init__(self, push: Callable[[int], None]) -> None:
        self.count = 0
        self.error: Exception | None = None
        self._push, self._stop = push, threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        try:
            while not self._stop.wait(0.03):
                self._push(self.count)
                self.count += 1
        except Exception as error:
            self.error = error

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(WAIT)
        assert self.error is None, self.error
        return self.count


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False

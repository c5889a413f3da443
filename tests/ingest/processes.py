"""Real gateways and agents for tests: started, killed, waited for with deadlines."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from penstock.ingest.intake import Hello
from penstock.ingest.segment_log import SegmentLog
from penstock.testing.log_contract import read_all, whole


def until(condition: Callable[[], Any], seconds: float = 20.0, what: str = "it") -> Any:
    """Wait until the condition holds and return its value; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token_file(path: Path, token: str) -> Path:
    """A file that only its owner can read."""
    path.touch(0o600)
    path.write_text(f"{token}\n")
    return path


class Running:
    """A process of `penstock`, and the JSON events that it reports on standard error."""

    def __init__(
        self,
        *arguments: object,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        descriptors: tuple[int, int] | None = None,
    ) -> None:
        """`descriptors`: its soft and hard limit of open files."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.main", *map(str, arguments)],
            stdin=stdin,
            stderr=self._stderr,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)),
        )

    def text(self) -> str:
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode()

    def reports(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [report for report in map(json.loads, lines) if report["event"] == event]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def wait(self, seconds: float = 30.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.text()}") from None


class Processes:
    """All processes that a test starts; they end with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.http_port = free_port(), free_port()
        self._all: list[Running] = []

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def gateway(
        self,
        *more: object,
        http: bool = False,
        ready: bool = True,
        descriptors: tuple[int, int] | None = None,
        own_token: bool = False,
    ) -> Running:
        """A gateway; with `own_token` one that makes a token for itself."""
        listens = ["--listen", f"127.0.0.1:{self.port}"]
        listens += ["--http", f"127.0.0.1:{self.http_port}"] if http else []
        has_token = own_token or not {"--token-file", "--agent-tokens"}.isdisjoint(map(str, more))
        tokens = [] if has_token else ["--no-token"]
        running = Running("gateway", "--dir", self.log, *listens, *tokens, *more, descriptors=descriptors)
        self._all.append(running)
        if ready:
            until(
                lambda: (
                    len(running.reports("listening")) == len(listens) // 2
                    or running.process.poll() is not None
                ),
                what="listening",
            )
            assert running.process.poll() is None, running.text()
        return running

    def agent(self, *more: object, stdin: int | IO[bytes] | None = subprocess.DEVNULL) -> Running:
        running = Running("agent", "--to", f"127.0.0.1:{self.port}", "--linger", "20ms", *more, stdin=stdin)
        self._all.append(running)
        return running

    def end(self) -> None:
        for one in self._all:
            if one.process.poll() is None:
                one.kill()

    def lines(self, stream: str = "logs") -> list[bytes]:
        """The lines of a stream, partition after partition."""
        log = SegmentLog(self.log / stream)
        return [line for one in log.partitions({}) for line in read_all(log, whole(one)).splitlines()]


class Connection:
    """A raw connection to a gateway."""

    def __init__(self, port: int, hello: Hello | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._file = self.socket.makefile("rb")
        if hello is not None:
            self.send(hello.encoded())
            self.hello_reply = self.reply()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> dict[str, Any]:
        line = self._file.readline()
        return json.loads(line) if line else {}

    def reply_with(self, key: str) -> dict[str, Any]:
        while key not in (reply := self.reply()):
            assert reply, "the gateway closed the connection"
        return reply

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbered(first: int, count: int, name: str = "n") -> Iterator[bytes]:
    return (b"%s %07d %s" % (name.encode(), n, b"x" * (n % 60)) for n in range(first, first + count))

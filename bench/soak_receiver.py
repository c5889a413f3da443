"""An HTTP receiver in a process of its own: it keeps what is pushed in a file, each batch once by its key.

    python -m bench.soak_receiver PORT FILE

A path is away, with the status 503, while FILE.PATH.away exists, and slow, a second for each batch, while
FILE.PATH.slow does. The process can be killed and started again at any
time: a batch that it has acknowledged is in the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.processes import environment
from penstock.testing.ports import free_port


class Receiver:
    """Starts and kills the process; reads what it has received."""

    def __init__(self, file: Path) -> None:
        self._file, self._port = file, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, if it does not run."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.soak_receiver", str(self._port), str(self._file)],
                env=environment(),
            )

    def kill(self) -> None:
        """Kill it, as a power loss would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def set_away(self, path: str, is_away: bool) -> None:
        """Have it refuse what is pushed to a path, or take it again."""
        marker = _marker(self._file, path)
        marker.touch() if is_away else marker.unlink(missing_ok=True)

    def set_slow(self, path: str, is_slow: bool) -> None:
        """Have it wait before it takes what is pushed to a path, or not any more."""
        marker = _marker(self._file, path, "slow")
        marker.touch() if is_slow else marker.unlink(missing_ok=True)

    def rows(self, path: str) -> Iterator[dict[str, Any]]:
        """The rows that were pushed to a path, in the order in which they arrived."""
        if self._file.exists():
            with open(self._file, encoding="utf-8") as file:
                for line in file:
                    batch = json.loads(line)
                    if batch["path"] == path:
                        yield from (json.loads(row) for row in batch["rows"])


def _marker(file: Path, path: str, kind: str = "away") -> Path:
    return file.with_name(f"{file.name}.{path.strip('/')}.{kind}")


def _read_keys(file: Path) -> set[str]:
    """The keys of the batches in the file; what a kill has left of a batch at its end is removed."""
    keys: set[str] = set()
    if not file.exists():
        return keys
    whole = 0
    with open(file, "rb") as content:
        for line in content:
            if line.endswith(b"\n"):
                keys.add(json.loads(line)["key"])
                whole += len(line)
    os.truncate(file, whole)
    return keys


def _serve(port: int, file: Path) -> None:
    keys, lock = _read_keys(file), threading.Lock()
    content = open(file, "a", encoding="utf-8")  # noqa: SIM115 - until the process is killed

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if _marker(file, self.path, "slow").exists():
                time.sleep(1.0)
            status = 503 if _marker(file, self.path).exists() else 200
            key = f"{self.path} {self.headers['Idempotency-Key']}"
            with lock:
                if status == 200 and key not in keys:
                    batch = {"key": key, "path": self.path, "rows": body.splitlines()}
                    content.write(f"{json.dumps(batch)}\n")
                    content.flush()
                    keys.add(key)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))

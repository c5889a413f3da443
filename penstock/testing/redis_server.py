"""Start a real Redis on the loopback interface for tests, from the Debian package `redis-server`.

Guarantees: what it has acknowledged survives a kill and a restart.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from penstock.testing.ports import accepts_connections, free_port

_START_SECONDS = 60.0


def why_not() -> str | None:
    """Why no Redis can be started here; None when one can."""
    return (
        None
        if shutil.which("redis-server")
        else "there is no redis-server (Debian: apt-get install redis-server)"
    )


class RedisServer:
    """A server in an empty folder. A test may kill and restart it, and must stop it at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """The URL of the server."""
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "databases": "16",
        }
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not accepts_connections(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError((self._folder / "server.log").read_text()[-2000:])
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill it, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

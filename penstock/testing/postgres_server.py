"""Start a real PostgreSQL on the loopback interface for tests, from the Debian package `postgresql`.

PostgreSQL refuses to run as root. If the tests run as root, it runs as the user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.testing.ports import free_port

_START_SECONDS = 60.0
_NEW = "-A trust -U penstock -E UTF8 --locale=C -N"


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    here = shutil.which("initdb")
    return Path(here).parent if here else None


def _user() -> dict[str, Any]:
    """The user that it runs as, in arguments of `subprocess`."""
    if os.getuid() != 0:
        return {}
    return {"user": "postgres", "group": pwd.getpwnam("postgres").pw_gid, "extra_groups": []}


def why_not() -> str | None:
    """Why no PostgreSQL can be started here; None when one can."""
    if _programs() is None:
        return "there is no PostgreSQL (Debian: apt-get install postgresql)"
    try:
        _user()
    except KeyError:
        return "there is no user postgres to run PostgreSQL as"
    return None


class PostgresServer:
    """A server in a new folder. A test may stop and restart it, and must remove it at the end."""

    def __init__(self) -> None:
        programs = _programs()
        assert programs is not None
        self._programs, self._port = programs, free_port()
        # not below pytest's folder, which the user postgres cannot enter
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        if os.getuid() == 0:
            shutil.chown(self._folder, "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        initialized = subprocess.run(
            [str(self._programs / "initdb"), *_NEW.split(), "-D", str(self._folder / "data")],
            capture_output=True,
            cwd=self._folder,
            check=False,
            **_user(),
        )
        assert initialized.returncode == 0, str(initialized.stderr)[-2000:]

    @property
    def address(self) -> str:
        """The URL of the server."""
        return f"postgresql://penstock@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._folder}"]
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-p", str(self._port), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **_user(),
            )
        deadline = time.monotonic() + _START_SECONDS
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_tail = (self._folder / "server.log").read_text()[-2000:]
                self.stop()
                raise AssertionError(log_tail)
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as a crash does; it recovers from its log at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        """Stop its processes where they are; the kernel keeps their connections and accepts further ones."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let its processes continue."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, number)  # first the one that starts the others
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), number)

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

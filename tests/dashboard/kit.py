"""`penstock serve` as a process on the inline engine, and a real browser."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from penstock.state.service_token import FILE, read_service_token
from tests.server.kit import until

SCRIPT = """
CREATE STREAM clicks FROM generated(rate => 500, partitions => 2)
    FORMAT combined_log(cookie => 'session') EVENT TIME time LATENESS 1 SECONDS;
CREATE STREAM orders FROM files('orders/*.jsonl')
    FORMAT json(at TIMESTAMP, shop TEXT, price DOUBLE) EVENT TIME at LATENESS 1 SECONDS;
CREATE JOB pages AS SELECT path, COUNT(*) AS n FROM clicks
    GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 1 SECONDS;
CREATE JOB sold AS SELECT shop, price FROM orders WHERE price > 1;
CREATE JOB pushed AS SELECT path, status FROM clicks WHERE status >= 400
    INTO http_push('http://127.0.0.1:9/', patience_seconds => 1)
"""
COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def why_no_browser() -> str | None:
    """The reason why no browser can be started; None if one can."""
    if find_spec("playwright") is None:
        return "Playwright is not installed: pip install -r requirements-browser.lock"
    if shutil.which("chromium") is None:
        return "there is no chromium on the PATH (Debian: apt-get install chromium)"
    return None


class Served:
    """`penstock serve jobs.sql --master inline`, restarted after each kill."""

    def __init__(self, folder: Path, *options: str, token: str | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder, self._options = folder, list(options)
        self._token = token
        (folder / "jobs.sql").write_text(SCRIPT)
        (folder / "orders").mkdir(exist_ok=True)
        lines = '{"at": "2026-11-15T10:00:00Z", "shop": "a", "price": 2.5}\nthis is <b>no</b> order\n'
        (folder / "orders" / "one.jsonl").write_text(lines)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the service and wait until it runs."""
        arguments = ["serve", "jobs.sql", "--state", "state", "--master", "inline", *self._options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, "--listen", f"127.0.0.1:{self.port}"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        try:
            until(self._running, 120)
        except BaseException:
            self.kill()
            raise

    def _running(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-3_000:]
        try:
            return bool(httpx.get(f"{self.url}/health", timeout=5).json()["status"] == "ok")
        except httpx.HTTPError:
            return False

    @property
    def token(self) -> str:
        """The token that was given, or else the one that the service has made for itself."""
        return self._token or read_service_token(self.folder / "state" / FILE)

    @property
    def headers(self) -> dict[str, str]:
        """The header with the token."""
        return {"authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> Any:
        """Request a path of the API and return the JSON of the response."""
        return httpx.get(self.url + path, headers=self.headers, timeout=20).json()

    def kill(self) -> None:
        """End the process as a crash does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Stop the process if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def browser() -> Iterator[Any]:
    """A headless chromium of Debian."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()

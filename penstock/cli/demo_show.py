"""The show of `penstock demo`: a service on a local cluster, in which a job is altered, load rises and the engine dies.

It prints what happens and where the dashboard is. Everything is real: the job is altered through the API, the spike is
in the log, the elastic loop decides to add the executor, and the engine is killed with SIGKILL and started again on its
state.

Guarantees: all processes it started are stopped, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from penstock.cli.dashboard_address import address_with_token, opened_in_browser
from penstock.cli.demo_service import PORT, free_port
from penstock.cluster.local import LocalCluster
from penstock.errors import ExternalError, PenstockError
from penstock.formatting import clock
from penstock.state.service_token import FILE, read_service_token

#: length of the show, unless --for is given
SHOW_SECONDS = 120.0
#: timeouts of its parts; after one the show prints that and continues, or ends
_START_SECONDS, _WALKS_SECONDS, _SCALE_SECONDS, _BACK_SECONDS = 120.0, 60.0, 60.0, 120.0
#: the spike of load: seconds after the start of the log, length in seconds, factor
_SPIKE = (25.0, 40.0, 12.0)
_ELASTIC = (
    "most_executors=2",
    "window_seconds=2",
    "patience_seconds=6",
    "tolerated_backlog_seconds=2",
    "drain_seconds=20",
    "cool_down_seconds=30",
    "upper_utilisation=0.6",
    "target_utilisation=0.45",
    "lower_utilisation=0.05",
)


class _TimeUp(Exception):
    """The time of --for is up."""


class Show:
    """The service, the cluster, and the sequence of parts."""

    def __init__(
        self,
        place: Path,
        rate: float,
        for_seconds: float | None,
        show_line: Callable[[str], None],
        pause_factor: float = 1.0,
        on_terminal: bool = False,
    ) -> None:
        #: whether lines go to a terminal, which may show the token
        self._on_terminal = on_terminal
        #: factor of the pauses between parts; 1 suits people
        self._pause_factor = pause_factor
        self._place, self._rate, self._show_line = place.resolve(), rate, show_line
        self._started_at = time.monotonic()
        self._until = None if for_seconds is None else self._started_at + for_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._cluster: LocalCluster | None = None
        self._url = f"http://127.0.0.1:{free_port(PORT)}"
        self._http = httpx.Client(base_url=self._url, timeout=10)
        self._shown: list[str] = []

    def run(self) -> None:
        """Run all parts."""
        self._place.mkdir(parents=True, exist_ok=True)
        with _interrupt_on_sigterm(), contextlib.ExitStack() as opened:
            try:
                master = self._master()
                self._start(master)
                token_file = self._place / "state" / FILE
                address = address_with_token(self._url, token_file, on_terminal=self._on_terminal)
                self._print(f"dashboard: {address}")
                if self._on_terminal:
                    opened.enter_context(opened_in_browser(address))
                self._wait_until("the engine is at work", self._running, _START_SECONDS)
                self._wait_until("the first walks", self._walks, _WALKS_SECONDS, must=False)
                self._watch(5)
                self._alter()
                if master.startswith("spark:"):
                    self._scale()
                self._kill_engine(master)
                while (
                    self._until is not None
                    or time.monotonic() < self._started_at + SHOW_SECONDS * self._pause_factor
                ):
                    self._watch(10)
            except (_TimeUp, KeyboardInterrupt):
                pass
            finally:
                with _ignore_signals():
                    self._end()

    # -- the parts -------------------------------------------------------------------------------

    def _master(self) -> str:
        """A cluster of two workers, if one can be started here; else this machine's cores."""
        if not sys.platform.startswith("linux"):
            self._print("a local cluster needs Linux: the show runs on local[*], without the added executor")
            return "local[*]"
        self._print("starting a local cluster: two workers of one core each")
        self._cluster = LocalCluster(self._place / "cluster")
        with contextlib.suppress(PenstockError):
            self._cluster.down()  # of an earlier show that was killed
        try:
            return self._cluster.up(2, 1, 1024, "none")
        except PenstockError as error:
            self._print(
                f"no cluster here ({error.primary}): the show runs on local[*], without the added executor"
            )
            return "local[*]"

    def _start(self, master: str) -> None:
        at, lasting, factor = _SPIKE
        spike = factor if master.startswith("spark:") else 1.0
        arguments_of_log = f"rate={self._rate!r}, spike={spike!r}, at_seconds={at!r}, for_seconds={lasting!r}"
        (self._place / "show.py").write_text(
            f"from penstock.demos.show import build, generated\n\napp = build(generated({arguments_of_log}))\n"
        )
        arguments = ["serve", "show.py", "--state", "state", "--master", master]
        arguments += ["--listen", self._url.removeprefix("http://")]
        if master.startswith("spark:"):
            arguments += ["--executors", "1", *(part for one in _ELASTIC for part in ("--elastic", one))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with (self._place / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from penstock.cli.commands import main; main()", *arguments],
                cwd=self._place,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._wait_until("the service answers", lambda: self._get("/health"), _START_SECONDS)
        token = read_service_token(self._place / "state" / FILE)
        self._http.headers["authorization"] = f"Bearer {token}"

    def _running(self) -> bool:
        status = self._get("/status")
        return bool(status) and status["phase"] == "running" and status["epochs"] > 0

    def _walks(self) -> Any:
        """The most frequent walks; nothing before the first result."""
        answer = self._get("/jobs/patterns/answer")
        return answer and answer["rows"]

    def _watch(self, seconds: float) -> None:
        """Let it run for a while, then print its status."""
        self._sleep(seconds * self._pause_factor)
        status, walks = self._get("/status"), self._walks()
        if not status:
            return
        line = f"{status['events_per_second']:,.0f} events/s"
        if status["latency_seconds"]:
            line += f", latency p50 {status['latency_seconds']['p50']:.1f} s"
        if walks:
            top = walks[0]
            line += f"; most frequent walk: {top['pattern']} ({top['count']:,})"
            self._mark_shown("click patterns live")
        self._print(line)

    def _alter(self) -> None:
        query = (
            "SELECT path, COUNT(*) AS n FROM clicks WHERE status = 404\n"
            "GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 5 SECONDS"
        )
        answer = self._http.patch("/jobs/popular", json={"query": query})
        if answer.is_success:
            self._print(f"{answer.json()['says']}  (now: only pages that were not found)")
            self._mark_shown("a job altered while it runs")
        else:
            self._print(f"popular could not be altered: {answer.text}")

    def _scale(self) -> None:
        at, _, factor = _SPIKE
        self._print(f"soon: {factor:g} times the load, more than one executor can process for long")

        def has_two_executors() -> Any:
            engine = self._get("/engine")
            return engine if engine and len(engine["executors"]) > 1 else None

        engine = self._wait_until("a second executor", has_two_executors, at + _SCALE_SECONDS, must=False)
        if engine is None:
            self._print("no second executor in time: the page Elasticity of the dashboard shows why")
            return
        provisions = [
            one for one in (engine["elastic"] or {}).get("decisions", []) if one["decision"] == "provision"
        ]
        self._print(
            f"a second executor is here: {provisions[-1]['reason'] if provisions else 'requested by the elastic loop'}"
        )
        self._mark_shown("a scale-up under a spike")
        self._watch(5)

    def _kill_engine(self, master: str) -> None:
        status = self._get("/status") or {"epoch": -1}
        self._print(f"killing the engine (SIGKILL) after epoch {status['epoch']:,}")
        self._kill()
        self._start(master)

        def recovered() -> Any:
            facts = self._get("/recovery")
            return facts and facts["restarts"] and facts["restarts"][-1]["first_epoch"] is not None and facts

        facts = self._wait_until("the engine is back", recovered, _BACK_SECONDS, must=False)
        if facts is None:
            self._print(
                f"not back after {_BACK_SECONDS:.0f} s; its log: {self._place / 'state' / 'engine.log'}"
            )
            return
        last = facts["restarts"][-1]
        gap = "" if last["gap_seconds"] is None else f", {last['gap_seconds']:.1f} s without results"
        self._print(
            f"the engine is back with epoch {last['first_epoch']:,}{gap}; nothing is lost or counted twice"
        )
        self._mark_shown("an engine killed and back")

    # -- means -----------------------------------------------------------------------------------

    def _get(self, path: str) -> Any:
        try:
            answer = self._http.get(path)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None

    def _wait_until(
        self, what: str, condition: Callable[[], Any], seconds: float, *, must: bool = True
    ) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise self._service_error()
            if answer := condition():
                return answer
            self._sleep(0.5)
        if must:
            raise ExternalError(
                "SHOW_STUCK", f"{what}: not within {seconds:g} s", hint=f"See {self._place / 'serve.log'}."
            )
        return None

    def _service_error(self) -> ExternalError:
        lines = (self._place / "serve.log").read_text(errors="replace").strip().splitlines()
        return ExternalError(
            "SHOW_ENDED",
            "the service ended by itself",
            detail=lines[-1][:500] if lines else None,
            hint=f"See {self._place / 'serve.log'}; `penstock demo --no-ui` runs without a service.",
        )

    def _sleep(self, seconds: float) -> None:
        wake = time.monotonic() + seconds
        if self._until is not None and wake >= self._until:
            time.sleep(max(self._until - time.monotonic(), 0))
            raise _TimeUp
        time.sleep(seconds)

    def _mark_shown(self, what: str) -> None:
        if what not in self._shown:
            self._shown.append(what)

    def _print(self, line: str) -> None:
        self._show_line(f"{clock(time.monotonic() - self._started_at):>5}  {line}")

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._kill()
        if self._cluster is not None:
            with contextlib.suppress(PenstockError):
                self._cluster.down()
        self._http.close()
        self._print(f"shown: {', '.join(self._shown) or 'nothing yet'}")


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    """A second Ctrl-C must not leave a cluster behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM works as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

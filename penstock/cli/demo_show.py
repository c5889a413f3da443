"""The show of `penstock demo`: a service on a local cluster, to which things happen while one watches.

Receives how long and how much; hands lines that say what happens, and the dashboard's address to see it at. Nothing is
staged: the job is altered through the API, the spike is in the log, the executor comes by the elastic loop's own
decision, and the engine is killed with SIGKILL and started again on its state.

Guarantees: what it started is ended, however it ends.
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

from penstock.cli.demo_service import PORT, free_port
from penstock.cli.formatting import clock
from penstock.cluster.local import LocalCluster
from penstock.errors import ExternalError, PenstockError

#: how long the whole of it takes, in seconds, where nobody says otherwise
SHOW_SECONDS = 120.0
#: by when each part of it should be seen, in seconds; what takes longer is given up and said
_START_SECONDS, _WALKS_SECONDS, _SCALE_SECONDS, _BACK_SECONDS = 120.0, 60.0, 60.0, 120.0
#: the spike comes so long after the log began, lasts so long, and is so many times the rate
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


class _Over(Exception):
    """The time is up."""


class Show:
    """The service, the cluster, and the story."""

    def __init__(
        self,
        place: Path,
        rate: float,
        for_seconds: float | None,
        tell: Callable[[str], None],
        pace: float = 1.0,
    ) -> None:
        #: how long it waits between its parts: once as long as is good for people
        self._pace = pace
        self._place, self._rate, self._tell_line = place.resolve(), rate, tell
        self._began = time.monotonic()
        self._until = None if for_seconds is None else self._began + for_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._cluster: LocalCluster | None = None
        self._url = f"http://127.0.0.1:{free_port(PORT)}"
        self._http = httpx.Client(base_url=self._url, timeout=10)
        self._shown: list[str] = []

    def run(self) -> None:
        """Tell the story, from beginning to end."""
        self._place.mkdir(parents=True, exist_ok=True)
        with _ended_by_signals():
            try:
                master = self._master()
                self._start(master)
                self._tell(f"dashboard: {self._url}/ui/")
                self._when("the engine is at work", self._running, _START_SECONDS)
                self._when("the first walks", self._walks, _WALKS_SECONDS, must=False)
                self._watch(5)
                self._alter()
                if master.startswith("spark:"):
                    self._scale()
                self._killed(master)
                while self._until is not None or time.monotonic() < self._began + SHOW_SECONDS * self._pace:
                    self._watch(10)
            except (_Over, KeyboardInterrupt):
                pass
            finally:
                with _undisturbed():
                    self._end()

    # -- the parts -------------------------------------------------------------------------------

    def _master(self) -> str:
        """A cluster of two workers, if one can be started here; else this machine's cores."""
        if not sys.platform.startswith("linux"):
            self._tell("a local cluster needs Linux: no executor will come, the rest is shown on local[*]")
            return "local[*]"
        self._tell("starting a local cluster: two workers of one core each")
        self._cluster = LocalCluster(self._place / "cluster")
        with contextlib.suppress(PenstockError):
            self._cluster.down()  # of an earlier show that was killed
        try:
            return self._cluster.up(2, 1, 1024, "none")
        except PenstockError as error:
            self._tell(
                f"no cluster here ({error.primary}); no executor will come, the rest is shown on local[*]"
            )
            return "local[*]"

    def _start(self, master: str) -> None:
        at, lasting, factor = _SPIKE
        spike = factor if master.startswith("spark:") else 1.0
        made = f"rate={self._rate!r}, spike={spike!r}, at_seconds={at!r}, for_seconds={lasting!r}"
        (self._place / "show.py").write_text(
            f"from penstock.demos.show import build, generated\n\napp = build(generated({made}))\n"
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
        self._when("the service answers", lambda: self._get("/health"), _START_SECONDS)

    def _running(self) -> bool:
        status = self._get("/status")
        return bool(status) and status["phase"] == "running" and status["epochs"] > 0

    def _walks(self) -> Any:
        """The most frequent walks; none before the first are told."""
        answer = self._get("/jobs/patterns/answer")
        return answer and answer["rows"]

    def _watch(self, seconds: float) -> None:
        """Let it run for a while; then tell how it stands."""
        self._sleep(seconds * self._pace)
        status, walks = self._get("/status"), self._walks()
        if not status:
            return
        line = f"{status['events_per_second']:,.0f} events/s"
        if status["latency_seconds"]:
            line += f", latency p50 {status['latency_seconds']['p50']:.1f} s"
        if walks:
            best = walks[0]
            line += f"; most frequent walk: {best['pattern']} ({best['count']:,})"
            self._saw("click patterns live")
        self._tell(line)

    def _alter(self) -> None:
        query = (
            "SELECT path, COUNT(*) AS n FROM clicks WHERE status = 404\n"
            "GROUP BY path ORDER BY n DESC LIMIT 10 WINDOWING 5 SECONDS"
        )
        answer = self._http.patch("/jobs/popular", json={"query": query})
        if answer.is_success:
            self._tell(f"{answer.json()['says']}  (now: only pages that were not found)")
            self._saw("a job altered while it runs")
        else:
            self._tell(f"popular could not be altered: {answer.text}")

    def _scale(self) -> None:
        at, _, factor = _SPIKE
        self._tell(f"soon: {factor:g} times the load, which one executor cannot carry for long")

        def two() -> Any:
            engine = self._get("/engine")
            return engine if engine and len(engine["executors"]) > 1 else None

        engine = self._when("a second executor", two, at + _SCALE_SECONDS, must=False)
        if engine is None:
            self._tell("no second executor came in time: see Elasticity on the dashboard for why")
            return
        why = [
            one for one in (engine["elastic"] or {}).get("decisions", []) if one["decision"] == "provision"
        ]
        self._tell(
            f"a second executor has come: {why[-1]['reason'] if why else 'asked for by the elastic loop'}"
        )
        self._saw("a scale-up under a spike")
        self._watch(5)

    def _killed(self, master: str) -> None:
        status = self._get("/status") or {"epoch": -1}
        self._tell(f"killing the engine (SIGKILL) after epoch {status['epoch']:,}")
        self._kill()
        self._start(master)

        def back() -> Any:
            found = self._get("/recovery")
            return found and found["restarts"] and found["restarts"][-1]["first_epoch"] is not None and found

        found = self._when("the engine is back", back, _BACK_SECONDS, must=False)
        if found is None:
            self._tell(
                f"not back after {_BACK_SECONDS:.0f} s; its log: {self._place / 'state' / 'engine.log'}"
            )
            return
        last = found["restarts"][-1]
        gap = "" if last["gap_seconds"] is None else f", {last['gap_seconds']:.1f} s without results"
        self._tell(f"it is back with epoch {last['first_epoch']:,}{gap}; nothing lost, nothing counted twice")
        self._saw("an engine killed and back")

    # -- doing -----------------------------------------------------------------------------------

    def _get(self, path: str) -> Any:
        try:
            answer = self._http.get(path)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None

    def _when(self, what: str, found: Callable[[], Any], seconds: float, *, must: bool = True) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise self._died()
            if answer := found():
                return answer
            self._sleep(0.5)
        if must:
            raise ExternalError(
                "SHOW_STUCK", f"{what}: not within {seconds:g} s", hint=f"See {self._place / 'serve.log'}."
            )
        return None

    def _died(self) -> ExternalError:
        said = (self._place / "serve.log").read_text(errors="replace").strip().splitlines()
        return ExternalError(
            "SHOW_ENDED",
            "the service ended by itself",
            detail=said[-1][:500] if said else None,
            hint=f"See {self._place / 'serve.log'}; penstock demo --no-ui runs without it.",
        )

    def _sleep(self, seconds: float) -> None:
        wake = time.monotonic() + seconds
        if self._until is not None and wake >= self._until:
            time.sleep(max(self._until - time.monotonic(), 0))
            raise _Over
        time.sleep(seconds)

    def _saw(self, what: str) -> None:
        if what not in self._shown:
            self._shown.append(what)

    def _tell(self, line: str) -> None:
        self._tell_line(f"{clock(time.monotonic() - self._began):>5}  {line}")

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
        self._tell(f"shown: {', '.join(self._shown) or 'nothing yet'}")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Nobody who presses Ctrl-C twice leaves a cluster behind."""
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
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

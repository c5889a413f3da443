"""The comparison: every peer on every workload in turn, each in a process of its own, raw runs written at once.

Runs that are in the folder are not made again, so a
comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.benchmark import ShowProgress
from bench.peers import data, feeder
from bench.peers.environments import interpreter
from bench.peers.raw import MACHINE, Run, agreement, name_of, one, read, write_run
from bench.peers.roster import (
    PEERS,
    PROGRAMS,
    WORKLOADS,
    Peer,
    Workload,
    code_lines,
    events_of,
    left_out,
)
from bench.peers.watched import tree, watched
from bench.processes import ROOT, end_tree, environment
from penstock import __version__
from penstock.errors import UserError
from penstock.spark.java import java_home

_LATENCY_LINES = 400_000


@dataclass(frozen=True)
class Size:
    """How much is measured. `most_rate`: of a live input, events a second, however fast an engine is."""

    events: int = 4_000_000
    runs: int = 3
    limit_seconds: float = 300.0
    live_seconds: float = 60.0
    most_rate: float = 100_000.0


QUICK = Size(events=100_000, runs=1, limit_seconds=120.0, live_seconds=40.0, most_rate=10_000.0)


def chosen(only: Sequence[str]) -> list[tuple[Workload, Peer]]:
    """The pairs that are wanted: `only` names workloads, peers or `workload:peer`; nothing means all.

    Workloads come in their order, and in each the plain batch program first: its answer is the reference.
    """
    names = [part for text in only for part in text.split(",") if part]
    for name in names:
        workload, _, peer = name.rpartition(":")
        if (workload and workload not in WORKLOADS) or peer not in (
            {*PEERS} if workload else {*PEERS, *WORKLOADS}
        ):
            known = ", ".join([*WORKLOADS, *PEERS])
            raise UserError(
                "BENCH_UNKNOWN", f"there is neither a workload nor a peer {name!r}", hint=f"Known: {known}."
            )
    pairs = {name for name in names if ":" in name}
    workloads, peers = {*names} & {*WORKLOADS}, {*names} & {*PEERS}
    return [
        (workload, peer)
        for workload in WORKLOADS.values()
        for peer in PEERS.values()
        if not names
        or f"{workload.name}:{peer.name}" in pairs
        or (
            (workloads or peers)
            and workload.name in (workloads or WORKLOADS)
            and peer.name in (peers or PEERS)
        )
    ]


class Comparison:
    """One comparison, whose runs are in a folder."""

    def __init__(
        self, size: Size, folder: Path, inputs: Path, show_progress: ShowProgress, *, busy_again: bool = False
    ) -> None:
        """`busy_again`: runs that are there count for nothing if anything else took much of the machine meanwhile."""
        self._commit, self._has_reported_older = commit(), False
        self._size, self._folder, self._inputs, self._show_progress = size, folder, inputs, show_progress
        self._busy_again, self._began = busy_again, datetime.now(UTC).isoformat(timespec="seconds")

    def run(self, pairs: Sequence[tuple[Workload, Peer]]) -> Iterator[Run]:
        """Make the runs that are not there yet; yield each as it ends, its result compared."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / MACHINE).write_text(json.dumps(self._machine(), indent=1) + "\n")
        skipped: set[str] = set()
        for number in range(1, self._size.runs + 1):
            for workload, peer in pairs:
                reason = left_out(peer, workload)
                python = interpreter(peer)
                if reason is None and isinstance(python, str):
                    if peer.name not in skipped:
                        self._show_progress(f"{peer.title} is skipped: {python}")
                    skipped.add(peer.name)
                elif reason is None:
                    yield from self._compared(workload, peer, Path(python), number)

    def _machine(self) -> dict[str, Any]:
        """What is known of the machine, and with which sizes its runs were made."""
        path, size = self._folder / MACHINE, self._size
        before = json.loads(path.read_text()).get("sizes", []) if path.exists() else []
        options = f"--events {size.events} --runs {size.runs} --limit {size.limit_seconds:g}"
        return {**machine(), "sizes": list(dict.fromkeys([*before, options])), "most_rate": size.most_rate}

    def prepare(self, pairs: Sequence[tuple[Workload, Peer]]) -> None:
        """Make the inputs that these pairs need, so that no time is lost with it later."""
        for workload, peer in pairs:
            if left_out(peer, workload) is None:
                self._input(workload, events_of(peer, workload, self._size.events))

    def _input(self, workload: Workload, events: int) -> Path:
        events = _LATENCY_LINES if workload.program == "latency" else events
        return data.made(workload.kind, events, self._inputs)

    def _compared(self, workload: Workload, peer: Peer, python: Path, number: int) -> Iterator[Run]:
        """A run that is not there yet; before it, on the same events, the one of the reference and, for who streams,
        Penstock's: it is faster on more events, so only equal ones compare."""
        live = workload.program == "latency"
        events = 0 if live else events_of(peer, workload, self._size.events)
        beside = (
            [("polars", 1)] if peer.name in ("duckdb", "penstock") else [("polars", 1), ("penstock", number)]
        )
        wanted = [] if live or peer.name == "polars" else beside
        if self._failed_before(workload, peer, events, number):
            return
        own = [(PEERS[name], Path(sys.executable), which) for name, which in wanted]
        for who, interpreted, which in [*own, (peer, python, number)]:
            if self._wanted(workload, who, events, which):
                made = self._one(workload, who, interpreted, events, which)
                write_run(made, self._folder)
                yield next(run for run in agreement(read(self._folder)) if run.name == made.name)

    def _wanted(self, workload: Workload, peer: Peer, events: int, number: int) -> bool:
        """Whether a run is to be made: not there yet, and no run before it failed or took too long."""
        last = self._earlier_run(workload, peer, events, number)
        if last is not None and not (self._busy_again and last.busy and last.began < self._began):
            if peer.name == "penstock" and last.made_by != self._commit and not self._has_reported_older:
                self._has_reported_older = True
                self._show_progress(
                    f"runs of Penstock there are of {last.made_by or 'no known commit'}, not {self._commit}"
                )
            return False
        return not self._failed_before(workload, peer, events, number)

    def _failed_before(self, workload: Workload, peer: Peer, events: int, number: int) -> bool:
        runs = [self._earlier_run(workload, peer, events, earlier) for earlier in range(1, number)]
        return any(run is not None and run.status != "ok" for run in runs)

    def _earlier_run(self, workload: Workload, peer: Peer, events: int, number: int) -> Run | None:
        path = self._folder / name_of(workload.name, peer.name, events, number)
        return one(path) if path.exists() else None

    def _one(self, workload: Workload, peer: Peer, python: Path, events: int, number: int) -> Run:
        live = workload.program == "latency"
        source = self._input(workload, events)
        rate = self._half_load(peer) if live else 0.0
        output = f", {rate:,.0f} events a second" if live else f", {events:,} events"
        self._show_progress(f"{workload.name}: {peer.title}, run {number} of {self._size.runs}{output}")
        facts: dict[str, Any] = {
            "workload": workload.name,
            "peer": peer.name,
            "number": number,
            "events": events,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "code_lines": code_lines(peer, workload),
            "rate": rate,
            "made_by": self._commit,
        }
        with tempfile.TemporaryDirectory(prefix="penstock-peers-") as scratch:
            place = Path(scratch)
            out = place / "out.json"
            command = [str(python), str(peer.path), workload.program, str(source), str(out)]
            command += ["--cores", str(cores()), "--jobs", str(workload.jobs)]
            feeding = None
            if live:
                feeder.prepared(place / "live")
                command[3] = str(place / "live")
                command += ["--seconds", str(self._size.live_seconds)]
                feeding = self._feeding(source, place / "live", rate)
            try:
                done = watched(
                    command, self._environment(peer, python), place / "log", self._size.limit_seconds, place
                )
            finally:
                fed = 0.0
                if feeding is not None:
                    _, fed = tree(feeding.pid)
                    end_tree(feeding)
            facts |= {"wall": done.wall, "peak_bytes": done.peak_bytes, "cpu_seconds": done.cpu_seconds}
            facts["others"] = max(0.0, done.others - fed / done.wall)
            if done.code is None:
                return Run(
                    **facts, status="timeout", reason=f"not done after {self._size.limit_seconds:.0f} s"
                )
            if done.code or not out.exists():
                printed = (place / "log").read_text(errors="replace").replace(str(place), "...").strip()
                return Run(**facts, status="failed", reason=f"it ended with code {done.code}: {why(printed)}")
            output = json.loads(out.read_text())
        facts |= {name: output[name] for name in ("seconds", "answer", "versions", "settings")}
        if live:
            facts["delays"] = delays(output["answer"])
            if not facts["delays"]:
                return Run(**facts, status="failed", reason="it emitted no window while it was fed")
            if lacking := gaps(output["answer"]):
                return Run(
                    **facts, status="wrong", reason=f"{lacking} windows between others were not emitted"
                )
        return Run(**facts, status="ok")

    def _half_load(self, peer: Peer) -> float:
        """Half of what a peer managed in the windows workload, at most what is allowed."""
        speeds = [
            run.events_per_second
            for run in self._runs()
            if (run.workload, run.peer) == ("windows", peer.name)
        ]
        return min(
            self._size.most_rate, statistics.median(speeds) / 2 if speeds else self._size.most_rate / 10
        )

    def _runs(self) -> list[Run]:
        try:
            return [run for run in agreement(read(self._folder)) if run.status == "ok"]
        except UserError:
            return []

    def _feeding(self, source: Path, live: Path, rate: float) -> subprocess.Popen[bytes]:
        seconds = self._size.live_seconds + self._size.limit_seconds
        command = [
            sys.executable,
            "-m",
            "bench.peers.feeder",
            str(source),
            str(live),
            str(rate),
            str(seconds),
        ]
        return subprocess.Popen(command, env=environment(), start_new_session=True)

    def _environment(self, peer: Peer, python: Path) -> dict[str, str]:
        """Variables of a peer's process: only Penstock's own programs see Penstock."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
        env |= {
            "PYTHONDONTWRITEBYTECODE": "1",
            "TZ": "UTC",
            "PATH": f"{python.parent}{os.pathsep}{env.get('PATH', '')}",
        }
        if peer.java:
            env["JAVA_HOME"] = java_home()
        if peer.name == "penstock":
            env["PYTHONPATH"] = str(ROOT)
        elif peer.name == "pyspark":
            env["PYTHONPATH"] = str(PROGRAMS)
        return env


def why(printed: str) -> str:
    """What a program that failed has to say: the innermost cause where it names causes, else its last lines."""
    causes = [line for line in printed.splitlines() if line.startswith("Caused by: ")]
    return causes[-1][:800] if causes else "\n".join(printed.splitlines()[-6:])[-800:]


def delays(answer: dict[str, Any]) -> list[float]:
    """Seconds from when a window of one second and the lateness were over to when its rows were at hand.

    The first windows are left out: engines start while the input is already flowing and have to catch up first.
    """
    windows = sorted(tuple(map(float, text.split("|"))) for text in answer.get("few", []))
    found = [at - (start + 1 + 2) for start, at in windows]
    return found[len(found) // 3 :]


def gaps(answer: dict[str, Any]) -> int:
    """Count windows of a live input that are missing between the first and the last emitted: each second has events."""
    starts = sorted(int(float(text.split("|")[0])) for text in answer.get("few", []))
    return starts[-1] - starts[0] + 1 - len(set(starts)) if starts else 0


def commit() -> str:
    """Of which commit the programs are; "-dirty" behind it: with changes."""
    options = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(options, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"release {__version__}"


def cores() -> int:
    """How many cores a process may use here."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = shutil.which("java")
    output = (
        subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr if java else ""
    )
    return {
        "cores": cores(),
        "memory_gib": round(memory / (1 << 30)),
        "system": platform.system(),
        "machine": platform.machine(),
        "java": output.splitlines()[0] if output else "Penstock's own",
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")

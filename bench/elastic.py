"""The elastic benchmark: what it costs that executors come and go, on a local cluster of real Spark processes.

It yields findings once every disturbed run has emitted the same rows as the undisturbed one.

Cases:
- `scale`: from one executor to two and back under a steady load, with a state that is on disk and in caches; the worst
  epoch beside the usual one, by each protocol that this query allows and by the one that the estimate takes.
- `bucket`: one bucket moved between two executors.
- `surge`: a live load that triples and falls again, followed by the loop; how many changes it made.
- `overhead`: the same files at full speed with and without the loop.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.benchmark import Benchmark, ShowProgress
from bench.elastic_run import RunFacts, Script, Step
from bench.findings import Finding, Target, ratio
from bench.worker import run_module
from penstock.cluster.local import LocalCluster
from penstock.epoch.migration_cost import Protocol
from penstock.errors import InternalError
from penstock.logs.generated import ORIGIN, GeneratedLog

BENCH = "elastic"
#: by name; the pages that a visitor saw last never end, so they cannot be recreated
PROTOCOLS: dict[str, Protocol | None] = {"warm": "warm", "estimated": None, "immediate": "immediate"}
#: epochs of a scale run before, between and after its two steps
_CALM = 12
#: how many buckets are moved one by one
_BUCKET_MOVES = 5


@dataclass(frozen=True)
class Size:
    """How much is measured. `visitors` decide the size of the state: some 67 bytes each."""

    visitors: int = 4_700_000
    filling_events: int = 13_000_000
    epoch_events: int = 20_000
    #: of what one executor can do, before the load triples
    surge_share: float = 0.29
    surge_seconds: float = 150.0
    overhead_events: int = 1_500_000
    runs: int = 3


QUICK = Size(60_000, 200_000, 8_000, 0.29, 100.0, 200_000, 1)
#: more events a second than any executor can do, to see how many it can; and for how long, in seconds
_FLOOD, _FLOOD_SECONDS = 1e6, 25.0
_LOOP = ("window_seconds=6s", "patience_seconds=12s", "cool_down_seconds=15s", "most_executors=3")


class Elastic(Benchmark):
    """The cases of the benchmark."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        return {"scale": self.scale, "bucket": self.bucket, "surge": self.surge, "overhead": self.overhead}

    # -- cases -----------------------------------------------------------------------------------

    def scale(self) -> Iterator[Finding]:
        """Scale from one executor to two and back."""
        epochs = 3 * _CALM + 6
        with self._filled_cluster(epochs, workers=2) as (url, root):
            calm = self._run("undisturbed", self._script(url, root, "calm"), root)
            for name, protocol in PROTOCOLS.items():
                steps: tuple[tuple[int, Step], ...] = (
                    (0, "place"),
                    (_CALM, "grow"),
                    (2 * _CALM + 3, "shrink"),
                )
                script = replace(self._script(url, root, name), steps=steps, protocol=protocol)
                facts = self._run(f"1 to 2 and back, {name}", script, root)
                self._check_digest(calm, facts)
                yield from self._move_findings(f"1 to 2 to 1 executors, {name}", name, facts, worst=1.0)

    def bucket(self) -> Iterator[Finding]:
        """Move one bucket of sixteen; then the next, five in all."""
        steps: tuple[tuple[int, Step], ...] = ((0, "place"), *((_CALM, "bucket"),) * _BUCKET_MOVES)
        with self._filled_cluster(2 * _CALM + 9 * _BUCKET_MOVES, workers=2) as (url, root):
            script = replace(self._script(url, root, "moved"), executors=2, protocol="warm", steps=steps)
            facts = self._run("one bucket at a time", script, root)
            yield from self._move_findings("one bucket", "warm", facts, pause=0.3)

    def surge(self) -> Iterator[Finding]:
        """Triple the load and lower it again: at first little enough for one executor, then more than its share."""
        size, case = self._size, "load triples and falls"
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, self._cluster(3) as url:
            root, lasting = Path(folder), size.surge_seconds
            flood = Script(
                url, "", f"{root}/state-flood", f"{root}/out-flood", rate=_FLOOD, seconds=_FLOOD_SECONDS
            )
            can = self._run("what one executor can do", flood, root)
            most = sum(can.events[1:]) / sum(can.seconds[1:])
            script = Script(
                url,
                "",
                str(root / "state"),
                str(root / "out"),
                rate=most * size.surge_share,
                spike=(lasting / 4, lasting * 0.35, 3.0),
                seconds=lasting,
                elastic=_LOOP,
            )
            facts = self._run("a load that triples", script, root)
        made = [one["decision"] for one in facts.decisions]
        grown = [used for used, there in zip(facts.utilisation, facts.executors, strict=True) if there > 1]
        yield self._finding(case, "one executor", "events/s", most)
        yield self._finding(case, "load before", "events/s", most * size.surge_share)
        yield self._finding(case, "provisions", "times", made.count("provision"), Target(1, "at most"))
        yield self._finding(case, "decommissions", "times", made.count("decommission"), Target(1, "at most"))
        yield self._finding(case, "most executors", "executors", max(facts.executors), Target(2))
        yield self._finding(
            case, "executors at the end", "executors", facts.executors[-1], Target(1, "at most")
        )
        yield self._finding(case, "utilisation once grown", "share", statistics.median(grown or [0.0]))
        # an engine that has just started does not know its speed yet
        yield self._finding(case, "longest backlog", "s", max(facts.backlog_seconds[_CALM:]))
        yield self._finding(case, "backlog at the end", "s", facts.backlog_seconds[-1], Target(2, "at most"))

    def overhead(self) -> Iterator[Finding]:
        """Run with the elastic loop and without."""
        rates: dict[str, list[float]] = {"static": [], "elastic": []}
        loops = {"static": (), "elastic": ("least_executors=2", "most_executors=2")}
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, self._cluster(2) as url:
            root = Path(folder)
            self._lines(root / "files", self._size.overhead_events, 1)
            for run in range(self._size.runs):
                for name, elastic in loops.items():
                    state, out = (str(root / f"{kind}-{name}-{run}") for kind in ("state", "out"))
                    script = Script(url, f"{root}/files/*.log", state, out, executors=2, elastic=elastic)
                    facts = self._run(f"{name}, run {run + 1} of {self._size.runs}", script, root)
                    rates[name].append(sum(facts.events) / facts.run_seconds)
        static, elastic_ = (
            Finding(BENCH, "overhead", name, "throughput", "events/s", tuple(values))
            for name, values in rates.items()
        )
        yield static
        yield elastic_
        yield ratio("elastic over static", elastic_, static, Target(0.97))

    # -- what they share -------------------------------------------------------------------------

    @contextmanager
    def _filled_cluster(self, epochs: int, workers: int) -> Iterator[tuple[str, Path]]:
        """Start a cluster; yield it and a folder with a filled state and files for so many epochs."""
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, self._cluster(workers) as url:
            root = Path(folder)
            self._show_progress("writing lines")
            self._lines(root / "files", self._size.filling_events, 1)
            filling = Script(url, f"{root}/files/*.log", f"{root}/filled", f"{root}/out-filled", executors=2)
            self._run("filling the state", filling, root)
            self._lines(root / "files", epochs * self._size.epoch_events, 2, after=self._size.filling_events)
            yield url, root

    @contextmanager
    def _cluster(self, workers: int) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as folder:
            cluster = LocalCluster(Path(folder))
            self._show_progress(f"starting a cluster of {workers}")
            try:
                yield cluster.up(workers, 1, 1536, "none")
            finally:
                cluster.down()

    def _lines(self, folder: Path, events: int, seed: int, after: int = 0) -> None:
        """Append so many lines to two files; they follow `after` earlier ones."""
        made = GeneratedLog(
            partitions=2,
            seed=seed,
            users=self._size.visitors,
            zipf_users=0.1,
            rate=self._size.epoch_events,
            total=events,
            live=False,
            start_time=ORIGIN + timedelta(seconds=after / self._size.epoch_events),
        )
        folder.mkdir(exist_ok=True)
        for file in made.materialise(folder.with_name("lines")):
            with open(folder / file.name, "ab") as grown, open(file, "rb") as lines:
                shutil.copyfileobj(lines, grown)

    def _script(self, url: str, root: Path, name: str) -> Script:
        """Return a run that continues from the filled state, an epoch a second."""
        state, out = root / f"state-{name}", root / f"out-{name}"
        shutil.copytree(root / "filled", state)
        shutil.copytree(root / "out-filled", out)
        return Script(
            url,
            f"{root}/files/*.log",
            str(state),
            str(out),
            epoch_events=self._size.epoch_events,
            interval_seconds=1.0,
        )

    def _run(self, what: str, script: Script, root: Path) -> RunFacts:
        self._show_progress(what)
        run_module("bench.elastic_run", [json.dumps(asdict(script)), str(root)], what, root)
        return RunFacts(**json.loads((root / "found.json").read_text()))

    def _check_digest(self, one: RunFacts, other: RunFacts) -> None:
        if one.digest != other.digest:
            raise InternalError("BENCH_DISAGREES", "a run with moves emitted other rows than the one without")

    def _move_findings(
        self,
        case: str,
        engine: str,
        facts: RunFacts,
        *,
        worst: float | None = None,
        pause: float | None = None,
    ) -> Iterator[Finding]:
        """Return the findings of a run with moves; `worst` and `pause` are targets of the warm protocol."""
        if facts.left:
            steps = ", ".join(facts.left)
            raise InternalError("BENCH_FAILED", f"the run was over before all steps were: {steps}")
        targets = {
            name: Target(most, "at most")
            for name, most in (("worst", worst), ("pause", pause))
            if most is not None and engine == "warm"
        }
        before, after = facts.seconds[2:_CALM], facts.seconds[_CALM:-2]
        usual = statistics.median(before)
        yield self._finding(case, "state", "MB", facts.state_bytes / 1e6, engine=engine)
        yield self._finding(case, "usual epoch", "s", usual, engine=engine)
        yield self._finding(case, "worst before, beyond usual", "s", max(before) - usual, engine=engine)
        yield self._finding(
            case, "worst after, beyond usual", "s", max(after) - usual, targets.get("worst"), engine
        )
        moves: dict[str, list[dict[str, Any]]] = {}
        for _, step, moved in facts.moves:
            if not moved["done"]:
                raise InternalError("BENCH_FAILED", f"a move was not made: {moved['reason']}")
            moves.setdefault(step, []).append(moved)
        for step, made in moves.items():
            if step == "place":
                continue
            paused = [one["pause_seconds"] or 0.0 for one in made]
            yield self._finding(case, f"{step}: pause", "s", paused, targets.get("pause"), engine)
            yield self._finding(
                case, f"{step}: moved", "MB", [one["bytes"] / 1e6 for one in made], None, engine
            )
            yield self._finding(
                case, f"{step}: until done", "s", [one["seconds"] for one in made], None, engine
            )

    def _finding(
        self,
        case: str,
        metric: str,
        unit: str,
        value: float | Sequence[float],
        target: Target | None = None,
        engine: str = "penstock",
    ) -> Finding:
        values = (value,) if isinstance(value, int | float) else value
        return Finding(BENCH, case, engine, metric, unit, tuple(map(float, values)), target)

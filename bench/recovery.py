"""The recovery benchmark: real units of engines on Spark whose leader is killed; the gap that the sink sees.

It yields findings scheme by scheme.

Cases:
- one for each scheme: the leader is killed with SIGKILL repeatedly while events come at a steady rate. The gap is
  the longest time without a result, from the last one before the kill on; beside it until the failure was detected,
  and what the unit's controller had estimated before the kill.
- `controller`: the controller picks the scheme while the load changes and the leader is killed.
- `overhead`: what epoch records, manifests and leases cost in throughput, against an engine without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import recovery_controlled, recovery_cost
from bench.benchmark import Benchmark, ShowProgress
from bench.findings import Finding, Target, ratio
from bench.recovery_load import VISITOR_BYTES
from bench.recovery_unit import Kill, LoadedUnit, folder
from penstock.ha.process_usage import ProcessUsage
from penstock.ha.schemes import SCHEMES, Scheme

BENCH = "recovery"
#: the cases that are no scheme
CONTROLLER, OVERHEAD = recovery_controlled.CASE, "overhead"
#: how much longer than detecting the failure a gap may be, in seconds
_BEYOND_DETECTION = {
    Scheme.active_standby: 1.0,
    Scheme.passive_hot: 2.0,
    Scheme.deployed: 5.0,
    Scheme.passive_replication: 20.0,
}
#: with active replication: how long a gap may be, which is how long an epoch may be, in seconds
_ONE_EPOCH = 1.0
_LEAST_ESTIMATE = 0.7


@dataclass(frozen=True)
class Size:
    """How much. `calm_seconds`: how long the use of resources is looked at; `step_seconds`: one load of the trace."""

    state_megabytes: float = 50.0
    rate: float = 2_000.0
    kills: int = 5
    calm_seconds: float = 20.0
    overhead_events: int = 3_000_000
    runs: int = 5
    step_seconds: float = 75.0
    master: str = "local[1]"


QUICK = Size(5.0, 1_000.0, 1, 5.0, 300_000, 1, 10.0)


class Recovery(Benchmark):
    """The cases of the benchmark."""

    def __init__(self, size: Size, show_progress: ShowProgress) -> None:
        super().__init__(show_progress)
        self._size = size

    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""
        of_schemes = {str(scheme): partial(self.scheme, scheme) for scheme in SCHEMES}
        return {**of_schemes, CONTROLLER: self.controller, OVERHEAD: self.overhead}

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """Say that all engines run on this machine."""
        return ["engines on several machines are not measured: all run on this one"]

    # -- cases -----------------------------------------------------------------------------------

    def scheme(self, scheme: Scheme) -> Iterator[Finding]:
        """Measure one scheme: at rest, then with kills."""
        with self._unit(str(scheme), "--scheme", scheme) as unit:
            unit.switch_scheme(scheme)
            state_bytes = unit.state_bytes
            self._show_progress(f"{scheme}: nothing fails")
            usage, gaps_between = unit.measure_usage_of(self._size.calm_seconds)
            kills = []
            for number in range(self._size.kills):
                unit.switch_scheme(scheme)
                self._show_progress(f"{scheme}: kill {number + 1} of {self._size.kills}")
                kills.append(unit.kill(scheme))
        yield from self._kill_findings(scheme, kills)
        yield self._finding(scheme, "usual time between results", "s", *gaps_between)
        yield self._finding(scheme, "state", "MB", state_bytes / 1e6)
        for name, one in usage.items():
            yield from self._use_findings(scheme, name, one)

    def controller(self) -> Iterator[Finding]:
        """Measure the controller over a trace of loads with kills."""
        threshold = f"{recovery_controlled.THRESHOLD_SECONDS:g}s"
        with self._unit(CONTROLLER, "--recovery-time", threshold, "--checkpoint-every", "auto") as unit:
            yield from recovery_controlled.follow_trace(
                unit, self._size.rate, self._size.step_seconds, self._show_progress
            )

    def overhead(self) -> Iterator[Finding]:
        """Measure throughput with records, manifests and a lease, and without."""
        rates: dict[str, list[float]] = {name: [] for name in recovery_cost.KINDS}
        with folder() as root:
            files = recovery_cost.write_files(Path(root), self._size.overhead_events)
            for run in range(self._size.runs):
                for name in recovery_cost.KINDS:
                    self._show_progress(f"{name}, run {run + 1} of {self._size.runs}")
                    rates[name].append(recovery_cost.rate(name, files, self._size.master))
        bare, whole = (
            Finding(BENCH, OVERHEAD, name, "throughput", "events/s", tuple(values))
            for name, values in rates.items()
        )
        yield bare
        yield whole
        yield ratio("records, manifests and lease over none", whole, bare, Target(0.95))

    # -- what they share -------------------------------------------------------------------------

    @contextmanager
    def _unit(self, case: str, *options: str) -> Iterator[LoadedUnit]:
        with folder() as root:
            self._show_progress(f"{case}: starting a unit, filling its state")
            unit = LoadedUnit(
                Path(root),
                options,
                visitors=int(self._size.state_megabytes * 1e6 / VISITOR_BYTES),
                rate=self._size.rate,
                master=self._size.master,
                show_progress=self._show_progress,
            )
            try:
                unit.feeder.start()
                unit.results(1)
                yield unit
            finally:
                unit.close()

    def _kill_findings(self, scheme: Scheme, kills: list[Kill]) -> Iterator[Finding]:
        gaps = [kill.gap for kill in kills]
        one_epoch = Target(_ONE_EPOCH, "at most") if scheme is Scheme.active_replication else None
        yield self._finding(scheme, "gap", "s", *gaps, target=one_epoch)
        yield self._finding(scheme, "first result after the kill", "s", *(kill.after for kill in kills))
        yield self._finding(scheme, "detected after", "s", *(kill.detected for kill in kills))
        most = _BEYOND_DETECTION.get(scheme)
        yield self._finding(
            scheme,
            "gap beyond detection",
            "s",
            *(kill.gap - kill.detected for kill in kills),
            target=None if most is None else Target(most, "at most"),
        )
        yield self._finding(scheme, "estimate", "s", *(kill.estimated for kill in kills))
        yield self._finding(
            scheme,
            "least estimate over gap",
            "times",
            min(kill.estimated / kill.gap for kill in kills),
            target=Target(_LEAST_ESTIMATE),
        )

    def _use_findings(self, scheme: Scheme, name: str, usage: ProcessUsage) -> Iterator[Finding]:
        seconds = self._size.calm_seconds
        yield self._finding(scheme, "CPU while nothing fails", "cores", usage.cpu_seconds / seconds, of=name)
        yield self._finding(scheme, "memory", "MB", usage.memory_bytes / 1e6, of=name)
        yield self._finding(scheme, "written", "kB/s", usage.written_bytes / 1e3 / seconds, of=name)

    def _finding(
        self,
        scheme: Scheme,
        metric: str,
        unit: str,
        *values: float,
        target: Target | None = None,
        of: str = "penstock",
    ) -> Finding:
        return Finding(BENCH, str(scheme), of, metric, unit, tuple(map(float, values)), target)

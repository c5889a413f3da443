"""The controller on a real unit: a changing load, kills at random, and what the user's threshold cost.

It measures the gaps at the sink, and the cost of the scheme in force beside that
of constant active replication in the same instants.

A kill comes at a random moment of each step of the trace, but not before the follower that the scheme needs is ready:
that two engines are lost at once is more than any scheme of two engines makes up for.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.benchmark import ShowProgress
from bench.findings import Finding, Target
from bench.recovery_unit import Kill, LoadedUnit
from penstock.errors import ExternalError
from penstock.ha.cost import RESOURCES, CostWeights, Use, overhead
from penstock.ha.history import Load
from penstock.ha.process_usage import measure_usage
from penstock.ha.schemes import Scheme

BENCH, CASE = "recovery", "controller"
THRESHOLD_SECONDS = 10.0
#: the load, step by step, as multiples of the usual rate
TRACE = (0.5, 1.0, 4.0, 8.0, 2.0, 0.5)
_LOOK_SECONDS = 0.5
_MOST_COST = 0.6


class Ledger(threading.Thread):
    """Samples the scheme in force and its cost on a thread; close it at the end."""

    def __init__(self, unit: LoadedUnit) -> None:
        super().__init__(daemon=True)
        self._unit, self._stop = unit, threading.Event()
        #: samples by the scheme in force
        self.samples: Counter[Scheme] = Counter()
        #: and by the epochs from one durable manifest to the next
        self.intervals: Counter[int] = Counter()
        #: what was in force took, and what active replication would have taken then
        self.uses: list[tuple[Use, Use]] = []
        self.weights = CostWeights()
        #: what the engines took, by their part in the unit: CPU seconds, and bytes of memory at each look
        self.cpu_seconds: dict[str, float] = defaultdict(float)
        self.memory: dict[str, float] = defaultdict(float)
        self._seen: dict[int, float] = {}

    def run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                record, controller = self._unit.unit.record(), self._unit.unit.controller()
                pids = self._unit.pids()
            except ExternalError:
                continue
            self.samples[record.scheme] += 1
            self.intervals[record.checkpoint_every] += 1
            self.uses.append(in_force(controller, record.scheme, record.checkpoint_every))
            for part, pid in pids.items():
                if part != "coordinator":
                    used = measure_usage(pid)
                    self.cpu_seconds[part] += max(used.cpu_seconds - self._seen.get(pid, used.cpu_seconds), 0)
                    self.memory[part] += used.memory_bytes
                    self._seen[pid] = used.cpu_seconds

    def close(self) -> None:
        self._stop.set()
        self.join()

    def means(self) -> tuple[Use, Use]:
        """What was in force took in the mean, and what active replication would have, in multiples of the primary's."""
        ours, active = zip(*self.uses, strict=True)
        return _mean(ours), _mean(active)

    def cost_shares(self) -> tuple[float, float]:
        """What fault tolerance cost, and what everything cost, as shares of those of active replication."""
        ours, active = map(self.weights.cost, self.means())
        return ours / active, (1.0 + ours) / (1.0 + active)


def in_force(controller: Mapping[str, Any], scheme: Scheme, every: int) -> tuple[Use, Use]:
    """What a scheme and interval take, and active replication with a durable manifest every epoch, at the load that
    the controller saw last; before it has seen one, that they take the same."""
    loads = controller.get("loads", ())
    cpu = controller.get("decision", {}).get("inputs", {}).get("safe_manifest")
    if not loads or cpu is None:
        return Use(1.0, 1.0, 1.0, 1.0), Use(1.0, 1.0, 1.0, 1.0)
    load = Load(**loads[-1])
    return overhead(scheme, load, every, cpu), overhead(Scheme.active_replication, load, 1, cpu)


def _mean(uses: Sequence[Use]) -> Use:
    return Use(*(statistics.fmean(column) for column in zip(*uses, strict=True)))


def follow_trace(
    unit: LoadedUnit,
    rate: float,
    step_seconds: float,
    show_progress: ShowProgress,
    *,
    trace: Sequence[float] = TRACE,
    seed: int = 1,
) -> Iterator[Finding]:
    """Take a unit through the trace."""
    draw, kills, schemes = random.Random(seed), list[Kill](), list[Scheme]()
    unit.wait_until_ready()
    ledger = Ledger(unit)
    ledger.start()
    try:
        for number, times in enumerate(trace, 1):
            unit.feeder.rate = times * rate
            until = time.monotonic() + step_seconds
            show_progress(f"controller: step {number} of {len(trace)}, {times * rate:,.0f} events a second")
            time.sleep(draw.uniform(0.3, 0.8) * step_seconds)
            unit.wait_until_ready()
            schemes.append(unit.unit.record().scheme)
            kills.append(unit.kill(schemes[-1]))
            show_progress(f"controller: killed under {schemes[-1]}, a gap of {kills[-1].gap:.2f} s")
            time.sleep(max(until - time.monotonic(), 0.0))
    finally:
        ledger.close()
    yield _finding("gap", "s", *(kill.gap for kill in kills))
    longest = max(kill.gap for kill in kills)
    yield _finding("longest gap", "s", longest, target=Target(THRESHOLD_SECONDS, "at most"))
    yield _finding("estimate", "s", *(kill.estimated for kill in kills))
    for scheme, samples in ledger.samples.most_common():
        yield _finding("share of the time", "of 1", samples / ledger.samples.total(), of=str(scheme))
    epochs = sum(every * samples for every, samples in ledger.intervals.items()) / ledger.intervals.total()
    yield _finding("epochs between durable manifests, in the mean", "epochs", epochs)
    for scheme, count in Counter(schemes).items():
        yield _finding("kills", "times", count, of=str(scheme))
    alone, whole = ledger.cost_shares()
    most = Target(_MOST_COST, "at most")
    yield _finding("cost over that of constant active replication", "times", alone, target=most)
    yield _finding("the same with the primary's own cost", "times", whole)
    ours, active = ledger.means()
    for resource, part, beside in zip(RESOURCES, ours, active, strict=True):
        yield _finding(f"taken in the mean: {resource}", "of the primary's", part)
        yield _finding(f"taken in the mean: {resource}", "of the primary's", beside, of="active-replication")
    for what, by_part in (("CPU", ledger.cpu_seconds), ("memory", ledger.memory)):
        share = by_part["secondary"] / by_part["primary"]
        yield _finding(f"{what} of the secondaries over the primaries'", "times", share)


def _finding(
    metric: str, unit: str, *values: float, target: Target | None = None, of: str = "penstock"
) -> Finding:
    return Finding(BENCH, CASE, of, metric, unit, tuple(map(float, values)), target)

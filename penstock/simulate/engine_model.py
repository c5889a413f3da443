"""Models an engine that fails: the true durations, with noise that the controller does not know. Seeded.

Receives rates, state sizes and failures; returns an engine's measurements and the steps of its recoveries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from penstock.errors import UserError
from penstock.ha.history import Load, Measured, Measurement
from penstock.ha.schemes import SCHEMES, Scheme, Semantics, Step, steps


@dataclass(frozen=True)
class Truth:
    """Median values of what the controller has to learn by measuring."""

    #: a lease expires this long after the last heartbeat; the interval of heartbeats
    lease_seconds: float = 2.0
    heartbeat_seconds: float = 0.5
    start_seconds: float = 12.0
    wire_seconds: float = 0.4
    deliver_seconds: float = 0.2
    load_bytes_per_second: float = 80e6
    fetch_bytes_per_second: float = 150e6
    manifest_cpu_seconds: float = 0.03
    epoch_seconds: float = 1.0
    #: an overloaded epoch takes longer, up to this
    longest_epoch_seconds: float = 5.0
    most_events_per_second: float = 250_000.0
    cores: float = 4.0
    event_bytes: float = 200.0
    #: bytes of results and of changed state for each byte of input
    output_share: float = 0.05
    run_share: float = 0.25
    engine_bytes: float = 1.4e9
    idle_bytes: float = 0.9e9
    idle_cores: float = 0.05
    #: how much a duration varies: the deviation of its logarithm
    noise: float = 0.12

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not math.isfinite(value) or value < 0 or (value == 0 and one.name != "noise"):
                raise UserError("BAD_MODEL", f"the model's {one.name} is {value:g}, which is not possible")


@dataclass(frozen=True)
class Recovery:
    """A failure and its recovery."""

    at: float
    scheme: Scheme
    checkpoint_every: int
    seconds: float
    #: what the controller estimated at that moment
    estimated_seconds: float
    step_seconds: dict[str, float]
    within_threshold: bool


class EngineModel:
    """The engine. Draws from its own random numbers; the same seed gives the same engine."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self.truth = truth
        self._random = np.random.default_rng([seed, 99])

    def load(self, at: float, rate: float, state_bytes: float) -> Load:
        """The primary's load at a rate."""
        truth = self.truth
        done = min(rate, truth.most_events_per_second)
        fill = rate / truth.most_events_per_second
        epoch = truth.epoch_seconds * min(max(fill, 1.0), truth.longest_epoch_seconds / truth.epoch_seconds)
        arriving = done * truth.event_bytes
        busy = truth.cores * done / truth.most_events_per_second
        return Load(
            at,
            rate,
            truth.most_events_per_second,
            arriving,
            arriving * truth.output_share,
            state_bytes,
            arriving * truth.run_share * epoch,
            epoch,
            truth.idle_cores + busy,
            truth.engine_bytes + state_bytes,
            truth.idle_cores,
            truth.idle_bytes,
            lag_seconds=0.1 * epoch,
        )

    def measure_load(self, load: Load) -> Load:
        """Measure the load: the measured throughput differs a little from the true one."""
        speed = load.most_events_per_second * math.exp(-abs(self._random.normal(0.0, 0.03)))
        return Load(**{**vars(load), "most_events_per_second": speed})

    def start_secondary(self, scheme: Scheme) -> tuple[list[Measurement], float]:
        """Start a secondary; returns its measurements and how long it takes."""
        truth = self.truth
        start, wire = self._noisy(truth.start_seconds), self._noisy(truth.wire_seconds)
        measured: list[Measurement] = [
            Measured("start", start),
            Measured("wire", wire),
            Measured("deliver", self._noisy(truth.deliver_seconds)),
            Measured("load", truth.load_bytes_per_second / self._noisy(1.0)),
            Measured("fetch", truth.fetch_bytes_per_second / self._noisy(1.0)),
            Measured("manifest", self._noisy(truth.manifest_cpu_seconds)),
        ]
        return measured, (start + wire) if SCHEMES[scheme].up else 0.0

    def switch_seconds(self, before: Scheme, after: Scheme, load: Load) -> float:
        """How long it takes until a scheme protects fully; until then the previous one does."""
        old, new = SCHEMES[before], SCHEMES[after]
        seconds = 0.0
        if new.up and not old.up:
            seconds += self._noisy(self.truth.start_seconds)
        has_state, wants_state = (f.follows_runs or f.runs_epochs for f in (old, new))
        if wants_state and not has_state:
            seconds += load.state_bytes / self.truth.load_bytes_per_second * self._noisy(1.0)
        if new.runs_epochs and not old.runs_epochs:
            seconds += load.epoch_seconds
        return seconds

    def recover(
        self, scheme: Scheme, checkpoint_every: int, semantics: Semantics, load: Load
    ) -> dict[str, float]:
        """Recover from a failure at a random moment between two durable manifests; how long each step takes."""
        truth = self.truth
        since = self._random.uniform(0.0, checkpoint_every) * load.epoch_seconds
        again = since + load.epoch_seconds
        middle = {
            Step.overtake: load.epoch_seconds * self._random.uniform(0.3, 1.0) + load.lag_seconds,
            Step.detect: truth.lease_seconds + self._random.uniform(-0.5, 0.5) * truth.heartbeat_seconds,
            Step.start: truth.start_seconds,
            Step.load: load.state_bytes / truth.load_bytes_per_second,
            Step.wire: truth.wire_seconds,
            Step.fetch: load.input_bytes_per_second * again / truth.fetch_bytes_per_second,
            Step.replay: load.events_per_second * again / truth.most_events_per_second,
            Step.deliver: truth.deliver_seconds,
        }
        exact, done = (Step.overtake, Step.detect), steps(scheme, semantics)
        if Step.detect in done:
            middle[Step.overtake] = max(middle[Step.overtake] - middle[Step.detect], 0.0)
        return {step.value: middle[step] if step in exact else self._noisy(middle[step]) for step in done}

    def _noisy(self, middle: float) -> float:
        return middle * math.exp(self._random.normal(0.0, self.truth.noise))

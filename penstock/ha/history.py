"""Folds measurements of an HA unit into safe figures for estimates, with defaults for what is not measured yet. Pure.

Invariants:
- A figure is on the safe side: of durations a high quantile, of speeds a low one; of few measurements the worst, with
  a surcharge.
- Folding in parts gives the same as folding at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from penstock.ha.schemes import Scheme
from penstock.moved import former_names

#: measurements retained of each figure
KEPT = 50
#: loads retained, from which the next minutes are estimated
LOADS_KEPT = 12
#: with fewer measurements than this the worst one counts, with a surcharge
ENOUGH = 8
QUANTILE = 0.9


@dataclass(frozen=True)
class Figure:
    """A figure that recoveries, switches and checkpoints measure."""

    name: str
    unit: str
    #: the value until it is measured: worse than on any known machine
    default: float
    #: whether large values are bad, as of durations; of speeds small ones are
    large_is_bad: bool
    meaning: str


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("detect", "seconds", 5.0, True, "from the failure until the end of the lease is seen"),
        Figure("start", "seconds", 45.0, True, "from the start of an engine until it is warmed up"),
        Figure("wire", "seconds", 3.0, True, "acquiring the lease, opening source and sinks"),
        Figure("deliver", "seconds", 2.0, True, "delivering held results"),
        Figure("load", "bytes/s", 10e6, False, "reading the state of a manifest into memory"),
        Figure("fetch", "bytes/s", 10e6, False, "reading input from the log"),
        Figure("manifest", "CPU seconds", 0.2, True, "CPU for writing one durable manifest"),
    )
}


@dataclass(frozen=True)
class Measured:
    """One measurement of a figure."""

    figure: str
    value: float


@dataclass(frozen=True)
class Recovered:
    """A recovery: how long it took, and the sum of the estimated steps."""

    scheme: Scheme
    expected_seconds: float
    measured_seconds: float


@dataclass(frozen=True)
class ReportedLoad:
    """What a leader reports of the epochs of the last period, by its own clock (see `Load`)."""

    at: float
    events_per_second: float
    most_events_per_second: float
    input_bytes_per_second: float
    output_bytes_per_second: float
    state_bytes: float
    run_bytes: float
    epoch_seconds: float
    work_seconds: float = 0.0
    run_growth: float = 1.0

    def to_load(self, at: float, cpu_cores: float, memory_bytes: float) -> Load:
        """The load at a time of another clock, with the leader's use of its machine."""
        return Load(**{**asdict(self), "at": at}, cpu_cores=cpu_cores, memory_bytes=memory_bytes)


@dataclass(frozen=True)
class Load:
    """What the leader did in the last period."""

    at: float
    events_per_second: float
    #: events per second that it can process if it need not wait for them
    most_events_per_second: float
    input_bytes_per_second: float
    output_bytes_per_second: float
    state_bytes: float
    #: state that one epoch writes
    run_bytes: float
    epoch_seconds: float
    cpu_cores: float
    memory_bytes: float
    #: CPU and memory of an idle engine
    idle_cpu_cores: float = 0.05
    idle_memory_bytes: float = 1e9
    #: how far a follower that executes epochs is behind the leader
    lag_seconds: float = 0.0
    #: time to process an epoch; 0: computed from events and speed, which is too little for small epochs
    work_seconds: float = 0.0
    #: the exponent by which the bytes of a durable manifest grow with the checkpoint interval: 1 if nothing is saved,
    #: less if runs are merged or dropped before they are written
    run_growth: float = 1.0
    #: whether a second engine was starting, or still catching up with earlier epochs
    settling: bool = False


Measurement = Measured | Recovered | Load


@former_names(folded="fold")
@dataclass(frozen=True)
class History:
    """All measurements that still count."""

    seen: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: measured divided by expected time of the recoveries of each scheme
    ratios: Mapping[Scheme, tuple[float, ...]] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    #: the value of each figure until it is measured
    defaults: Mapping[str, float] = field(default_factory=lambda: {n: f.default for n, f in FIGURES.items()})
    #: the safe value of each measured figure
    known: Mapping[str, float] = field(default_factory=dict)
    #: by what share of the expected time the recoveries of a scheme took longer; 0 for never
    excess: Mapping[Scheme, float] = field(default_factory=dict)

    def safe(self, figure: str) -> float:
        """The value to estimate with."""
        return self.known.get(figure) or self.defaults[figure]

    def fold(self, measurements: Iterable[Measurement]) -> History:
        """The history with these measurements; values that are not numbers are ignored."""
        seen, ratios, loads = dict(self.seen), dict(self.ratios), self.loads
        figures, schemes = set(), set()
        for one in measurements:
            if isinstance(one, Load):
                loads = (*loads[1 - LOADS_KEPT :], one)
            elif isinstance(one, Measured):
                if math.isfinite(one.value) and one.value > 0 and one.figure in FIGURES:
                    seen[one.figure] = (*seen.get(one.figure, ())[1 - KEPT :], one.value)
                    figures.add(one.figure)
            elif one.expected_seconds > 0 and math.isfinite(one.measured_seconds):
                ratio = one.measured_seconds / one.expected_seconds
                ratios[one.scheme] = (*ratios.get(one.scheme, ())[1 - KEPT :], ratio)
                schemes.add(one.scheme)
        return History(
            seen,
            ratios,
            loads,
            self.defaults,
            {**self.known, **{name: _safe(name, seen[name], self.defaults[name]) for name in figures}},
            {**self.excess, **{s: max(max(ratios[s]) - 1.0, 0.0) for s in schemes}},
        )


def _safe(figure: str, values: tuple[float, ...], default: float) -> float:
    """The safe side of some values: their quantile, or the worst with a surcharge while they are few."""
    large_is_bad = FIGURES[figure].large_is_bad
    bad_last = sorted(values, reverse=not large_is_bad)
    worst, count = bad_last[-1], len(values)
    if count >= ENOUGH:
        return bad_last[math.ceil(QUANTILE * count) - 1]
    surcharge = 1.0 + 0.5 / count
    if large_is_bad:
        return max(worst, min(worst * surcharge, default))
    return min(worst, max(worst / surcharge, default))


@dataclass(frozen=True)
class Outlook:
    """The load to expect until the next change takes effect: the worst of the last loads, and their trend."""

    events_per_second: float
    most_events_per_second: float
    input_bytes_per_second: float
    state_bytes: float
    epoch_seconds: float
    lag_seconds: float
    work_seconds: float = 0.0


def outlook(loads: tuple[Load, ...], ahead_seconds: float) -> Outlook:
    """The load to expect within so many seconds, from the last loads."""
    if not loads:
        raise ValueError("an outlook needs a load")
    events = _ahead([load.events_per_second for load in loads], loads, ahead_seconds)
    most_seen = max(load.events_per_second for load in loads)
    growing = events / most_seen if most_seen > 0 else 1.0
    usual = tuple(load for load in loads if not load.settling) or loads
    return Outlook(
        events,
        min(load.most_events_per_second for load in usual),
        max(load.input_bytes_per_second for load in loads) * growing,
        _ahead([load.state_bytes for load in loads], loads, ahead_seconds),
        max(load.epoch_seconds for load in usual),
        _lag(loads),
        max(load.work_seconds for load in usual) * max(growing, 1.0),
    )


def _lag(loads: tuple[Load, ...]) -> float:
    """How far a follower may be behind: the most since it had caught up; until it has, how far it is now."""
    now = loads[-2:] if loads[-1].settling else ()
    return max(
        (load.lag_seconds for load in (*now, *(load for load in loads if not load.settling))), default=0.0
    )


def _ahead(values: list[float], loads: tuple[Load, ...], ahead_seconds: float) -> float:
    """The largest value, plus the trend from the older half to the newer, extrapolated."""
    half = len(values) // 2
    if not half:
        return values[-1]
    older, newer = sum(values[:half]) / half, sum(values[-half:]) / half
    passed = (loads[-1].at - loads[0].at) * (len(values) - half) / max(len(values) - 1, 1)
    slope = (newer - older) / passed if passed > 0 else 0.0
    return max(values) + max(slope, 0.0) * ahead_seconds

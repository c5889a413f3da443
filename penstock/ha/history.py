"""What is measured of an HA unit, and a pure fold over it: safe figures of what was seen, defaults for what was not.

Receives measurements, each once; hands a `History` that says what to reckon with.

Invariants:
- A figure is on the safe side: of durations a high quantile, of speeds a low one; of a few measurements the worst
  and some more.
- Folding in parts gives what folding at once gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from penstock.ha.schemes import Scheme

#: measurements kept of each figure
KEPT = 50
#: loads kept: what the next minutes are reckoned from
LOADS_KEPT = 12
#: with fewer measurements than this the worst one is taken, and some more
ENOUGH = 8
QUANTILE = 0.9


@dataclass(frozen=True)
class Figure:
    """One figure that recoveries, switches and checkpoints measure."""

    name: str
    unit: str
    #: reckoned with until it was measured: worse than any machine we know
    default: float
    #: whether a large one is bad, as of a duration; of a speed a small one is
    large_is_bad: bool
    meaning: str


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("detect", "seconds", 5.0, True, "from the failure to the lease's end being seen"),
        Figure("start", "seconds", 45.0, True, "from asking for an engine until it is warmed up"),
        Figure("wire", "seconds", 3.0, True, "taking the lease, opening source and sinks"),
        Figure("deliver", "seconds", 2.0, True, "delivering what was held back"),
        Figure("load", "bytes/s", 10e6, False, "reading state of a manifest into memory"),
        Figure("fetch", "bytes/s", 10e6, False, "reading input from the log"),
        Figure("manifest", "CPU seconds", 0.2, True, "CPU that writing one durable manifest takes"),
    )
}


@dataclass(frozen=True)
class Measured:
    """One measurement of a figure."""

    figure: str
    value: float


@dataclass(frozen=True)
class Recovered:
    """A recovery that happened: how long it took, and the sum of the steps that had been reckoned with."""

    scheme: Scheme
    expected_seconds: float
    measured_seconds: float


@dataclass(frozen=True)
class ReportedLoad:
    """What a primary reports of the epochs of the last period, by its own clock (see `Load`)."""

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
        """It as the load at an instant of another clock, with what the primary takes of its machine."""
        return Load(**{**asdict(self), "at": at}, cpu_cores=cpu_cores, memory_bytes=memory_bytes)


@dataclass(frozen=True)
class Load:
    """What the primary did in the last period."""

    at: float
    events_per_second: float
    #: events it can process a second when it need not wait for them
    most_events_per_second: float
    input_bytes_per_second: float
    output_bytes_per_second: float
    state_bytes: float
    #: state that one epoch writes anew
    run_bytes: float
    epoch_seconds: float
    cpu_cores: float
    memory_bytes: float
    #: CPU and memory of an engine that is up and does nothing
    idle_cpu_cores: float = 0.05
    idle_memory_bytes: float = 1e9
    #: how far a secondary that runs epochs is behind the primary
    lag_seconds: float = 0.0
    #: what processing an epoch takes; 0: as its events and the speed say. Of small epochs it is more than that
    work_seconds: float = 0.0
    #: by which power of the epochs between two durable manifests the runs grow that one of them brings to disk: 1 if
    #: nothing is saved; less, since what was merged or dropped meanwhile is not written
    run_growth: float = 1.0
    #: whether a secondary was starting, or still catching up with epochs that were over when it began to follow
    settling: bool = False


Measurement = Measured | Recovered | Load


@dataclass(frozen=True)
class History:
    """Everything measured so far that still counts."""

    seen: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: measured over expected time of the recoveries of each scheme
    ratios: Mapping[Scheme, tuple[float, ...]] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    #: figure: what to reckon with until it was measured
    defaults: Mapping[str, float] = field(default_factory=lambda: {n: f.default for n, f in FIGURES.items()})
    #: figure: what to reckon with, where it was measured
    known: Mapping[str, float] = field(default_factory=dict)
    #: scheme: by how much of the expected time its recoveries took longer; 0 for never
    excess: Mapping[Scheme, float] = field(default_factory=dict)

    def safe(self, figure: str) -> float:
        """What to reckon with."""
        return self.known.get(figure) or self.defaults[figure]

    def fold(self, measurements: Iterable[Measurement]) -> History:
        """The history with these measurements too; those that are not numbers are passed over."""
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
    """The safe side of a few values: their quantile, but the worst and some more while they are few."""
    large_is_bad = FIGURES[figure].large_is_bad
    bad_last = sorted(values, reverse=not large_is_bad)
    worst, count = bad_last[-1], len(values)
    if count >= ENOUGH:
        return bad_last[math.ceil(QUANTILE * count) - 1]
    some_more = 1.0 + 0.5 / count
    if large_is_bad:
        return max(worst, min(worst * some_more, default))
    return min(worst, max(worst / some_more, default))


@dataclass(frozen=True)
class Outlook:
    """What to reckon with until the next change can be made: the worst of the last loads, and their trend drawn on."""

    events_per_second: float
    most_events_per_second: float
    input_bytes_per_second: float
    state_bytes: float
    epoch_seconds: float
    lag_seconds: float
    work_seconds: float = 0.0


def outlook(loads: tuple[Load, ...], ahead_seconds: float) -> Outlook:
    """The worst that the last loads let expect within so many seconds."""
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
    """How far a secondary may be behind: as far as it was since it had caught up; until it has, as far as it is."""
    now = loads[-2:] if loads[-1].settling else ()
    return max(
        (load.lag_seconds for load in (*now, *(load for load in loads if not load.settling))), default=0.0
    )


def _ahead(values: list[float], loads: tuple[Load, ...], ahead_seconds: float) -> float:
    """The greatest value, plus what the trend from the older half to the newer adds in the time ahead."""
    half = len(values) // 2
    if not half:
        return values[-1]
    older, newer = sum(values[:half]) / half, sum(values[-half:]) / half
    passed = (loads[-1].at - loads[0].at) * (len(values) - half) / max(len(values) - 1, 1)
    slope = (newer - older) / passed if passed > 0 else 0.0
    return max(values) + max(slope, 0.0) * ahead_seconds

"""Findings: what a benchmark says, one measured figure each, in the one language all benchmarks speak.

Receives the figures of all runs of an engine; hands JSON lines to scripts and rows to the table for people.

Invariants:
- `value` is the median of `runs`; nothing that was measured is left out of `runs`.
- `met` is told exactly where a `target` is asked for.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Sense = Literal["at least", "at most"]
#: units of which less is better
_LESS = ("us", "ms", "s", "bytes/key", "MB", "%")


@dataclass(frozen=True)
class Target:
    """A figure that is asked for."""

    value: float
    sense: Sense = "at least"

    def met(self, value: float) -> bool:
        return value >= self.value if self.sense == "at least" else value <= self.value


@dataclass(frozen=True)
class Finding:
    """One metric of one engine (or, as a ratio, of two) in one case."""

    bench: str
    case: str
    engine: str
    metric: str
    unit: str
    runs: tuple[float, ...]
    target: Target | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a finding needs at least one run")

    @property
    def value(self) -> float:
        """The median run."""
        return statistics.median(self.runs)

    @property
    def best(self) -> float:
        """The best run: of times, memory and shares of a core the least, of speeds the greatest."""
        less = self.unit in _LESS or (self.target is not None and self.target.sense == "at most")
        return min(self.runs) if less else max(self.runs)

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target; None when none is asked for."""
        return None if self.target is None else self.target.met(self.value)

    def to_json(self) -> str:
        """The finding as one line."""
        told: dict[str, object] = {
            "bench": self.bench,
            "case": self.case,
            "engine": self.engine,
            "metric": self.metric,
            "value": _rounded(self.value),
            "unit": self.unit,
            "runs": [_rounded(run) for run in self.runs],
        }
        if self.target is not None:
            told |= {"target": self.target.value, "met": self.met}
        return json.dumps(told)


def ratio(metric: str, one: Finding, other: Finding, target: Target | None = None) -> Finding:
    """How many times the one engine's figure is the other's, run by run."""
    pairs: Sequence[tuple[float, float]] = list(zip(one.runs, other.runs, strict=False))
    engines = f"{one.engine}/{other.engine}"
    return Finding(one.bench, one.case, engines, metric, "times", tuple(a / b for a, b in pairs), target)


def _rounded(value: float) -> float:
    """Four significant digits; more would be noise."""
    return float(f"{value:.4g}")

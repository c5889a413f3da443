"""Findings: the results of a benchmark, one metric each, in the format that all benchmarks share.

A finding has the values of all runs of an engine; it is a JSON line for scripts and a row of the table for people.

Invariants:
- `value` is the median of `runs`; nothing that was measured is left out of `runs`.
- `met` is present exactly where there is a `target`.
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
    """A bound that a metric has to meet."""

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
        """Whether the median reaches the target; None without a target."""
        return None if self.target is None else self.target.met(self.value)

    def to_json(self) -> str:
        """The finding as one line."""
        record: dict[str, object] = {
            "bench": self.bench,
            "case": self.case,
            "engine": self.engine,
            "metric": self.metric,
            "value": _rounded(self.value),
            "unit": self.unit,
            "runs": [_rounded(run) for run in self.runs],
        }
        if self.target is not None:
            record |= {"target": self.target.value, "met": self.met}
        return json.dumps(record)


def ratio(metric: str, one: Finding, other: Finding, target: Target | None = None) -> Finding:
    """Divide one engine's values by the other's, run by run."""
    pairs: Sequence[tuple[float, float]] = list(zip(one.runs, other.runs, strict=False))
    engines = f"{one.engine}/{other.engine}"
    return Finding(one.bench, one.case, engines, metric, "times", tuple(a / b for a, b in pairs), target)


def _rounded(value: float) -> float:
    """Four significant digits; more would be noise."""
    return float(f"{value:.4g}")

"""Fits costs: a fixed part for each run and a part for each event, from runs of different sizes. Pure.

Receives the number of events and the seconds of each run; returns the two parts, neither negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: the largest run must have so many times the events of the smallest for the parts to be separated
MINIMUM_RATIO = 2.0
#: times within this ratio are about the same
SIMILAR_RATIO = 1.5


@dataclass(frozen=True)
class Parts:
    """Seconds that are fixed, and seconds an event."""

    fixed: float = 0.0
    each: float = 0.0

    def of(self, events: float) -> float:
        """Seconds that one run with so many events takes."""
        return self.fixed + self.each * events


def fit_parts(events: npt.ArrayLike, seconds: npt.ArrayLike) -> Parts:
    """Fit the parts. Where all runs had about as many events, or more events took less time, everything is counted by
    the event: that errs on the side of too many cores. The fixed part is at most what the shortest run took; it is
    everything where twice the events took about as long."""
    n, s = np.asarray(events, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not n.sum() > 0:
        return Parts(float(s.mean()) if s.size else 0.0)
    by_event = Parts(0.0, float(s.sum() / n.sum()))
    if n.max() < MINIMUM_RATIO * n.min():
        return by_event
    each = float(((n - n.mean()) * (s - s.mean())).sum() / ((n - n.mean()) ** 2).sum())
    if each <= 0 and s.max() <= SIMILAR_RATIO * s.min():
        return Parts(float(s.mean()))
    fixed = min(float(s.mean() - each * n.mean()), float(s.min()))
    if each <= 0 or fixed <= 0:
        return by_event
    return Parts(fixed, float((s - fixed).sum() / n.sum()))

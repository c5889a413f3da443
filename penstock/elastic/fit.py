"""What something costs: a fixed part each time and a part an event, told apart by times of different size. Pure.

Receives how many events there were each time and how long it took; hands the two parts, neither below nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: the largest must be so many times the smallest for the parts to be told from each other
APART = 1.3


@dataclass(frozen=True)
class Parts:
    """Seconds that are fixed, and seconds an event."""

    fixed: float = 0.0
    each: float = 0.0

    def of(self, events: float) -> float:
        """Seconds that so many events take at once."""
        return self.fixed + self.each * events


def fitted(events: npt.ArrayLike, seconds: npt.ArrayLike) -> Parts:
    """The parts that fit best. Where all had about as many events, everything is counted by the event."""
    n, s = np.asarray(events, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not n.sum() > 0:
        return Parts(float(s.mean()) if s.size else 0.0)
    by_event = Parts(0.0, float(s.sum() / n.sum()))
    if n.max() < APART * n.min():
        return by_event
    each = float(((n - n.mean()) * (s - s.mean())).sum() / ((n - n.mean()) ** 2).sum())
    if each <= 0:
        return Parts(float(s.mean()))
    fixed = float(s.mean() - each * n.mean())
    return Parts(fixed, each) if fixed > 0 else by_event

"""What something costs: a fixed part each time and a part an event, told apart by times of different size. Pure.

Receives how many events there were each time and how long it took; hands the two parts, neither below nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: the largest must be so many times the smallest for the parts to be told from each other
APART = 2.0
#: times that differ by less than this are about the same
ALIKE = 1.5


@dataclass(frozen=True)
class Parts:
    """Seconds that are fixed, and seconds an event."""

    fixed: float = 0.0
    each: float = 0.0

    def of(self, events: float) -> float:
        """Seconds that so many events take at once."""
        return self.fixed + self.each * events


def fitted(events: npt.ArrayLike, seconds: npt.ArrayLike) -> Parts:
    """The parts that fit best. Where all had about as many events, or more of them took less, everything is counted by
    the event: that errs on the side of too many cores. Nothing is fixed that the smallest did not take; all is where
    twice the events took about as long."""
    n, s = np.asarray(events, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not n.sum() > 0:
        return Parts(float(s.mean()) if s.size else 0.0)
    by_event = Parts(0.0, float(s.sum() / n.sum()))
    if n.max() < APART * n.min():
        return by_event
    each = float(((n - n.mean()) * (s - s.mean())).sum() / ((n - n.mean()) ** 2).sum())
    if each <= 0 and s.max() <= ALIKE * s.min():
        return Parts(float(s.mean()))
    fixed = min(float(s.mean() - each * n.mean()), float(s.min()))
    if each <= 0 or fixed <= 0:
        return by_event
    return Parts(fixed, float((s - fixed).sum() / n.sum()))

"""Searches among rows that stand grouped by key and, within a key, in order of time. Pure NumPy.

Receives `Ordered` rows; hands row numbers. One sorted array of whole numbers stands for (key, time), so all
searches of an epoch are one binary search each, whatever the number of keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.operators.strict import Ordered

Ints = npt.NDArray[np.int64]


class Timeline:
    """The times of ordered rows, for finding rows by key and time."""

    def __init__(self, ordered: Ordered, times: Ints) -> None:
        self.times = times
        self.number = ordered.number
        #: for each key the row after its last
        self.ends: Ints = np.append(np.flatnonzero(ordered.first)[1:], len(times))
        self._least, self._greatest = int(times.min()), int(times.max())
        self._ranks: Ints | None = None
        span, keys = self._greatest - self._least + 1, len(self.ends)
        if (span + 1) * keys >= 2**62:  # too wide for one number: times by their rank
            self._ranks = np.unique(times)
            span = len(self._ranks)
        self._span = span
        self._codes = self._coded(self.number, times)

    def first_from(self, keys: Ints, times: Ints) -> Ints:
        """For each pair of a key's number and a time: the key's first row at or after it, else the key's end."""
        found = self.ends[keys]
        near = np.flatnonzero(times <= self._greatest)  # what lies beyond all rows need not be looked for
        found[near] = np.searchsorted(self._codes, self._coded(keys[near], times[near]))
        return found

    def _coded(self, keys: Ints, times: Ints) -> Ints:
        if self._ranks is not None:
            within = np.searchsorted(self._ranks, times)
        else:
            within = np.clip(times, self._least, self._least + self._span) - self._least
        return keys * (self._span + 1) + within


def mark_chain(first: Ints, following: Ints) -> npt.NDArray[np.bool_]:
    """Marks the rows that are come by from the rows `first`, going from each row to the one `following` it.

    `following` leads forward; the number of rows means nowhere. Takes as many rounds as the longest chain's
    length has bits.
    """
    rows = len(following)
    jump = np.append(following, rows)
    marked = np.zeros(rows + 1, dtype=bool)
    marked[first] = marked[rows] = True
    while True:
        reached = jump[np.flatnonzero(marked)]
        if marked[reached].all():
            return marked[:rows]
        marked[reached] = True
        jump = jump[jump]

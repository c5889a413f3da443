"""Search rows by key and time, among rows that are grouped by key and sorted by time within a key. Pure NumPy.

One sorted array of integers stands for (key, time), so each search of an epoch is one binary search, whatever the
number of keys. Searches return row numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.operators.strict import Ordered

Ints = npt.NDArray[np.int64]


class Timeline:
    """The times of ordered rows, searchable by key and time."""

    def __init__(self, ordered: Ordered, times: Ints) -> None:
        self.times = times
        self.number = ordered.number
        #: for each key the row after its last
        self.ends: Ints = np.append(np.flatnonzero(ordered.first)[1:], len(times))
        self._least, self._greatest = int(times.min()), int(times.max())
        self._ranks: Ints | None = None
        span, keys = self._greatest - self._least + 1, len(self.ends)
        if (span + 1) * keys >= 2**62:  # too wide for one number: use the ranks of the times
            self._ranks = np.unique(times)
            span = len(self._ranks)
        self._span = span
        self._codes = self._encode(self.number, times)

    def first_from(self, keys: Ints, times: Ints) -> Ints:
        """For each pair of a key's number and a time: the key's first row at or after it, else the key's end."""
        found = self.ends[keys]
        near = np.flatnonzero(times <= self._greatest)  # later times have no row
        found[near] = np.searchsorted(self._codes, self._encode(keys[near], times[near]))
        return found

    def _encode(self, keys: Ints, times: Ints) -> Ints:
        if self._ranks is not None:
            within = np.searchsorted(self._ranks, times)
        else:
            within = np.clip(times, self._least, self._least + self._span) - self._least
        return keys * (self._span + 1) + within


def mark_chain(first: Ints, following: Ints) -> npt.NDArray[np.bool_]:
    """Mark the rows that are reached from the rows `first` by going from each row to the one `following` it.

    `following` leads forward; the number of rows means that a chain ends. Takes as many rounds as the length of the
    longest chain has bits.
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

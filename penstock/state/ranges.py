"""Ranges of row numbers, spelled out. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def members(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All numbers from each `low` to before its `high`, range after range: the range's number, and the number."""
    counts = np.maximum(high - low, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(np.arange(len(low)), counts), np.arange(total) + np.repeat(low - (ends - counts), counts)

"""Which events of a partition are late, by the order in which they came. Pure; whoever reads first asks here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.operators.contract import NEVER

Instants = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class Judged(NamedTuple):
    """`ahead`: dated beyond what is believed. `behind`: late. `noticed`: the newest time before each event.
    `highest`: the newest believed time with all of them."""

    ahead: Marks
    behind: Marks
    noticed: Instants
    highest: int


def judged(times: Instants, highest: int, floor: int, bound: int, lateness: int) -> Judged:
    """What to make of one or more events of a partition, the newest before them being `highest`.

    `floor` is the watermark: what is before it is late whatever its partition has seen.
    """
    ahead = times > bound
    newest = np.maximum.accumulate(np.where(ahead, NEVER, times))
    noticed = np.maximum(np.append(highest, np.maximum(newest, highest)[:-1]), floor)
    behind = times < np.maximum(noticed - lateness, floor)
    return Judged(ahead, behind, noticed, max(highest, int(newest[-1])))

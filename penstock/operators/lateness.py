"""Which events of a partition are late, by the order in which they came. Pure; whoever reads first asks here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.operators.contract import NEVER

Instants = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class EventLateness(NamedTuple):
    """`future`: dated beyond what is believed. `late`: late. `newest_before`: the newest time before each event.
    `highest`: the newest believed time with all of them."""

    future: Marks
    late: Marks
    newest_before: Instants
    highest: int


def classify_events(times: Instants, highest: int, floor: int, bound: int, lateness: int) -> EventLateness:
    """What to make of one or more events of a partition, the newest before them being `highest`.

    `floor` is the watermark: what is before it is late whatever its partition has seen.
    """
    future = times > bound
    newest = np.maximum.accumulate(np.where(future, NEVER, times))
    newest_before = np.maximum(np.append(highest, np.maximum(newest, highest)[:-1]), floor)
    late = times < np.maximum(newest_before - lateness, floor)
    return EventLateness(future, late, newest_before, max(highest, int(newest[-1])))

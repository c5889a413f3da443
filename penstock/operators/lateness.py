"""Decide which events of a partition are late or dated in the future, by the order in which they arrived. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.operators.contract import NEVER

Instants = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class EventLateness(NamedTuple):
    """What each event of a partition is."""

    #: dated beyond what is believed
    future: Marks
    late: Marks
    #: the newest time before each event
    newest_before: Instants
    #: the newest believed time, with all of these events
    highest: int


def classify_events(times: Instants, highest: int, floor: int, bound: int, lateness: int) -> EventLateness:
    """Classify one or more events of a partition. `highest` is the newest time before them.

    `floor` is the watermark: an event before it is late whatever its partition has had. An event after `bound` is a
    future event.
    """
    future = times > bound
    newest = np.maximum.accumulate(np.where(future, NEVER, times))
    newest_before = np.maximum(np.append(highest, np.maximum(newest, highest)[:-1]), floor)
    late = times < np.maximum(newest_before - lateness, floor)
    return EventLateness(future, late, newest_before, max(highest, int(newest[-1])))

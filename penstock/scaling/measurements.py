"""Defines the measurements of a running engine in a period: a typed snapshot for the elastic loop.

Receives an engine's counts and times of a period; returns a `Snapshot` to the loop.

Invariants:
- A bucket belongs to exactly one slice; a slice lies on one executor, or on none (it is vacant and has no buckets).
- Arrays of a stage have one element a bucket (or one a slice where their name says so) and are never changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from penstock.moved import former_names

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: the executor of a slice that has none
VACANT = ""


@former_names(sub_query="stage")
@dataclass(frozen=True, eq=False)
class Measured:
    """One stage in one period."""

    stage: str
    period_seconds: float
    #: events of the whole engine that arrived in the logs, and that were executed, a second: an epoch takes all stages
    #: through the same events. Its own rows are `bucket_events`
    input_rate: float
    processing_rate: float
    backlog_events: float
    #: task seconds spent in the period, including what is charged to no bucket
    busy_seconds: float
    #: task seconds spent on each bucket
    bucket_seconds: Floats
    #: processed events of each bucket
    bucket_events: Floats
    #: state of each bucket
    bucket_bytes: Floats
    #: the slice of each bucket
    bucket_map: Ints
    #: the executor of each slice; VACANT where a slice has none
    placement: tuple[str, ...]
    #: bytes that were exchanged to it, a second
    exchange_bytes: float = 0.0
    #: events a second that can be processed while there is a backlog, 0 if not known; None: the present rate
    speed: float | None = None
    #: how much of `busy_seconds` does not depend on the number of events
    fixed_seconds: float = 0.0

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """Which slices have an executor."""
        return _live(self.placement)

    @cached_property
    def cost_seconds(self) -> float:
        """Task seconds an event, without the fixed ones."""
        return (self.busy_seconds - self.fixed_seconds) / max(
            self.processing_rate * self.period_seconds, 1e-9
        )

    @property
    def utilisation(self) -> float:
        """Task time over the time that the cores of its slices had."""
        return self.busy_seconds / (self.period_seconds * max(int(self.live.sum()), 1))

    @property
    def backlog_seconds(self) -> float:
        """How long the backlog takes at the present speed; for a stage that processes nothing, at a thousandth of its
        input rate. NaN where the speed is not known."""
        if self.speed is not None and self.backlog_events:
            return self.backlog_events / self.speed if self.speed > 0 else math.nan
        return self.backlog_events / max(self.processing_rate, self.input_rate * 1e-3, 1e-9)

    def slice_utilisation(self) -> Floats:
        """The utilisation of each slice that has an executor."""
        seconds = np.zeros(len(self.placement))
        np.add.at(seconds, self.bucket_map, self.bucket_seconds)
        used: Floats = seconds[self.live] / self.period_seconds
        return used

    @property
    def imbalance(self) -> float:
        """Standard deviation of the utilisation of its slices."""
        return float(self.slice_utilisation().std()) if self.live.any() else 0.0


@dataclass(frozen=True, eq=False)
class Fleet:
    """The active executors, in columns, and the names of spare ones."""

    ids: tuple[str, ...]
    cores: Ints
    cpu: Floats
    memory: Floats
    spare: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of active executors."""
        return len(self.ids)

    @cached_property
    def all_cores(self) -> int:
        """The cores of the active executors."""
        return int(self.cores.sum())

    @property
    def cores_each(self) -> float:
        """Cores of a usual executor."""
        return float(np.median(self.cores)) if self.ids else 1.0


@former_names(sub_queries="stages")
@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything measured in one period that ended at `at`, in seconds of any clock that does not go back."""

    at: float
    period_seconds: float
    fleet: Fleet
    stages: Mapping[str, Measured]
    epoch_seconds: float = 0.0
    epoch_target_seconds: float = 1.0
    #: False while only the first, cold epochs were measured: not to be used for decisions
    warm: bool = True

    @property
    def input_rate(self) -> float:
        """Events that arrived in the logs, a second."""
        return max((one.input_rate for one in self.stages.values()), default=0.0)

    @property
    def processing_rate(self) -> float:
        """Events that were executed, a second."""
        return max((one.processing_rate for one in self.stages.values()), default=0.0)

    @property
    def backlog_seconds(self) -> float:
        """The longest backlog of any stage."""
        return max((one.backlog_seconds for one in self.stages.values()), default=0.0)


@lru_cache(maxsize=64)
def _live(placement: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    return np.array([executor != VACANT for executor in placement], dtype=bool)


@lru_cache(maxsize=64)
def slice_executors(placement: tuple[str, ...], ids: tuple[str, ...]) -> Ints:
    """The index in `ids` of each slice's executor; -1 where it has none of these."""
    place = {name: at for at, name in enumerate(ids)}
    return np.array([place.get(name, -1) for name in placement], dtype=np.int64)

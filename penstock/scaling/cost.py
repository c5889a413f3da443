"""Estimates what a change costs and gains, in seconds, and how many executors a load needs. Pure.

Receives loads, bytes and the settings; returns values that a decision records beside its reason.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields

from penstock.moved import former_names
from penstock.scaling.settings import ElasticSettings

#: a load that is this much above a whole number of executors does not need one more
_ROUNDING = 1e-9


@former_names(seen="add_measurement")
@dataclass(frozen=True)
class Costs:
    """The recent costs of changes; the engine measures them, the simulator's model defines them."""

    #: from requesting an executor to its first task
    start_seconds: float = 10.0
    #: state that an executor reads a second when it warms up for a bucket
    bytes_per_second: float = 100e6
    #: how long an epoch is delayed when a bucket map changes
    pause_seconds: float = 0.3

    def add_measurement(
        self,
        start_seconds: float | None = None,
        bytes_per_second: float | None = None,
        pause_seconds: float | None = None,
    ) -> Costs:
        """Add the measured costs of a change: each value becomes the mean of the old and the new one."""
        return Costs(
            _average(self.start_seconds, start_seconds),
            _average(self.bytes_per_second, bytes_per_second),
            _average(self.pause_seconds, pause_seconds),
        )

    def to_json(self) -> str:
        """The costs as one line."""
        return json.dumps({one.name: float(f"{getattr(self, one.name):.6g}") for one in fields(self)})

    @staticmethod
    def from_json(text: str) -> Costs:
        """The costs of a line; the defaults where it cannot be read."""
        try:
            found = Costs(**{name: float(value) for name, value in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError):
            return Costs()
        possible = found.bytes_per_second > 0 and min(found.start_seconds, found.pause_seconds) >= 0
        return found if possible else Costs()

    def move_seconds(self, state_bytes: float, readers: int) -> float:
        """How long a move of so much state to so many executors takes; processing continues meanwhile."""
        return state_bytes / (self.bytes_per_second * max(readers, 1)) + self.pause_seconds


def _average(before: float, now: float | None) -> float:
    return before if now is None else (before + now) / 2


def needed_executors(load: float, waiting: float, cores_each: float, settings: ElasticSettings) -> int:
    """How many executors bring the input to the target utilisation and drain the backlog in time.

    The margin between target and upper utilisation may serve the backlog too: only what exceeds it needs more
    executors, so that a backlog does not leave a fleet that is too large.
    """
    for_input = load / (settings.target_utilisation * cores_each)
    for_both = (load + waiting / settings.drain_seconds) / (settings.upper_utilisation * cores_each)
    return max(math.ceil(max(for_input, for_both) - _ROUNDING), 1)


def provision_gain(load: float, cores: float, settings: ElasticSettings) -> float:
    """Seconds of work above the target that would accumulate within the horizon, on each core."""
    return max(load / cores - settings.target_utilisation, 0.0) * settings.horizon_seconds


def move_gain(busiest_before: float, busiest_after: float, settings: ElasticSettings) -> float:
    """Seconds by which the epochs of the horizon become shorter: each is as long as its busiest slice."""
    return max(busiest_before - busiest_after, 0.0) * settings.horizon_seconds

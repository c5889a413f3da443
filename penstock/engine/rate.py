"""Rate control: how much of the log the next epoch takes, so that epochs last about as long as asked. Pure.

Receives how long the last epoch took for how much; hands the budget of the next. The log waits, not memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RateControl:
    """The state of the controller. `budget` is in the log's units (bytes or records).

    `speed` is a smoothed units per second as experienced, the fixed cost of an epoch included; so a
    budget of `speed * target` is approached from below and settles where an epoch takes `target`.
    """

    target_seconds: float
    budget: int
    least: int
    most: int = 1 << 60
    speed: float | None = None

    #: an epoch may take at most this much more than the last full one
    GROWTH = 2.0
    #: weight of the newest measurement
    FRESH = 0.5

    def observed(self, units: int, seconds: float) -> RateControl:
        """After an epoch that took `seconds` for `units`."""
        if units <= 0 or seconds <= 0:
            return self
        if units < self.budget // 2 and seconds <= self.target_seconds:
            # the log had little to give: that tells nothing about how much would be too much
            return self
        speed = units / seconds
        if self.speed is not None and seconds <= self.target_seconds:
            speed = self.FRESH * speed + (1 - self.FRESH) * self.speed
        wanted = min(speed * self.target_seconds, min(units, self.budget) * self.GROWTH, self.most)
        return replace(self, speed=speed, budget=max(self.least, int(wanted)))


def shares(available: dict[str, int], budget: int) -> dict[str, int]:
    """How much each partition gives: everything where there is room, else as evenly as possible."""
    given: dict[str, int] = {}
    left = budget
    waiting = sorted((units, name) for name, units in available.items() if units > 0)
    for place, (units, name) in enumerate(waiting):
        given[name] = min(units, max(1, left // (len(waiting) - place)))
        left -= given[name]
    return given

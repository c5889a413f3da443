"""Decides how much of a log the next epoch reads, so that epochs take about the target length. Pure.

It learns from how long the last epochs took for how much. The log waits, so memory does not fill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.operators.count_join import CountJoin
from penstock.operators.custom_runner import CustomRunner
from penstock.operators.interval_join import IntervalJoin
from penstock.operators.product import Product
from penstock.operators.product_last import LastProduct
from penstock.operators.row_fold import RowFold
from penstock.query.physical import Plan, ScanPlan
from penstock.settings import Settings

#: the part of an epoch's budget that is read, however much else it has to do
LEAST_READING = 0.125
#: operators with which a first epoch may take minutes: pairs of events, and calls of the user's code for each event
_EXPENSIVE = (IntervalJoin, CountJoin, Product, LastProduct, CustomRunner, RowFold)
#: how much less the first epoch reads with these
_EXPENSIVE_FACTOR = 32


@dataclass(frozen=True)
class RateControl:
    """The state of the controller. `budget` is in the log's units (bytes or records).

    An epoch's time has a fixed part and a part per unit. Two epochs of different size separate the parts; between
    epochs of one size a change is taken for a change of the part per unit. The budget fills what the fixed part leaves
    of the target, but at least a third of the fixed part, and as much again where that alone is beyond the target:
    smaller epochs would only read more slowly.

    Where more than `BEHIND` budgets wait, the log is behind by more than an epoch anyway. Then an epoch reads all of
    it, for up to `catch_up_seconds` and `catch_up_most` units: long epochs read faster. Each leaves less behind than it
    took, as long as the log grows more slowly than it is read, so epochs return to the target.
    """

    target_seconds: float
    budget: int
    least: int
    most: int = 1 << 60
    fixed_seconds: float = 0.0
    last: tuple[int, float] | None = None
    catch_up_seconds: float = 0.0
    catch_up_most: int = 1 << 60

    #: an epoch may take at most this much more than the last full one
    GROWTH = 4.0
    #: two epochs are of different size beyond this ratio
    APART = 1.3
    #: weight of the newest measurement of the fixed part
    FRESH = 0.5
    #: the log is behind when this many budgets wait
    BEHIND = 2.0

    def budget_for(self, waiting: int) -> int:
        """How much the next epoch may read when so much waits."""
        if self.last is None or waiting <= self.BEHIND * self.budget:
            return self.budget
        longer = self.budget * self.catch_up_seconds / self.target_seconds
        return max(self.budget, int(min(longer, self.last[0] * self.GROWTH, self.catch_up_most, self.most)))

    def room_seconds(self, units: int) -> float:
        """How long an epoch may take that reads so much."""
        return self.target_seconds if units <= self.budget else self.catch_up_seconds

    def reading_seconds(self, units: int) -> float:
        """How long reading so much should take."""
        fixed = min(self.fixed_seconds, 0.75 * self.target_seconds)
        return fixed + (self.target_seconds - fixed) * units / self.budget

    def budget_beside(self, units: int, seconds: float) -> int:
        """How much of that budget is left in an epoch that takes so many seconds for something else."""
        room = self.room_seconds(units)
        reading = room - min(self.fixed_seconds, 0.75 * room)
        return max(self.least, int(units * max(LEAST_READING, 1 - seconds / reading)))

    def observe(self, units: int, seconds: float) -> RateControl:
        """Learn from an epoch that took `seconds` for `units`."""
        if units <= 0 or seconds < 1e-9:
            return self
        fixed = min(self._measure_fixed(units, seconds), 0.95 * seconds)
        observed = replace(self, fixed_seconds=fixed, last=(units, seconds))
        if units < self.budget // 2 and seconds <= self.target_seconds:
            # the log had little to read: no reason to change the budget
            return observed
        room = fixed if fixed > self.target_seconds else max(self.target_seconds - fixed, fixed / 3)
        wanted = min(room * units / (seconds - fixed), min(units, self.budget) * self.GROWTH, self.most)
        return replace(observed, budget=max(self.least, int(wanted)))

    def _measure_fixed(self, units: int, seconds: float) -> float:
        if self.last is None:
            return self.fixed_seconds
        (less, least_seconds), (more, most_seconds) = sorted([self.last, (units, seconds)])
        if more < self.APART * less or most_seconds < least_seconds:
            return self.fixed_seconds
        each = (most_seconds - least_seconds) / (more - less)
        measured = max(0.0, least_seconds - each * less)
        return self.FRESH * measured + (1 - self.FRESH) * self.fixed_seconds


def split_budget(available: dict[str, int], budget: int) -> dict[str, int]:
    """Split a budget between partitions: everything where there is room, else as even_maps as possible."""
    split: dict[str, int] = {}
    left = budget
    waiting = sorted((units, name) for name, units in available.items() if units > 0)
    for number, (units, name) in enumerate(waiting):
        split[name] = min(units, max(1, left // (len(waiting) - number)))
        left -= split[name]
    return split


def new_rate_control(settings: Settings, scan: ScanPlan, plan: Plan) -> RateControl:
    """The rate control of one stream, by the settings. Where a plan may make many rows of one, or calls Python for
    each, it starts with a smaller budget."""
    each = scan.stream.log.unit_bytes
    is_expensive = any(isinstance(sub.operator, _EXPENSIVE) for sub in plan.stages.values())
    first = settings.first_epoch_units // (_EXPENSIVE_FACTOR if is_expensive else 1)
    units, least = max(1, first // each), max(1_000, 65_536 // each)
    most = settings.most_epoch_units
    if most is not None:
        units, least = min(units, most), min(least, most)
    return RateControl(
        settings.epoch_seconds,
        units,
        least,
        most or 1 << 60,
        catch_up_seconds=settings.catch_up_seconds,
        catch_up_most=settings.catch_up_bytes // each,
    )

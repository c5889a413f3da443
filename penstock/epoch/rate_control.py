"""Decides how much the next epoch reads and how much it emits, so that epochs take about the target length. Pure.

`RateControl` learns from how long the last epochs took for how much. The log waits, so memory does not fill.

`EmissionLimit` bounds what is emitted, so that windows that end together do not make an epoch long. Slices report how
many rows wait for which instant. From that, and from how long epochs took, it decides how far the watermark may advance
in the next epoch. A watermark that is held back changes when rows are emitted, not which: it is what it would be in an
epoch that had read less. So what is due at several instants can be emitted in several epochs and, where operators can,
what is due at one instant in batches of jobs. Each epoch that finds something due emits some of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.epoch.message import PendingRows
from penstock.operators.contract import NEVER
from penstock.operators.count_join import CountJoin
from penstock.operators.custom_runner import CustomRunner
from penstock.operators.interval_join import IntervalJoin
from penstock.operators.job_windows import CLOSING_BATCHES, NEAR_INSTANTS
from penstock.operators.product import Product
from penstock.operators.product_last import LastProduct
from penstock.operators.row_fold import RowFold
from penstock.query.physical import Plan, ScanPlan
from penstock.settings import Settings
from penstock.state.manifest import StreamTime

#: the part of an epoch's budget that is read, however much else it has to do
LEAST_READING = 0.125
#: operators with which a first epoch may take minutes: pairs of events, and calls of the user's code for each event
_EXPENSIVE = (IntervalJoin, CountJoin, Product, LastProduct, CustomRunner, RowFold)
#: how much less the first epoch reads with these
_EXPENSIVE_FACTOR = 32
#: where the watermark is limited, and how many batches are one instant ahead of it
WatermarkLimit = tuple[int, int]
#: rows that are emitted in batches, and rows that are not
RowCounts = tuple[int, int]

#: an epoch that emits fewer rows tells more about epochs than about rows
LEAST_MEASURED_ROWS = 20_000
_ALL_BATCHES = tuple(range(CLOSING_BATCHES))


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


@dataclass(frozen=True)
class PendingEmissions:
    """What the watermark of a stream has yet to decide, after an epoch.

    The watermark is at an instant, and for `ahead` batches at the one after it; without limit it would be at
    `unlimited`. `rows` wait for later instants; these `batches` have jobs.
    """

    watermark: int
    unlimited: int
    ahead: int = 0
    rows: Mapping[int, RowCounts] = field(default_factory=dict)
    batches: tuple[int, ...] = _ALL_BATCHES

    @property
    def is_limited(self) -> bool:
        """Whether there is something to emit without reading any more."""
        return self.unlimited > self.watermark

    def batches_left(self, at: int) -> tuple[int, ...]:
        """The batches that have not emitted what is due at an instant."""
        if at <= self.watermark:
            return ()
        return tuple(one for one in self.batches if at != self.watermark + 1 or one >= self.ahead)

    def emitted_until(self, later: PendingEmissions) -> int:
        """How many of the pending rows were emitted by a later epoch."""
        total = 0.0
        for at, (in_batches, whole) in self.rows.items():
            left = len(self.batches_left(at))
            if left:
                emitted = left - min(left, len(later.batches_left(at)))
                total += in_batches * emitted / len(self.batches)
            total += whole if self.watermark < at <= later.watermark else 0
        return round(total)


@dataclass(frozen=True)
class WatermarkStep:
    """How far the watermark may advance in the next epoch (None: no limit), and the seconds that emitting takes."""

    limit: WatermarkLimit | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class EmissionLimit:
    """How long it takes to emit a pending row; learned from epochs that emit many."""

    row_seconds: float = 4e-6

    #: an epoch may be longer by this much for what is decided by the events that it reads
    SLACK = 0.15
    #: how far one epoch may change the estimate; and how much of the change counts if it took less than estimated: not
    #: all rows take as long, and an epoch that is too long is worse than one too many
    MOST_CHANGE, FASTER = 4.0, 0.5
    #: what no row takes less or more than, in seconds: beyond that something else made epochs long
    FASTEST, SLOWEST = 2e-7, 5e-5

    def next_step(
        self, pending: PendingEmissions, room_seconds: float, reading_seconds: float
    ) -> WatermarkStep:
        """The step of an epoch of so many seconds, which would read for so long if nothing were due."""
        room = (1 - LEAST_READING) * room_seconds
        spent = later = 0.0
        for at in sorted(at for at in pending.rows if at > pending.watermark):
            in_batches, whole = pending.rows[at]
            left = pending.batches_left(at)
            batch_seconds = in_batches * self.row_seconds / max(1, len(pending.batches))
            cost = len(left) * batch_seconds + whole * self.row_seconds
            ahead = pending.ahead if at == pending.watermark + 1 else 0
            if at > pending.unlimited:
                free = max(room_seconds - spent, LEAST_READING * room_seconds)
                if spent + later + cost + min(reading_seconds, free) > (1 + self.SLACK) * room_seconds:
                    return WatermarkStep((at - 1, ahead), spent)
                later += cost
            elif spent + cost > room:
                fit = int((room - spent) / batch_seconds) if batch_seconds > 0 and spent < room else 0
                # an epoch that emits nothing else emits a batch at least; where there is only one, all of it
                can_split = len(pending.batches) > 1 and batch_seconds > 0
                now = left[: max(fit, 0 if spent else 1)] if can_split else ()
                if spent or now:
                    ahead = CLOSING_BATCHES if now and now == left else now[-1] + 1 if now else ahead
                    return WatermarkStep((at - 1, ahead), spent + len(now) * batch_seconds)
                spent += cost  # it cannot be split
            else:
                spent += cost
        return WatermarkStep(None, spent)

    def observe(self, share: float, factor: float) -> EmissionLimit:
        """Learn from an epoch that took `factor` times as long as estimated, `share` of it for what it emitted."""
        factor = min(max(factor, 1 / self.MOST_CHANGE), self.MOST_CHANGE)
        share *= 1 if factor > 1 else self.FASTER
        row_seconds = self.row_seconds * (1 + share * (factor - 1))
        return replace(self, row_seconds=min(max(row_seconds, self.FASTEST), self.SLOWEST))


def nearest_instants(counts: Mapping[int, int]) -> dict[int, int]:
    """The row counts of the next instants; those of all later ones are added to the first of these."""
    instants = sorted(counts)
    nearest = {at: counts[at] for at in instants[:NEAR_INSTANTS]}
    if len(instants) > NEAR_INSTANTS:
        nearest[instants[NEAR_INSTANTS]] = sum(counts[at] for at in instants[NEAR_INSTANTS:])
    return nearest


def sum_pending(
    reports: Iterable[PendingRows],
    times: Mapping[str, StreamTime],
    unlimited: Mapping[str, StreamTime],
) -> dict[str, PendingEmissions]:
    """What is pending in each stream: the reports of slices, and where watermarks are and would be without limit."""
    rows: dict[str, dict[int, RowCounts]] = {}
    batches: dict[str, set[int]] = {}
    for one in reports:
        batches.setdefault(one.stream, set()).update(one.batches)
        counts = rows.setdefault(one.stream, {})
        for at, count in one.rows.items():
            in_batches, whole = counts.get(at, (0, 0))
            counts[at] = (in_batches + count, whole) if one.batches else (in_batches, whole + count)
    return {
        name: PendingEmissions(
            _watermark(stream),
            _watermark(unlimited[name]),
            stream.ahead,
            rows.get(name, {}),
            tuple(sorted(batches.get(name, ()))),
        )
        for name, stream in times.items()
    }


def _watermark(stream: StreamTime) -> int:
    return NEVER if stream.watermark is None else stream.watermark
